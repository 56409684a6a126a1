package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/diskstore"
	"github.com/duetime/duetime/store/memstore"
)

// small is a run of everything that takes a second or two.
func small() Options {
	return Options{
		Repeats: 2, Tasks: 400, Length: 50 * time.Millisecond, Goroutines: []int{1, 8}, Batch: 10, Producers: 2,
		Workers: 16, Rate: 1000, Window: 100 * time.Millisecond, Herd: 200, Backlog: []int{1000, 2000},
		lead: 150 * time.Millisecond, short: 300 * time.Millisecond,
	}
}

// keptOpen is a store that outlives whoever closes it.
type keptOpen struct{ store.Store }

func (keptOpen) Close() error          { return nil }
func (k keptOpen) Unwrap() store.Store { return k.Store }

func TestRun(t *testing.T) {
	for name, open := range map[string]func() (store.Store, error){
		"memory": func() (store.Store, error) { return memstore.New(nil), nil },
		"disk":   func() (store.Store, error) { return diskstore.Open(t.TempDir(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			if _, err := st.Schedule(t.Context(), []store.NewTask{{Queue: "orders", ID: "1", Delay: time.Hour}}); err != nil {
				t.Fatal(err)
			}
			o := small()
			var last, total int64
			o.Progress = func(done, of int64, _ string) {
				if done < last || done > of || total != 0 && of != total {
					t.Errorf("progress %d of %d after %d of %d", done, of, last, total)
				}
				last, total = done, of
			}
			memory := int64(1000)
			o.Footprint = func(context.Context) (int64, int64, error) {
				memory += 100_000
				return memory, -1, nil
			}
			r, err := Run(t.Context(), keptOpen{st}, o)
			if err != nil {
				t.Fatal(err)
			}
			if last != total || total == 0 {
				t.Errorf("progress ends with %d of %d", last, total)
			}
			checkReport(t, r, &o)
			// It was 100,000 bytes more with the first thousand, and 200,000 with
			// two thousand.
			for _, n := range o.Backlog {
				if f := r.Find("backlog_memory", n); f == nil || f.Median != 100 {
					t.Errorf("memory with %d: %+v, want 100", n, f)
				}
				if f := r.Find("backlog_disk", n); f != nil {
					t.Errorf("disk: %+v, which is not known", f)
				}
			}
			checkLeftAlone(t, st)
		})
	}
}

func checkReport(t *testing.T, r *Report, o *Options) {
	t.Helper()
	want := map[string]int{ // how often each figure was measured
		"schedule_single_1": 2, "schedule_single_8": 2, "schedule_batch": 2, "drain": 2, "lifecycle": 2, "cancel": 2, "reschedule": 2,
		"lateness_p50": 2, "lateness_p90": 2, "lateness_p99": 2, "lateness_p999": 2, "lateness_max": 2,
		"lateness_handler_p50": 2, "lateness_handler_p90": 2, "lateness_handler_p99": 2, "lateness_handler_p999": 2, "lateness_handler_max": 2,
		"herd_first": 2, "herd_half": 2, "herd_last": 2, "herd_against_drain": 2,
		"herd_other_p50": 2, "herd_other_p99": 2, "herd_other_max": 2, "herd_other_count": 2,
	}
	for _, n := range o.Backlog {
		for _, name := range []string{"schedule", "claim", "ack", "reschedule", "cancel"} {
			want[fmt.Sprintf("backlog_%s %d", name, n)] = 2
		}
		want[fmt.Sprintf("backlog_memory %d", n)] = 1
	}
	for _, f := range r.Figures {
		name := f.Name
		if f.Backlog > 0 {
			name = fmt.Sprintf("%s %d", name, f.Backlog)
		}
		if want[name] != len(f.Values) {
			t.Errorf("%s has %d values, want %d", name, len(f.Values), want[name])
		}
		delete(want, name)
		if f.Min > f.Median || f.Median > f.Max {
			t.Errorf("%s: %v not within %v and %v", name, f.Median, f.Min, f.Max)
		}
		// Nothing is free, but nobody may be late by less than a microsecond, and no
		// other task may have come due while the herd went.
		if f.Min <= 0 && f.Unit != ms && f.Unit != "tasks" || f.Min < 0 {
			t.Errorf("%s: %v %s", name, f.Min, f.Unit)
		}
		if f.Label == "" || f.Unit == "" || f.Job == "" {
			t.Errorf("%s lacks what it is: %+v", name, f)
		}
	}
	for name := range want {
		t.Errorf("no figure %s", name)
	}
	for _, q := range []string{"lateness", "lateness_handler", "herd"} {
		p50, max := r.Find(q+"_p50", 0), r.Find(q+"_max", 0)
		if p50 != nil && p50.Median > max.Median {
			t.Errorf("%s: p50 %v above the maximum %v", q, p50.Median, max.Median)
		}
	}
	if first, half, last := r.Find("herd_first", 0), r.Find("herd_half", 0), r.Find("herd_last", 0); first.Min > half.Min || half.Max > last.Max {
		t.Errorf("herd: first %v, half %v, last %v", first.Values, half.Values, last.Values)
	}
	// Two windows of 100 ms at 1,000 a second; the warm-up is not in them.
	for _, d := range r.Distributions {
		if d.Count+d.Early != 200 {
			t.Errorf("%s: %d and %d early, want 200", d.Name, d.Count, d.Early)
		}
	}
	if d := r.Distributions[0]; d.Early != 0 || d.Count != 200 {
		t.Errorf("by the store's clock %d were early", d.Early)
	}
	if len(r.Skipped) != 0 {
		t.Errorf("left out: %v", r.Skipped)
	}
}

// checkLeftAlone wants nothing in the queues of a run, and everything in all others.
func checkLeftAlone(t *testing.T, st store.Store) {
	t.Helper()
	ctx := context.Background()
	names, err := st.Queues(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		s, err := st.Stats(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, QueuePrefix) {
			if s != (store.Stats{}) {
				t.Errorf("left in %s: %+v", name, s)
			}
		} else if name != "orders" || s.Scheduled != 1 {
			t.Errorf("queue %s: %+v", name, s)
		}
	}
}

// TestInterrupted: wherever a run is ended, its queues are empty afterwards, and
// what was measured is reported.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, after := range []int64{1, 7, 14, 20, 23, 27} {
		st := memstore.New(nil)
		ctx, cancel := context.WithCancel(t.Context())
		o := small()
		o.Progress = func(done, _ int64, _ string) {
			if done >= after {
				cancel()
			}
		}
		r, err := Run(ctx, keptOpen{st}, o)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after step %d: %v", after, err)
		}
		if after > 3 && len(r.Figures) == 0 {
			t.Errorf("after step %d: no figures", after)
		}
		names, _ := st.Queues(t.Context())
		for _, name := range names {
			if s, err := st.Stats(t.Context(), name); err != nil || s != (store.Stats{}) {
				t.Errorf("after step %d, left in %s: %+v, %v", after, name, s, err)
			}
		}
		cancel()
		st.Close()
	}
}

