// Package history keeps a log of what many processes did with a store, and says
// afterwards what the store did wrong: what was lost, early, repeated without
// cause, run after it was cancelled, or changed by a stale worker.
//
// [Record] wraps a store so that every call is logged twice, when it begins and
// when it has its answer, so that a log says what is known of a call whose
// process was killed in between: that it may have happened, or may yet. Logs are
// lines of JSON; processes may write to one file or to one each. [Check] reads
// them all together.
//
// The processes must share a wall clock, that is, run on one machine.
package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

// Line is one line of a log: a call that begins, or has ended.
type Line struct {
	Call  string // unique to the call; the same when it begins and ends
	Op    string // "schedule", "cancel", "reschedule", "claim", "settle", "redrive", "purge", "crash" or "final"
	End   bool   `json:",omitzero"`
	At    int64  // the writer's clock in Unix nanoseconds, always rising within a process
	Clock time.Time
	Err   string `json:",omitzero"` // the call returned an error: its outcome is unknown
	Items []Item `json:",omitzero"`
}

// Item is one task's part in a call.
type Item struct {
	Queue      string        `json:",omitzero"`
	ID         string        `json:",omitzero"`
	Action     string        `json:",omitzero"` // of a settlement
	Receipt    store.Receipt `json:",omitzero"`
	Worker     string        `json:",omitzero"`
	Force      bool          `json:",omitzero"` // of a cancel
	AtMostOnce bool          `json:",omitzero"` // of a claim
	Outcome    string        `json:",omitzero"`
	Due        time.Time     `json:",omitzero"` // before the answer: the earliest that it can be
	Sum        uint32        `json:",omitzero"` // a checksum of the payload

	// Of a claim, and of a lease that was extended.
	ClaimedAt  time.Time     `json:",omitzero"`
	LeaseUntil time.Time     `json:",omitzero"`
	Ahead      time.Duration `json:",omitzero"` // by how much it may be before the due time
	Generation int           `json:",omitzero"`
	Failures   int           `json:",omitzero"`
	Lost       int           `json:",omitzero"`

	Count int `json:",omitzero"` // of redrive and purge
}

// Log is where calls are recorded. It is safe for use by many goroutines.
type Log struct {
	process string
	clock   func() time.Time

	mu    sync.Mutex
	file  io.WriteCloser // nil: lines are kept
	lines []Line
	last  int64 // the At of the last line
	calls int
	err   error
}

// NewLog keeps its lines in memory. The clock is the store's, as far as this
// process knows it; nil means time.Now.
func NewLog(process string, clock func() time.Time) *Log {
	if clock == nil {
		clock = time.Now
	}
	return &Log{process: process, clock: clock}
}

// Open appends to a file, which other processes may append to too. The name of
// the process must be unique among all that are checked together, restarts
// included. A line is in the file before the call that it is about goes on, so
// that it outlives a kill of the process.
func Open(path, process string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := NewLog(process, nil)
	l.file = f
	return l, nil
}

// Close ends a log, and says whether any line could not be written.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.err = errors.Join(l.err, l.file.Close())
		l.file = nil
	}
	return l.err
}

// Lines returns what a log in memory has.
func (l *Log) Lines() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// add stamps a line and writes it. An empty Call gets a new name.
func (l *Log) add(line Line) (call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line.Call == "" {
		l.calls++
		line.Call = fmt.Sprintf("%s-%d", l.process, l.calls)
	}
	// A clock that stands still, such as that of testing/synctest, or that
	// jumps back must not turn the order of this process's calls round.
	l.last = max(l.last+1, time.Now().UnixNano())
	line.At, line.Clock = l.last, l.clock().UTC()
	if l.file == nil {
		l.lines = append(l.lines, line)
		return line.Call
	}
	b, err := json.Marshal(line)
	if err == nil {
		_, err = l.file.Write(append(b, '\n')) // one write: lines of several processes do not mix
	}
	l.err = errors.Join(l.err, err)
	return line.Call
}

