package remotestore_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/server"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/remotestore"
)

// deafTo serves a store, but of calls to a path the first answers are lost after
// they were carried out.
func deafTo(t *testing.T, st store.Store, path string, lost int64) (*remotestore.Store, *atomic.Int64) {
	t.Helper()
	srv, err := server.New(st, &server.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, path) && calls.Add(1) <= lost {
			srv.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		srv.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { hs.CloseClientConnections(); hs.Close(); srv.Close(); st.Close() })
	remote, err := remotestore.Open(t.Context(), hs.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remote.Close() })
	return remote, &calls
}

func TestScheduleIsRepeatedWhenItsAnswerIsLost(t *testing.T) {
	inner := memstore.New(nil)
	remote, calls := deafTo(t, inner, "/v1/batch/schedule", 2)
	results, err := remote.Schedule(t.Context(), []store.NewTask{{Queue: "q", ID: "a", Payload: []byte("x"), Delay: time.Hour}})
	if err != nil || results[0].Outcome != store.Exists || string(results[0].Task.Payload) != "x" {
		t.Errorf("%+v, %v; want the task, which exists", results, err)
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
	if s := stats(t, inner); s.Ready+s.Scheduled != 1 {
		t.Errorf("%+v, want one task", s)
	}
}

func TestImportOfWhatIsNotDueIsRepeatedWhenItsAnswerIsLost(t *testing.T) {
	inner := memstore.New(nil)
	remote, calls := deafTo(t, inner, "/v1/batch/import", 1)
	at := time.Now()
	far := store.Task{Queue: "q", ID: "far", State: store.StateScheduled, Due: at.Add(time.Hour), Created: at}
	dead := store.Task{Queue: "q", ID: "dead", State: store.StateDead, Due: at.Add(-time.Hour), Created: at}
	results, err := remote.Import(t.Context(), []store.Task{far, dead})
	if err != nil || results[0].Outcome != store.Exists || results[1].Outcome != store.Exists || calls.Load() != 2 {
		t.Errorf("%+v, %v after %d calls; want both tasks, which exist, after 2", results, err, calls.Load())
	}
	remote, calls = deafTo(t, memstore.New(nil), "/v1/batch/import", 1)
	far.Due = at
	if results, err = remote.Import(t.Context(), []store.Task{far}); err == nil || calls.Load() != 1 {
		t.Errorf("of what is due: %+v, %v after %d calls; want an error after 1", results, err, calls.Load())
	}
}

func TestServerWhoseStoreCanNotImport(t *testing.T) {
	remote, stop := serve(t, struct{ store.Store }{memstore.New(nil)})
	defer stop()
	defer remote.Close()
	if can, err := store.CanImport(t.Context(), remote); can || err != nil {
		t.Errorf("can it import? %v, %v", can, err)
	}
	if _, err := store.ImporterOf(t.Context(), remote); !errors.Is(err, store.ErrUnsupported) {
		t.Error(err)
	}
}

// By the time such a call is repeated the task may be done and gone.
func TestScheduleOfWhatIsDueSoonIsNotRepeated(t *testing.T) {
	for _, task := range []store.NewTask{
		{Queue: "q", ID: "a"},
		{Queue: "q", ID: "a", Delay: time.Second},
		{Queue: "q", ID: "a", Due: time.Now().Add(time.Minute)},
		{Queue: "q", ID: "a", Delay: time.Hour, Conflict: store.ConflictReplace},
	} {
		remote, calls := deafTo(t, memstore.New(nil), "/v1/batch/schedule", 1)
		tasks := []store.NewTask{{Queue: "q", ID: "far", Delay: time.Hour}, task}
		if results, err := remote.Schedule(t.Context(), tasks); err == nil || calls.Load() != 1 {
			t.Errorf("%+v: %d calls, results %+v; want one, and an error", task, calls.Load(), results)
		}
		if results, err := remote.Schedule(t.Context(), tasks); err != nil || results[0].Outcome != store.Exists {
			t.Errorf("repeated by the caller: %+v, %v", results, err)
		}
	}
}

func TestSettleIsNotRepeatedWhenItsAnswerIsLost(t *testing.T) {
	inner := memstore.New(nil)
	remote, calls := deafTo(t, inner, "/v1/batch/settle", 1)
	schedule(t, inner, store.NewTask{Queue: "q", ID: "a"})
	var receipt store.Receipt
	eventually(t, "the task is claimed", func() bool {
		results, err := remote.Claim(t.Context(), []store.ClaimRequest{{Queue: "q", Max: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if len(results[0].Tasks) == 1 {
			receipt = results[0].Tasks[0].Receipt
		}
		return receipt != ""
	})
	ack := []store.Settlement{{Receipt: receipt, Action: store.Ack}}
	if results, err := remote.Settle(t.Context(), ack); err == nil {
		t.Errorf("results %+v; want an error, as the outcome is unknown", results)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	if results, err := remote.Settle(t.Context(), ack); err != nil || results[0].Outcome != store.Stale {
		t.Errorf("asked again: %+v, %v", results, err)
	}
}

func TestAServerThatStartsLateIsWaitedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	inner := memstore.New(nil)
	defer inner.Close()
	started := make(chan *httptest.Server, 1)
	srv, err := server.New(inner, &server.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	go func() {
		time.Sleep(100 * time.Millisecond) // any time will do: Open tries for 10 s
		hs := httptest.NewUnstartedServer(srv)
		hs.Listener.Close()
		if hs.Listener, err = net.Listen("tcp", addr); err != nil {
			t.Error(err)
			started <- nil
			return
		}
		hs.Start()
		started <- hs
	}()
	remote, err := remotestore.Open(t.Context(), "http://"+addr+"/", nil)
	if hs := <-started; hs != nil {
		defer hs.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Ping(t.Context()); err != nil {
		eventually(t, "ready", func() bool { return remote.Ping(t.Context()) == nil })
	}
	remote.Close()
}

func TestOpenRefuses(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/moved") {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		http.Error(w, "<html>nothing here</html>", http.StatusNotFound)
	}))
	defer other.Close()
	for url, want := range map[string]string{
		"ftp://x":                     "must be the URL of a server",
		"127.0.0.1:7333":              "must be the URL of a server",
		"http://":                     "must be the URL of a server",
		"http://127.0.0.1:1/?x=1":     "must be the URL of a server",
		other.URL:                     "is this a duetime server?",
		other.URL + "/moved":          "is this the URL of a duetime server?",
		"http://u:secret@127.0.0.1:1": "connection refused",
	} {
		_, err := remotestore.Open(t.Context(), url, &remotestore.Options{RetryFor: -1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is in the error: %v", err)
		}
	}
}

func TestErrorsOfTheStoreCrossTheWire(t *testing.T) {
	for _, want := range []error{store.ErrFull, store.ErrUnsupported, store.ErrVersion} {
		f := &failing{Store: memstore.New(nil), err: want}
		remote, _ := deafTo(t, f, "/nothing", 0)
		if _, err := remote.Queues(t.Context()); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
}

// failing answers Queues with an error.
type failing struct {
	store.Store
	err error
}

func (f *failing) Queues(context.Context) ([]string, error) { return nil, f.err }
