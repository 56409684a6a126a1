package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/storetest/history"
)

// load is several processes, each with a store of its own, that schedule, cancel,
// put off and run tasks while something happens to their server. What they did
// is judged at the end.
type load struct {
	t      *testing.T
	queues []string
	large  bool // a few payloads are of a megabyte

	logs    []*history.Log
	plain   []*Store // what is below each log
	stores  []store.Store
	ending  context.Context
	end     context.CancelFunc // ends those who consume
	full    context.Context
	enough  context.CancelFunc // ends those who produce
	making  sync.WaitGroup
	running sync.WaitGroup

	scheduled atomic.Int64
	failed    atomic.Int64 // calls that returned an error
}

// newLoad opens a store for each options: the first half schedules, the others
// consume.
func newLoad(t *testing.T, processes []Options) *load {
	l := &load{t: t}
	l.ending, l.end = context.WithCancel(context.Background())
	l.full, l.enough = context.WithCancel(l.ending)
	t.Cleanup(l.end)
	for i, o := range processes {
		o.Warn = func(string) {}
		log := history.NewLog(fmt.Sprintf("process-%d", i), nil)
		s := open(t, o)
		l.logs = append(l.logs, log)
		l.plain = append(l.plain, s)
		l.stores = append(l.stores, history.Record(s, log))
	}
	return l
}

// alike is the options of n processes that have the same.
func alike(n int, o Options) []Options {
	o.Prefix = nextPrefix()
	return slices.Repeat([]Options{o}, n)
}

// start begins the load on queues.
func (l *load) start(queues ...string) {
	l.t.Helper()
	l.queues = queues
	ctx := context.Background()
	for _, q := range queues {
		settings := store.DefaultSettings()
		settings.Lease, settings.MaxLost, settings.MaxAttempts = time.Second, 1000, 1000
		settings.Backoff = store.Backoff{Initial: 100 * time.Millisecond, Max: time.Second, Factor: 2}
		if _, err := l.stores[0].PutSettings(ctx, q, settings); err != nil {
			l.t.Fatal(err)
		}
	}
	half := len(l.stores) / 2
	for i := range half {
		l.making.Go(func() { l.produce(i) })
	}
	for i := half; i < len(l.stores); i++ {
		if i == half {
			l.running.Go(func() { l.claim(i) })
		} else {
			l.work(i)
		}
	}
}

// insist repeats a call until it has an answer, as a careful caller does.
func (l *load) insist(call func(ctx context.Context) error) {
	for l.ending.Err() == nil {
		ctx, cancel := context.WithTimeout(l.ending, 2*time.Second)
		err := call(ctx)
		cancel()
		if err == nil {
			return
		}
		l.failed.Add(1)
		_ = sleep(l.ending, 20*time.Millisecond)
	}
}

// produce schedules tasks that are due within a second, and changes
// its mind about some.
func (l *load) produce(process int) {
	st := l.stores[process]
	var recent []store.Key
	for n := 0; l.full.Err() == nil; n++ {
		tasks := make([]store.NewTask, 1+rand.IntN(8))
		for k := range tasks {
			size := rand.IntN(300)
			if l.large && rand.IntN(50) == 0 {
				size = store.MaxPayloadBytes
			}
			tasks[k] = store.NewTask{
				Queue: l.queues[rand.IntN(len(l.queues))], ID: fmt.Sprintf("%d-%d-%d", process, n, k),
				Delay: rand.N(time.Second), Payload: fmt.Appendf(nil, "%0*d", size, n),
			}
			recent = append(recent, store.Key{Queue: tasks[k].Queue, ID: tasks[k].ID})
		}
		l.insist(func(ctx context.Context) error {
			results, err := st.Schedule(ctx, tasks)
			if err != nil {
				return err
			}
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
			return err
		})
		l.scheduled.Add(int64(len(tasks)))
		if len(recent) > 60 {
			recent = recent[20:]
		}
		key := recent[rand.IntN(len(recent))]
		switch rand.IntN(6) {
		case 0, 1:
			l.insist(func(ctx context.Context) error {
				_, err := st.Cancel(ctx, []store.CancelRequest{{Queue: key.Queue, ID: key.ID, Force: rand.IntN(4) == 0}})
				return err
			})
		case 2:
			l.insist(func(ctx context.Context) error {
				_, err := st.Reschedule(ctx, []store.RescheduleRequest{{Queue: key.Queue, ID: key.ID, Delay: rand.N(time.Second)}})
				return err
			})
		}
		_ = sleep(l.full, rand.N(20*time.Millisecond))
	}
}

