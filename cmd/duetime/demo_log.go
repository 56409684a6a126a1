package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// demoLog records what happens and shows it: at once as JSON, and several times
// a second, what was alike together, for people.
type demoLog struct {
	w     io.Writer
	json  bool
	start time.Time

	mu      sync.Mutex
	all     []demoEvent
	due     map[string]time.Time
	pending []demoEvent // not shown yet
	err     error       // of the first write that failed

	ticking, ticked chan struct{}
	once            sync.Once
}

func newDemoLog(w io.Writer, json bool) *demoLog {
	l := &demoLog{
		w: w, json: json, start: time.Now(), due: make(map[string]time.Time),
		ticking: make(chan struct{}), ticked: make(chan struct{}),
	}
	go l.tick()
	return l
}

// tick shows what is pending, until stop.
func (l *demoLog) tick() {
	defer close(l.ticked)
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.ticking:
			return
		}
		l.mu.Lock()
		l.show()
		l.mu.Unlock()
	}
}

// stop shows what is pending and ends the showing. It may be called twice.
func (l *demoLog) stop() {
	l.once.Do(func() {
		close(l.ticking)
		<-l.ticked
		l.mu.Lock()
		l.show()
		l.mu.Unlock()
	})
}

func (l *demoLog) add(e demoEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
	if e.What == demoScheduled {
		l.due[e.ID] = e.Due
	}
	if l.json {
		l.write(printJSON(l.w, l.eventJSON(e)))
	} else if e.What != demoScheduled { // those are told of in one sentence
		l.pending = append(l.pending, e)
	}
}

func (l *demoLog) write(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *demoLog) eventJSON(e demoEvent) any {
	late := ""
	if e.What == demoRun {
		late = e.At.Sub(l.due[e.ID]).Round(time.Microsecond).String()
	}
	return struct {
		Event string `json:"event"`
		ID    string `json:"id"`
		At    string `json:"at"`
		DueAt string `json:"due_at"`
		Late  string `json:"late,omitempty"`
	}{e.What, e.ID, e.At.UTC().Format(time.RFC3339Nano), utc(l.due[e.ID]), late}
}

func (l *demoLog) events() []demoEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// say tells people something; there is nothing in it that is not in the events.
func (l *demoLog) say(format string, args ...any) {
	if l.json {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.show()
	l.line(fmt.Sprintf(format, args...))
}

func (l *demoLog) line(text string) {
	_, err := fmt.Fprintf(l.w, "%5.2f s  %s\n", time.Since(l.start).Seconds(), text)
	l.write(err)
}

// show prints what is pending: a line for each kind. The caller has the lock.
func (l *demoLog) show() {
	for _, what := range []string{demoPaid, demoRun} {
		var orders []string
		var latest time.Duration
		for _, e := range l.pending {
			if e.What != what {
				continue
			}
			text := e.ID
			if what == demoRun {
				late := e.At.Sub(l.due[e.ID])
				latest = max(latest, late)
				if late < time.Minute {
					text += " " + milliseconds(late) + " late"
				}
			}
			orders = append(orders, text)
		}
		const most = 6
		if len(orders) > most {
			orders = []string{orders[0], orders[1], orders[2], "…", fmt.Sprintf("%s (%d orders)", orders[len(orders)-1], len(orders))}
		}
		if latest > time.Minute {
			orders = append(orders, "late by "+span(latest.Milliseconds()))
		}
		if len(orders) > 0 {
			l.line(fmt.Sprintf("%-15s  %s", what, strings.Join(orders, ", ")))
		}
	}
	l.pending = l.pending[:0]
}

// finish prints the result.
func (l *demoLog) finish(r demoResult) error {
	l.stop()
	if l.json {
		l.write(printJSON(l.w, map[string]any{
			"run": r.Run, "cancelled": r.Cancelled, "early": r.Early, "repeated": r.Repeated, "lost": r.Lost, "disorder": r.Disorder,
			"lateness": map[string]any{"of": len(r.Late), "p50": r.percentile(0.5).String(), "p99": r.percentile(0.99).String()},
		}))
	} else {
		if r.Disorder > 0 {
			l.say("%s that were overdue did not run oldest first.", count(int64(r.Disorder), "order"))
		}
		l.say("Lateness below is that of the %d orders that came due while the worker ran.", len(r.Late))
		_, err := fmt.Fprintln(l.w, r.String())
		l.write(err)
	}
	if l.err != nil {
		return l.err
	}
	if !r.good() {
		return errReported
	}
	return nil
}
