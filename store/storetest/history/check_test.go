package history_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/faultstore"
	"github.com/duetime/duetime/store/memstore"
	"github.com/duetime/duetime/store/storetest/history"
)

var start = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// script writes a history by hand: each method is a call, at its own moment.
type script struct {
	lines []history.Line
	at    int64
	n     int
}

func (s *script) call(op string, begin, end history.Item, answered bool) {
	s.n++
	id := fmt.Sprint("c", s.n)
	s.at += 10
	clock := start.Add(time.Duration(s.at) * time.Second)
	s.lines = append(s.lines, history.Line{Call: id, Op: op, At: s.at, Clock: clock, Items: []history.Item{begin}})
	if answered {
		s.lines = append(s.lines, history.Line{Call: id, Op: op, End: true, At: s.at + 1, Clock: clock, Items: []history.Item{end}})
	}
}

// sec is a moment: a call at At 10 is at second 10.
func sec(n int64) time.Time { return start.Add(time.Duration(n) * time.Second) }

func (s *script) schedule(outcome store.Outcome, due int64) *script {
	i := history.Item{Queue: "q", ID: "1", Due: sec(due), Sum: 7}
	end := i
	end.Outcome = outcome.String()
	s.call("schedule", i, end, true)
	return s
}

func (s *script) cancel(outcome store.Outcome, force bool) *script {
	i := history.Item{Queue: "q", ID: "1", Force: force}
	end := i
	end.Outcome = outcome.String()
	s.call("cancel", i, end, true)
	return s
}

// claim is of a lease of 15 s, at the next multiple of 10 s.
func (s *script) claim(receipt string, due int64, lost int) *script {
	now := sec(s.at + 10)
	s.call("claim", history.Item{Queue: "q", Worker: receipt}, history.Item{
		Queue: "q", ID: "1", Receipt: store.Receipt(receipt), Worker: receipt, Due: sec(due), Sum: 7,
		ClaimedAt: now, LeaseUntil: now.Add(15 * time.Second), Lost: lost,
	}, true)
	return s
}

func (s *script) settle(receipt string, action store.Action, outcome store.Outcome, answered bool) *script {
	i := history.Item{Queue: "q", ID: "1", Receipt: store.Receipt(receipt), Action: action.String()}
	end := i
	end.Outcome = outcome.String()
	if outcome == store.Retrying {
		end.Due = sec(s.at + 10)
	}
	if outcome == store.Extended {
		end.LeaseUntil = sec(s.at + 10 + 100)
	}
	s.call("settle", i, end, answered)
	return s
}

func (s *script) ack(receipt string) *script { return s.settle(receipt, store.Ack, store.Acked, true) }

func (s *script) pause(n int64) *script {
	s.at += n
	return s
}

func (s *script) crash() *script {
	s.at += 10
	s.lines = append(s.lines, history.Line{Call: fmt.Sprint("crash", s.at), Op: "crash", End: true, At: s.at})
	return s
}

// crashing begins a crash, and crashed ends it.
func (s *script) crashing() *script {
	s.at += 10
	s.lines = append(s.lines, history.Line{Call: "crash", Op: "crash", At: s.at, Items: []history.Item{{}}})
	return s
}

func (s *script) crashed() *script {
	s.at += 10
	s.lines = append(s.lines, history.Line{Call: "crash", Op: "crash", End: true, At: s.at, Items: []history.Item{{}}})
	return s
}

func (s *script) final(ids ...string) *script {
	s.at += 10
	line := history.Line{Call: "final", Op: "final", End: true, At: s.at}
	for _, id := range ids {
		line.Items = append(line.Items, history.Item{Queue: "q", ID: id})
	}
	s.lines = append(s.lines, line)
	return s
}

func begin() *script { return &script{} }

