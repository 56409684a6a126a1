package remotestore_test

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/duetime/duetime/server"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/remotestore"
	"github.com/duetime/duetime/store/storetest"
)

// serve runs a server of a store on a real socket until stop, and opens it as a
// store. stop closes the server's store too.
func serve(t testing.TB, st store.Store) (remote *remotestore.Store, stop func()) {
	t.Helper()
	srv, err := server.New(st, &server.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewUnstartedServer(srv)
	hs.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	hs.Start()
	remote, err = remotestore.Open(t.Context(), hs.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return remote, func() {
		hs.CloseClientConnections()
		hs.Close()
		srv.Close()
		st.Close()
	}
}

var _ http.Handler = (*server.Server)(nil)

// groups are those of the suite that are run; none means all.
func groups() []string {
	if raceDetector {
		return []string{"schedule", "wake", "concurrency", "crash"}
	}
	return nil
}

func TestContractOverMemstore(t *testing.T) {
	storetest.RunOnly(t, storetest.Harness{Open: func(t testing.TB) *storetest.Instance {
		clock := storetest.NewClock()
		remote, stop := serve(t, memstore.New(&memstore.Options{Now: clock.Now}))
		t.Cleanup(stop)
		return &storetest.Instance{
			Store:   remote,
			Advance: clock.Advance,
		}
	}}, groups()...)
}

func TestContractOverDiskstore(t *testing.T) {
	storetest.RunOnly(t, storetest.Harness{Open: func(t testing.TB) *storetest.Instance {
		clock := storetest.NewClock()
		fs := vfs.NewCrashableMem()
		var stops []func()
		t.Cleanup(func() { // after the suite has closed the store, whichever it is by then
			for _, stop := range stops {
				stop()
			}
		})
		open := func(t testing.TB) store.Store {
			st, err := diskstore.Open("data", &diskstore.Options{FS: fs, Now: clock.Now, Logger: quiet(), CacheBytes: 32 << 20})
			if err != nil {
				t.Fatal(err)
			}
			remote, stop := serve(t, st)
			stops = append(stops, stop)
			return remote
		}
		return &storetest.Instance{
			Store:   open(t),
			Advance: clock.Advance,
			Reopen: func(t testing.TB) store.Store { // the server's process is killed
				fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
				return open(t)
			},
		}
	}}, groups()...)
}
