package remotestore_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/dispatch"
	"github.com/duetime/duetime/server"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/remotestore"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func schedule(t testing.TB, st store.Store, task store.NewTask) {
	t.Helper()
	results, err := st.Schedule(context.Background(), []store.NewTask{task})
	if err != nil || results[0].Outcome != store.Created {
		t.Fatalf("schedule: %+v, %v", results, err)
	}
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

func stats(t testing.TB, st store.Store) store.Stats {
	t.Helper()
	s, err := st.Stats(context.Background(), "q")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counting serves a store and counts requests.
func counting(t testing.TB, st store.Store) (*remotestore.Store, *atomic.Int64) {
	t.Helper()
	srv, err := server.New(st, &server.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		srv.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { hs.CloseClientConnections(); hs.Close(); srv.Close(); st.Close() })
	remote, err := remotestore.Open(t.Context(), hs.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remote.Close() })
	return remote, &n
}

func TestTakeOverAServerWaitsThere(t *testing.T) {
	inner := memstore.New(nil)
	remote, requests := counting(t, inner)
	d := dispatch.New(remote, &dispatch.Options{Logger: quiet()})
	defer d.Close()
	type taken struct {
		leases []store.Lease
		err    error
	}
	got := make(chan taken, 1)
	go func() {
		leases, err := d.Take(t.Context(), store.ClaimRequest{Queue: "q", Max: 5})
		got <- taken{leases, err}
	}()
	eventually(t, "the claim is at the server", func() bool { return requests.Load() == 2 }) // and capabilities
	schedule(t, inner, store.NewTask{Queue: "q", ID: "far", Delay: time.Hour})
	schedule(t, inner, store.NewTask{Queue: "q", ID: "near", Delay: 1500 * time.Millisecond})
	x := <-got
	if x.err != nil || len(x.leases) != 1 || x.leases[0].ID != "near" {
		t.Fatalf("taken %+v, %v", x.leases, x.err)
	}
	if late := x.leases[0].ClaimedAt.Sub(x.leases[0].Due); late < 0 || late > 500*time.Millisecond {
		t.Errorf("claimed %v after it was due", late)
	}
	// A dispatcher that polled would have asked a second or two times more.
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// Waits end at random moments around those at which tasks are handed out. No task
// may be left with a lease that nobody knows of.
func TestNothingIsLeasedToAWaitThatEnded(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	inner := memstore.New(nil)
	remote, _ := counting(t, inner)
	ended, taken := 0, 0
	for range 150 {
		schedule(t, inner, store.NewTask{Queue: "q", ID: rndID(rnd), Delay: time.Duration(rnd.IntN(4000)) * time.Microsecond})
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(8000))*time.Microsecond)
		r, err := remote.ClaimWait(ctx, store.ClaimRequest{Queue: "q", Max: 1, Lease: time.Hour}, time.Minute)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			ended++
		} else if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Tasks {
			taken++
			results, err := inner.Settle(t.Context(), []store.Settlement{{Receipt: l.Receipt, Action: store.Ack}})
			if err != nil || results[0].Outcome != store.Acked {
				t.Fatalf("%+v, %v", results, err)
			}
		}
	}
	if ended == 0 || taken == 0 {
		t.Fatalf("%d ended, %d taken: the test did not test", ended, taken)
	}
	eventually(t, "nothing is leased", func() bool { return stats(t, inner).Leased == 0 })
	s := stats(t, inner)
	if int(s.Ready+s.Scheduled) != 150-taken {
		t.Errorf("%d taken of 150, but %+v", taken, s)
	}
}

// The claim and the call that ends it go over connections of their own, and the
// second may be there first.
func TestAWaitEndsThoughItsEndArrivesFirst(t *testing.T) {
	inner := memstore.New(nil)
	srv, err := server.New(inner, &server.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	claimSent, endedNone := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/claim"):
			close(claimSent)
			<-endedNone
			srv.ServeHTTP(w, r)
		case r.URL.Path == "/v1/claims/end":
			srv.ServeHTTP(w, r)
			once.Do(func() { close(endedNone) })
		default:
			srv.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { hs.CloseClientConnections(); hs.Close(); srv.Close(); inner.Close() })
	remote, err := remotestore.Open(t.Context(), hs.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remote.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-claimSent; cancel() }()
	begun := time.Now()
	_, err = remote.ClaimWait(ctx, store.ClaimRequest{Queue: "q", Max: 1, AtMostOnce: true}, time.Minute)
	if took := time.Since(begun); !errors.Is(err, context.Canceled) || took > time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

func rndID(rnd *rand.Rand) string {
	b := make([]byte, 12)
	for i := range b {
		b[i] = 'a' + byte(rnd.IntN(26))
	}
	return string(b)
}

func TestCloseEndsWaits(t *testing.T) {
	inner := memstore.New(nil)
	remote, requests := counting(t, inner)
	errs := make(chan error, 1)
	go func() {
		_, err := remote.ClaimWait(context.Background(), store.ClaimRequest{Queue: "q", Max: 1}, time.Minute)
		errs <- err
	}()
	eventually(t, "the claim is at the server", func() bool { return requests.Load() == 2 })
	if err := remote.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; !errors.Is(err, store.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

func TestTakeOutlivesARestartOfTheServer(t *testing.T) {
	inner := memstore.New(nil)
	var srv atomic.Pointer[server.Server]
	begin := func() {
		s, err := server.New(inner, &server.Options{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		srv.Store(s)
	}
	begin()
	down := atomic.Bool{}
	var asked atomic.Int64
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		srv.Load().ServeHTTP(w, r)
	}))
	defer hs.Close()
	remote, err := remotestore.Open(t.Context(), hs.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := dispatch.New(remote, &dispatch.Options{Logger: quiet()})
	got := make(chan []store.Lease, 1)
	go func() {
		leases, err := d.Take(t.Context(), store.ClaimRequest{Queue: "q", Max: 1})
		if err != nil {
			t.Error(err)
		}
		got <- leases
	}()
	eventually(t, "the claim is at the server", func() bool { return asked.Load() == 2 })
	down.Store(true)
	srv.Load().Close() // the wait ends with no tasks
	eventually(t, "trouble is noticed", func() bool { return d.Health().LastError != nil })
	schedule(t, inner, store.NewTask{Queue: "q", ID: "x"})
	begin()
	down.Store(false)
	if leases := <-got; len(leases) != 1 || leases[0].ID != "x" {
		t.Errorf("taken %+v", leases)
	}
	if h := d.Health(); h.LastError != nil {
		t.Errorf("still unwell: %v", h.LastError)
	}
	d.Close()
	remote.Close()
	srv.Load().Close()
}