func TestWhatIsFound(t *testing.T) {
	forgets := history.Options{Forgets: true}
	for name, c := range map[string]struct {
		script *script
		opts   history.Options
		want   history.Kind // empty: nothing is wrong
	}{
		"done":                    {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").final(), history.Options{}, ""},
		"still there":             {begin().schedule(store.Created, 9999).final("1"), history.Options{}, ""},
		"lost before any claim":   {begin().schedule(store.Created, 0).final(), history.Options{}, history.Lost},
		"lost by a claim":         {begin().schedule(store.Created, 0).claim("a", 0, 0).final(), history.Options{}, history.Lost},
		"lost by a retry":         {begin().schedule(store.Created, 0).claim("a", 0, 0).settle("a", store.Retry, store.Retrying, true).final(), history.Options{}, history.Lost},
		"lost though it existed":  {begin().schedule(store.Exists, 0).final(), history.Options{}, history.Lost},
		"lost in its second life": {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").schedule(store.Created, 0).final(), history.Options{}, history.Lost},
		"the ack had no answer":   {begin().schedule(store.Created, 0).claim("a", 0, 0).settle("a", store.Ack, 0, false).final(), history.Options{}, ""},
		"the ack had no answer, and did not arrive": {
			begin().schedule(store.Created, 0).claim("a", 0, 0).settle("a", store.Ack, 0, false).pause(20).claim("b", 0, 1).ack("b").final(), history.Options{}, "",
		},
		"cancelled":                {begin().schedule(store.Created, 9999).cancel(store.Cancelled, false).final(), history.Options{}, ""},
		"cancelled, still there":   {begin().schedule(store.Created, 9999).cancel(store.Cancelled, false).final("1"), history.Options{}, history.Returned},
		"done, still there":        {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").final("1"), history.Options{}, history.Returned},
		"done, then a crash":       {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").crash().final("1"), forgets, ""},
		"nobody scheduled it":      {begin().final("1"), history.Options{}, history.Unscheduled},
		"nobody scheduled its run": {begin().claim("a", 0, 0).ack("a").final(), history.Options{}, history.Unscheduled},
		"early by its own due":     {begin().schedule(store.Created, 30).claim("a", 30, 0).ack("a").final(), history.Options{}, history.Early},
		"early by what was asked":  {begin().schedule(store.Created, 30).claim("a", 0, 0).ack("a").final(), history.Options{}, history.Early},
		"early after a replace":    {begin().schedule(store.Created, 0).schedule(store.Replaced, 99).claim("a", 0, 0).ack("a").final(), history.Options{}, history.Early},
		"repeated after its lease": {
			begin().schedule(store.Created, 0).claim("a", 0, 0).pause(10).claim("b", 0, 1).ack("b").settle("a", store.Ack, store.Stale, true).final(), history.Options{}, "",
		},
		"repeated before its lease ran out": {begin().schedule(store.Created, 0).claim("a", 0, 0).claim("b", 0, 1).ack("b").final(), history.Options{}, history.Repeated},
		"repeated while it was extended": {
			begin().schedule(store.Created, 0).claim("a", 0, 0).settle("a", store.Extend, store.Extended, true).pause(10).claim("b", 0, 1).ack("b").final(), history.Options{}, history.Repeated,
		},
		"repeated though it was done":              {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").pause(99).claim("b", 0, 1).ack("b").final(), history.Options{}, history.Repeated},
		"repeated in a crash that forgets":         {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").crash().claim("b", 0, 0).ack("b").final(), forgets, ""},
		"repeated while a crash goes on":           {begin().schedule(store.Created, 0).claim("a", 0, 0).crashing().claim("b", 0, 0).ack("b").crashed().final(), forgets, ""},
		"repeated before a crash began":            {begin().schedule(store.Created, 0).claim("a", 0, 0).claim("b", 0, 0).ack("b").crashing().crashed().final(), forgets, history.Repeated},
		"repeated in a crash that must not forget": {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").crash().claim("b", 0, 0).ack("b").final(), history.Options{}, history.Repeated},
		"doubled in a crash that may double": {
			begin().schedule(store.Created, 0).claim("a", 0, 0).settle("a", store.Retry, store.Retrying, true).crash().claim("b", 30, 0).ack("b").claim("c", 30, 0).ack("c").final(), history.Options{Forgets: true, Doubles: history.DoublesGivenBack}, "",
		},
		"doubled in a crash that must not double": {
			begin().schedule(store.Created, 0).claim("a", 0, 0).settle("a", store.Retry, store.Retrying, true).crash().claim("b", 30, 0).ack("b").claim("c", 30, 0).ack("c").final(), forgets, history.Repeated,
		},
		"doubled without being given back": {
			begin().schedule(store.Created, 0).crash().claim("b", 0, 0).claim("c", 0, 0).ack("b").final(), history.Options{Forgets: true, Doubles: history.DoublesGivenBack}, history.Repeated,
		},
		"doubled in a crash that may double all": {
			begin().schedule(store.Created, 0).crash().claim("b", 0, 0).ack("b").claim("c", 0, 0).ack("c").final(), history.Options{Forgets: true, Doubles: history.DoublesAll}, "",
		},
		"repeated by a retry":                   {begin().schedule(store.Created, 0).claim("a", 0, 0).settle("a", store.Retry, store.Retrying, true).claim("b", 30, 0).ack("b").final(), history.Options{}, ""},
		"repeated by a retry without an answer": {begin().schedule(store.Created, 0).claim("a", 0, 0).settle("a", store.Retry, 0, false).claim("b", 0, 0).ack("b").final(), history.Options{}, ""},
		"repeated, but not counted":             {begin().schedule(store.Created, 0).claim("a", 0, 0).pause(10).claim("b", 0, 0).ack("b").final(), history.Options{}, history.Hidden},
		"scheduled anew":                        {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").schedule(store.Created, 0).claim("b", 0, 0).ack("b").final(), history.Options{}, ""},
		"run after cancel":                      {begin().schedule(store.Created, 0).cancel(store.Cancelled, false).claim("a", 0, 0).ack("a").final(), history.Options{}, history.AfterCancel},
		"cancelled, scheduled anew":             {begin().schedule(store.Created, 0).cancel(store.Cancelled, false).schedule(store.Created, 0).claim("a", 0, 0).ack("a").final(), history.Options{}, ""},
		"cancelled while it ran":                {begin().schedule(store.Created, 0).claim("a", 0, 0).cancel(store.Cancelled, false).final(), history.Options{}, history.AfterCancel},
		"cancelled by force":                    {begin().schedule(store.Created, 0).claim("a", 0, 0).cancel(store.Cancelled, true).settle("a", store.Ack, store.Stale, true).final(), history.Options{}, ""},
		"cancelled after its lease":             {begin().schedule(store.Created, 0).claim("a", 0, 0).pause(10).cancel(store.Cancelled, false).final(), history.Options{}, ""},
		"acked after a cancel":                  {begin().schedule(store.Created, 0).claim("a", 0, 0).cancel(store.Cancelled, true).ack("a").final(), history.Options{}, history.StaleActed},
		"acked after a replace":                 {begin().schedule(store.Created, 0).claim("a", 0, 0).schedule(store.Replaced, 0).ack("a").final(), history.Options{}, history.StaleActed},
		"acked twice":                           {begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").ack("a").final(), history.Options{}, history.StaleActed},
		"acked after its lease":                 {begin().schedule(store.Created, 0).claim("a", 0, 0).pause(30).ack("a").final(), history.Options{}, history.StaleActed},
		"acked while another had it": {
			begin().schedule(store.Created, 0).claim("a", 0, 0).pause(10).claim("b", 0, 1).ack("a").settle("b", store.Ack, store.Stale, true).final(), history.Options{Skew: time.Hour}, history.StaleActed,
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			r := history.Check(c.script.lines, c.opts)
			if c.want == "" && !r.OK() {
				t.Errorf("nothing is wrong, found %v", r)
			}
			if c.want != "" && r.Count(c.want) == 0 {
				t.Errorf("want %q, found %v", c.want, r)
			}
		})
	}
}

func TestAlteredPayload(t *testing.T) {
	s := begin().schedule(store.Created, 0).claim("a", 0, 0).ack("a").final()
	s.lines[3].Items[0].Sum++
	if r := history.Check(s.lines, history.Options{}); r.Count(history.Altered) != 1 {
		t.Errorf("found %v", r)
	}
}

// Of two calls at the same time either may have been first.
func TestOverlapIsNoFault(t *testing.T) {
	s := begin().schedule(store.Created, 0).cancel(store.Cancelled, false).schedule(store.Created, 0).claim("a", 0, 0).ack("a").final()
	// The second schedule lasts from before the cancel until after the claim.
	for i := range s.lines {
		if s.lines[i].Call == "c3" {
			s.lines[i].At = 15
			if s.lines[i].End {
				s.lines[i].At = 45
			}
		}
	}
	if r := history.Check(s.lines, history.Options{}); !r.OK() {
		t.Errorf("found %v", r)
	}
}

// A real store's history is clean, answers that were lost included, and it reads
// the same from files that were cut off.
func TestRecordedHistories(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	real := memstore.New(nil)
	faults := faultstore.New(real, faultstore.Random(3, 0.1,
		faultstore.Fault{FailAfter: faultstore.ErrInjected}, faultstore.Fault{FailBefore: faultstore.ErrInjected}))
	var files []string
	for p := range 3 {
		path := filepath.Join(dir, fmt.Sprint(p))
		files = append(files, path)
		log, err := history.Open(path, fmt.Sprint("p", p))
		if err != nil {
			t.Fatal(err)
		}
		st := history.Record(faults, log)
		for i := range 100 {
			id := fmt.Sprint(i % 40)
			_, err1 := st.Schedule(ctx, []store.NewTask{{Queue: "q", ID: id, Payload: []byte(id), Due: start.AddDate(-5, 0, 0)}})
			claims, err2 := st.Claim(ctx, []store.ClaimRequest{{Queue: "q", Max: 2, Lease: time.Hour, Worker: "w"}})
			var err3 error
			for _, r := range claims {
				for n, l := range r.Tasks {
					_, err3 = st.Settle(ctx, []store.Settlement{{Receipt: l.Receipt, Action: []store.Action{store.Ack, store.Release}[n]}})
				}
			}
			_, err4 := st.Cancel(ctx, []store.CancelRequest{{Queue: "q", ID: fmt.Sprint(i % 7), Force: true}})
			for _, err := range []error{err1, err2, err3, err4} {
				if err != nil && !errors.Is(err, faultstore.ErrInjected) {
					t.Fatal(err)
				}
			}
		}
		if p == 2 {
			if err := log.Final(ctx, real); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := history.ReadFiles(files...)
	if err != nil {
		t.Fatal(err)
	}
	r := history.Check(lines, history.Options{})
	if !r.OK() || !r.HasFinal || r.Tasks == 0 || r.Runs == 0 || r.Done == 0 || r.Cancelled == 0 || r.Unknown == 0 {
		t.Errorf("%v", r)
	}
	t.Log(r)

	// Without a line of the final list one is lost, if it was not done.
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	cut, err := history.Read(bytes.NewReader(b[:len(b)-5]))
	if err != nil || len(cut) != bytes.Count(b, []byte("\n"))-1 {
		t.Errorf("a log that was cut off has %d lines, %v; want all but the last of %d", len(cut), err, bytes.Count(b, []byte("\n")))
	}
	var line history.Line
	if err := json.Unmarshal(b[:bytes.IndexByte(b, '\n')], &line); err != nil || line.Op != "schedule" || line.End {
		t.Errorf("the first line is %+v, %v", line, err)
	}
}

func TestLateness(t *testing.T) {
	s := begin().schedule(store.Created, 15).claim("a", 15, 0).ack("a").final()
	r := history.Check(s.lines, history.Options{})
	if got := r.Lateness(.5); got != 5*time.Second {
		t.Errorf("late by %v, want 5s: %v", got, r)
	}
}