// modest is a store that can not do what a message broker can not do.
// sluggish carries calls out after all though their callers have gone, and some time
// later.
type sluggish struct{ store.Store }

func (s *sluggish) Close() error { return nil }

func (s *sluggish) Schedule(ctx context.Context, tasks []store.NewTask) ([]store.Result, error) {
	time.Sleep(50 * time.Millisecond)
	return s.Store.Schedule(context.WithoutCancel(ctx), tasks)
}

// What was still on its way when a run was interrupted is taken away too.
func TestInterruptedWithCallsOnTheirWay(t *testing.T) {
	st := memstore.New(nil)
	defer st.Close()
	for range 5 {
		o := small()
		o.Jobs, o.Goroutines, o.Length, o.Tasks = []Job{Schedule}, []int{64}, time.Minute, 100_000
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		if _, err := Run(ctx, &sluggish{st}, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want that it was cancelled", err)
		}
		cancel()
		time.Sleep(200 * time.Millisecond)
		checkLeftAlone(t, st)
	}
}

type modest struct {
	store.Store
	purged atomic.Int64
}

func (m *modest) Capabilities() store.Capabilities {
	c := m.Store.Capabilities()
	c.Name, c.Cancel, c.Reschedule, c.Purge = "modest", false, false, false
	return c
}

func (m *modest) Purge(context.Context, string, store.State) (int, error) {
	m.purged.Add(1)
	return 0, store.Unsupported("modest", "purge")
}

