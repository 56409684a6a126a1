package remotestore_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/duetime/duetime/server"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/remotestore"
	"github.com/duetime/duetime/store/storetest"
)

// serve runs a server of a store on a real socket until the test ends, and opens
// it as a store. The server's store is closed last.
func serve(t testing.TB, st store.Store) *remotestore.Store {
	t.Helper()
	srv, err := server.New(st, &server.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewUnstartedServer(srv)
	hs.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelInfo)
	hs.Start()
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
		srv.Close()
		st.Close()
	})
	remote, err := remotestore.Open(t.Context(), hs.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return remote
}

var _ http.Handler = (*server.Server)(nil)

func TestContractOverMemstore(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(t testing.TB) *storetest.Instance {
		clock := storetest.NewClock()
		return &storetest.Instance{
			Store:   serve(t, memstore.New(&memstore.Options{Now: clock.Now})),
			Advance: clock.Advance,
		}
	}})
}