// Crash says that the store itself has just been killed or lost power. Call it
// before the store is opened again.
func (l *Log) Crash() { l.add(Line{Op: "crash", End: true}) }

// Crashing says that what others go on without is about to be killed, and its answer
// that it is dead: those others may notice before whoever kills it knows.
func (l *Log) Crashing() (crashed func()) {
	all := []Item{{}} // of no task in particular
	call := l.add(Line{Op: "crash", Items: all})
	return func() { l.add(Line{Call: call, Op: "crash", End: true, Items: all}) }
}

// Read reads a log. A line that was cut off when its writer was killed is passed
// over, as the call that it is about had not begun, or its answer was not known.
func Read(r io.Reader) ([]Line, error) {
	var lines []Line
	br := bufio.NewReaderSize(r, 1<<20)
	for {
		text, err := br.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			var line Line
			if json.Unmarshal(text, &line) == nil {
				lines = append(lines, line)
			}
		}
		if err == io.EOF {
			return lines, nil
		}
	}
}

// ReadFiles reads several logs.
func ReadFiles(paths ...string) ([]Line, error) {
	var all []Line
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		lines, err := Read(f)
		_ = f.Close() // only read from
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, lines...)
	}
	return all, nil
}

// call is one item of a call, put together from its two lines.
type call struct {
	Item
	op         string
	start, end int64 // end is never where the answer is not known
	known      bool
	began      time.Time // the store's clock, as the caller knew it
	ended      time.Time // likewise; zero where it is not known
}

const never = math.MaxInt64

// mayPrecede says that a may have taken effect before b.
func (a *call) mayPrecede(b *call) bool { return a.start <= b.end }

// precedes says that a has taken effect before b, if it has at all.
func (a *call) precedes(b *call) bool { return a.end < b.start }

// is says that a call has one of the outcomes.
func (a *call) is(outcomes ...store.Outcome) bool {
	if !a.known {
		return false
	}
	for _, o := range outcomes {
		if a.Outcome == o.String() {
			return true
		}
	}
	return false
}

// mayBe says that a call has one of the outcomes, or may have.
func (a *call) mayBe(outcomes ...store.Outcome) bool { return !a.known || a.is(outcomes...) }

// pair puts the lines of each call together, in order of time.
func pair(lines []Line) []*call {
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.At, b.At) })
	var calls []*call
	open := make(map[string][]*call)
	for i := range lines {
		line := &lines[i]
		if !line.End {
			for _, item := range line.Items {
				c := &call{Item: item, op: line.Op, start: line.At, end: never, began: line.Clock}
				calls = append(calls, c)
				open[line.Call] = append(open[line.Call], c)
			}
			continue
		}
		begun := open[line.Call]
		delete(open, line.Call)
		switch {
		case line.Err != "":
			// The answer was lost. What was asked may be on its way still.
		case begun == nil && (line.Op == "crash" || line.Op == "final"): // these have only an end
			for _, item := range append(line.Items, Item{}) {
				calls = append(calls, &call{Item: item, op: line.Op, start: line.At, end: line.At, known: true, began: line.Clock, ended: line.Clock})
			}
		case line.Op == "claim":
			// What began is requests, what ended is leases.
			var start *call
			for _, c := range begun {
				c.known, c.end, c.ended = true, line.At, line.Clock
				c.op = "claim request"
				start = c
			}
			for _, item := range line.Items {
				c := &call{Item: item, op: "claim", start: line.At, end: line.At, known: true, began: line.Clock, ended: line.Clock}
				if start != nil {
					c.start, c.began = start.start, start.began
				}
				calls = append(calls, c)
			}
		case len(begun) == len(line.Items):
			for j, c := range begun {
				c.Item, c.known, c.end, c.ended = line.Items[j], true, line.At, line.Clock
			}
		}
	}
	for _, c := range calls {
		if c.op == "claim" && !c.known {
			c.op = "claim request"
		}
	}
	return calls
}