// claim consumes through the store's own interface: it lets some leases run out,
// and gives some back.
func (l *load) claim(process int) {
	st := l.stores[process]
	for l.ending.Err() == nil {
		ctx, cancel := context.WithTimeout(l.ending, 2*time.Second)
		requests := make([]store.ClaimRequest, len(l.queues))
		for i, q := range l.queues {
			requests[i] = store.ClaimRequest{Queue: q, Max: 5, Lease: 700 * time.Millisecond, Worker: fmt.Sprint("claimer-", process)}
		}
		results, err := st.Claim(ctx, requests)
		cancel()
		if err != nil {
			l.failed.Add(1)
		}
		var settlements []store.Settlement
		for _, r := range results {
			for i := range r.Tasks {
				receipt := r.Tasks[i].Receipt
				switch n := rand.IntN(20); {
				case n == 0: // forgotten
				case n == 1:
					settlements = append(settlements, store.Settlement{Receipt: receipt, Action: store.Release})
				case n == 2:
					settlements = append(settlements, store.Settlement{Receipt: receipt, Action: store.Extend, Lease: 100 * time.Millisecond})
				case n == 3:
					settlements = append(settlements, store.Settlement{Receipt: receipt, Action: store.Retry, Delay: rand.N(300 * time.Millisecond), Error: "not this time"})
				default:
					settlements = append(settlements, store.Settlement{Receipt: receipt, Action: store.Ack})
				}
			}
		}
		if len(settlements) > 0 {
			ctx, cancel := context.WithTimeout(l.ending, 2*time.Second)
			if _, err := st.Settle(ctx, settlements); err != nil {
				l.failed.Add(1)
			}
			cancel()
		}
		_ = sleep(l.ending, 10*time.Millisecond)
	}
}

// work consumes with an ordinary worker.
func (l *load) work(process int) {
	client := duetime.NewClient(l.stores[process], &duetime.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
	worker := duetime.NewWorker(client, &duetime.WorkerOptions{Name: fmt.Sprint("worker-", process), Concurrency: 16})
	for _, q := range l.queues {
		worker.Handle(q, runSome)
	}
	l.running.Go(func() {
		if err := worker.Run(l.ending); err != nil {
			l.t.Error(err)
		}
	})
}

// runSome is a handler with whom not all goes well.
func runSome(ctx context.Context, _ *duetime.Task) error {
	switch n := rand.IntN(100); {
	case n < 5:
		return duetime.RetryIn(rand.N(300*time.Millisecond), errors.New("not this time"))
	case n < 8:
		return duetime.Snooze(rand.N(300 * time.Millisecond))
	case n == 8: // longer than a lease
		_ = sleep(ctx, 1300*time.Millisecond)
	default:
		_ = sleep(ctx, rand.N(10*time.Millisecond))
	}
	return ctx.Err()
}

// during logs again and again that the store may just have lost something, until
// what it returns is called. It is for failovers, in which it is not known when
// exactly that happens.
func (l *load) during() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			l.logs[0].Crash()
			if sleep(ctx, 5*time.Millisecond) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		l.logs[0].Crash()
	}
}

// finish goes on for a while after what happened has happened, runs what is left,
// and judges it all.
func (l *load) finish(opts history.Options) *history.Report {
	l.t.Helper()
	calm := time.Now()
	time.Sleep(1500 * time.Millisecond) // so that some is scheduled in peace again, and comes in time
	l.enough()
	l.making.Wait()
	l.drain()
	l.end()
	l.running.Wait()
	return l.judge(opts, calm, nil)
}

// drain waits until nothing is left.
func (l *load) drain() {
	l.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		left := int64(0)
		for _, q := range l.queues {
			ctx, cancel := context.WithTimeout(l.ending, 5*time.Second)
			st, err := l.plain[0].Stats(ctx, q)
			cancel()
			if err != nil {
				left++
				continue
			}
			left += st.Scheduled + st.Ready + st.Leased
			if time.Now().After(deadline) {
				l.t.Fatalf("queue %s is not emptied: %+v", q, st)
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the queues are not emptied")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// judge checks what was done since the beginning, with what other processes have
// logged in files.
func (l *load) judge(opts history.Options, calm time.Time, files []string) *history.Report {
	l.t.Helper()
	checkWhole(l.t, l.plain[0])
	final := history.NewLog("final", nil)
	if err := final.Final(context.Background(), l.plain[0]); err != nil {
		l.t.Fatal(err)
	}
	var lines []history.Line
	for _, log := range l.logs {
		lines = append(lines, log.Lines()...)
	}
	if len(files) > 0 {
		more, err := history.ReadFiles(files...)
		if err != nil {
			l.t.Fatal(err)
		}
		lines = append(lines, more...)
	}
	lines = append(lines, final.Lines()...)
	report := history.Check(lines, opts)
	l.t.Logf("%v; %d calls returned an error", report, l.failed.Load())
	for _, p := range report.Problems {
		l.t.Errorf("%v", p)
	}
	if !report.HasFinal || report.Done == 0 {
		l.t.Error("there was no load")
	}
	if !calm.IsZero() {
		l.inTime(lines, calm.Add(500*time.Millisecond))
	}
	return report
}

// inTime says that what was due after a moment came in time: that nobody who
// waits still sleeps, or hangs on a connection that is none.
func (l *load) inTime(lines []history.Line, after time.Time) {
	l.t.Helper()
	var late []time.Duration
	for _, line := range lines {
		if line.Op != "claim" || !line.End {
			continue
		}
		for _, i := range line.Items {
			if i.Failures+i.Lost == 0 && i.Due.After(after) {
				late = append(late, i.ClaimedAt.Sub(i.Due))
			}
		}
	}
	if len(late) < 10 {
		l.t.Errorf("%d tasks came after all was well again", len(late))
		return
	}
	slices.Sort(late)
	l.t.Logf("%d tasks after all was well again: half came within %v, the last %v late", len(late), late[len(late)/2], late[len(late)-1])
	if p90 := late[len(late)*9/10]; p90 > 2*time.Second {
		l.t.Errorf("after all was well again a tenth of tasks came %v late or more", p90)
	}
}