func TestSkips(t *testing.T) {
	t.Parallel()
	st := memstore.New(nil)
	defer st.Close()
	m := &modest{Store: keptOpen{st}}
	o := small()
	// Each that scheduled far ahead has to wait for it.
	o.Jobs = []Job{Schedule, Cancel, Reschedule, Drain, Backlog}
	o.Goroutines, o.Repeats = []int{8}, 1
	r, err := Run(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	var left []Job
	for _, s := range r.Skipped {
		left = append(left, s.Job)
		if !strings.Contains(s.Why, "the modest store can not ") {
			t.Errorf("%s: %s", s.Job, s.Why)
		}
	}
	if !slices.Equal(left, []Job{Cancel, Reschedule, Backlog}) || r.Find("drain", 0) == nil || r.Find("schedule_batch", 0) == nil {
		t.Errorf("left out %v, measured %d figures", left, len(r.Figures))
	}
	if n := m.purged.Load(); n != 0 {
		t.Errorf("%d purges", n)
	}
	names, _ := st.Queues(t.Context())
	for _, name := range names {
		if s, err := st.Stats(t.Context(), name); err != nil || s != (store.Stats{}) {
			t.Errorf("left in %s: %+v, %v", name, s, err)
		}
	}
}

// TestForeignQueue: a queue with something in it is not this run's, whatever it is
// called.
func TestForeignQueue(t *testing.T) {
	st := memstore.New(nil)
	defer st.Close()
	o := small()
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	r := &runner{Options: o, store: st, caps: st.Capabilities()}
	r.queues = newQueues(r)
	name := QueuePrefix + "drain-" + r.queues.run
	if _, err := st.Schedule(t.Context(), []store.NewTask{{Queue: name, ID: "theirs", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	r.client = duetime.NewClient(keptOpen{st}, nil)
	defer r.client.Close()
	if _, err := r.queues.open(t.Context(), "drain"); err == nil || !strings.Contains(err.Error(), "left alone") {
		t.Errorf("opening it: %v", err)
	}
	for _, other := range []string{name, "orders", QueuePrefix + "drain-0000"} {
		if err := r.queues.empty(t.Context(), other); err == nil {
			t.Errorf("%s was emptied", other)
		}
	}
	if s, _ := st.Stats(t.Context(), name); s.Scheduled != 1 {
		t.Errorf("it has %+v", s)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		want string
		o    Options
	}{
		{"job", Options{Jobs: []Job{"juggle"}}},
		{"backlog", Options{Backlog: []int{5000, 2000}}},
		{"backlog", Options{Backlog: []int{10}}},
		{"goroutines", Options{Goroutines: []int{0}}},
		{"repeats", Options{Repeats: 1000}},
		{"batch", Options{Batch: store.MaxBatch + 1}},
		{"window", Options{Window: time.Microsecond}},
		{"length", Options{Length: -1}},
		{"payload", Options{Payload: 1 << 30}},
	} {
		st := memstore.New(nil)
		_, err := Run(t.Context(), st, c.o)
		var input *store.InputError
		if !errors.As(err, &input) || input.Field != c.want {
			t.Errorf("%+v: %v, want one about %s", c.o, err, c.want)
		}
		if _, err := st.Queues(t.Context()); !errors.Is(err, store.ErrClosed) {
			t.Errorf("the store was not closed: %v", err)
		}
	}
	if err := (Options{}).Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// TestPercentiles compares with what sorting says.
func TestPercentiles(t *testing.T) {
	h := NewHistogram()
	var list []float64
	for i := range 10_000 {
		d := time.Duration(i*i) * time.Microsecond / 10 // to 10 s, dense at the low end
		h.Add(d)
		list = append(list, float64(d.Microseconds())/1000)
	}
	h.Add(-time.Millisecond)
	h.Add(-time.Nanosecond)
	if h.Count() != 10_000 || h.Early() != 2 {
		t.Errorf("%d counted, %d early", h.Count(), h.Early())
	}
	for _, p := range []float64{1, 10, 50, 90, 99, 99.9, 99.99, 100} {
		want := list[int(math.Ceil(p/100*10_000))-1]
		if got := h.At(p); math.Abs(got-want) > want/500+0.001 {
			t.Errorf("p%g is %v, want %v", p, got, want)
		}
	}
	other := NewHistogram()
	other.Add(2 * maxLateness) // cut
	other.Merge(h)
	if other.Count() != 10_001 || other.Early() != 2 || math.Abs(other.At(100)-float64(maxLateness.Milliseconds())) > 5000 {
		t.Errorf("merged: %d, %d early, most %v", other.Count(), other.Early(), other.At(100))
	}
	d := h.Distribution(Lateness, "x", "X")
	if d.Count != 10_000 || d.Early != 2 || len(d.Points) != len(percents)-1 || d.Points[3].Percent != 50 || d.Points[3].MS != h.At(50) {
		t.Errorf("%+v", d)
	}
	few := NewHistogram()
	for i := range 200 {
		few.Add(time.Duration(i) * time.Millisecond)
	}
	if d := few.Distribution(Lateness, "x", "X"); d.Points[len(d.Points)-2].Percent != 99.5 || d.Points[len(d.Points)-1].Percent != 100 {
		t.Errorf("of 200: %+v", d.Points)
	}
	if d := NewHistogram().Distribution(Lateness, "x", "X"); d.Points == nil || len(d.Points) != 0 {
		t.Errorf("of nothing: %+v", d)
	}
}

func TestSummarize(t *testing.T) {
	for _, c := range []struct{ values, want []float64 }{
		{[]float64{3, 1, 2}, []float64{2, 1, 3}},
		{[]float64{4, 1, 2, 3}, []float64{2.5, 1, 4}},
		{[]float64{7}, []float64{7, 7, 7}},
	} {
		f := Figure{Values: c.values}
		f.summarize()
		if got := []float64{f.Median, f.Min, f.Max}; !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}

// TestSchema: programs read the report, so nothing that it has may change its name,
// and what is added is added here.
func TestSchema(t *testing.T) {
	o := small()
	_ = o.fill()
	r := newReport(&o, memstore.New(nil).Capabilities())
	r.Figures = []Figure{{Job: Backlog, Name: "n", Backlog: 1, Values: []float64{1}}}
	r.Distributions = []Distribution{{Points: []Quantile{{50, 1}}}}
	r.Skipped = []Skipped{{Cancel, "why"}}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	var paths []string
	walk("", v, &paths)
	slices.Sort(paths)
	want := strings.Fields(`
		date:string
		distributions[].count:number distributions[].early:number distributions[].job:string distributions[].label:string
		distributions[].name:string distributions[].points[].ms:number distributions[].points[].percent:number
		durability:string
		figures[].backlog:number figures[].job:string figures[].label:string figures[].max:number figures[].median:number
		figures[].min:number figures[].name:string figures[].unit:string figures[].values[]:number
		machine.arch:string machine.cpu:string machine.cpus:number machine.go:string machine.os:string
		seconds:number
		settings.batch:number settings.herd:number settings.id_bytes:number settings.length_seconds:number
		settings.payload_bytes:number settings.rate:number settings.repeats:number settings.tasks:number
		settings.window_seconds:number settings.workers:number
		skipped[].job:string skipped[].why:string
		store:string version:number`)
	if !slices.Equal(paths, want) {
		t.Errorf("the schema is\n%s\nwant\n%s", strings.Join(paths, "\n"), strings.Join(want, "\n"))
	}
	if r.Settings.IDLength != 20 {
		t.Errorf("ids of %d bytes", r.Settings.IDLength)
	}
}

func walk(path string, v any, paths *[]string) {
	switch x := v.(type) {
	case map[string]any:
		for k, v := range x {
			walk(strings.TrimPrefix(path+"."+k, "."), v, paths)
		}
	case []any:
		walk(path+"[]", x[0], paths)
	case float64:
		*paths = append(*paths, path+":number")
	case string:
		*paths = append(*paths, path+":string")
	}
}

func TestCharts(t *testing.T) {
	r := &Report{Store: "x"}
	if c := r.Charts(); len(c) != 0 {
		t.Errorf("of nothing: %d charts", len(c))
	}
	h := NewHistogram()
	for i := range 1000 {
		h.Add(time.Duration(i) * time.Millisecond)
	}
	r.Distributions = []Distribution{h.Distribution(Lateness, "lateness", "all of them")}
	for _, n := range []int{1000, 10_000} {
		r.Figures = append(r.Figures, Figure{Job: Backlog, Unit: perTask, Label: "claim", Backlog: n, Median: 5})
	}
	charts := r.Charts()
	if len(charts) != 2 || charts[0].File != "lateness.svg" || charts[1].File != "backlog.svg" {
		t.Fatalf("%d charts", len(charts))
	}
	for i, want := range []string{"all of them", "claim"} {
		if !strings.Contains(string(charts[i].SVG), want) || !strings.Contains(string(charts[i].SVG), "<polyline") {
			t.Errorf("%s: %s", charts[i].File, charts[i].SVG)
		}
	}
}
