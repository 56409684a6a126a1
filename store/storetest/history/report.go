package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// Kind is a kind of fault.
type Kind string

// What can be wrong.
const (
	Lost        Kind = "lost"             // scheduled, never done or cancelled, and not there at the end
	Early       Kind = "early"            // handed out before it was due
	Repeated    Kind = "repeated"         // handed out again with no cause: its lease had not run out
	Hidden      Kind = "hidden"           // handed out again after a lease, without being counted as lost
	AfterCancel Kind = "run after cancel" // or cancelled while it ran, which is the same seen from the other side
	StaleActed  Kind = "stale acted"      // a receipt changed something after its lease was over
	Returned    Kind = "returned"         // done or cancelled, and there at the end
	Unscheduled Kind = "unscheduled"      // handed out or there at the end, but nobody scheduled it
	Altered     Kind = "altered"          // handed out with a payload that nobody gave it
)

// Problem is a fault that was found.
type Problem struct {
	Kind Kind
	store.Key
	Text string
}

func (p Problem) String() string {
	return fmt.Sprintf("%s: task %q of %q: %s", p.Kind, p.ID, p.Queue, p.Text)
}

// Repeat is a task that was handed out again because its lease had run out, which
// is allowed, or because the store lost what it had not promised to keep.
type Repeat struct {
	store.Key
	First, Second store.Receipt
	Held          string // the worker that had it first
}

// Report is what Check found.
type Report struct {
	Tasks     int // ids that were scheduled, as far as is known
	Runs      int // tasks handed out
	Done      int // leases acked, and at-most-once runs
	Cancelled int
	Unknown   int // items of calls whose answer never came
	Repeats   []Repeat
	Problems  []Problem

	// HasFinal says that the log ends with what was left in the store, so that
	// what is lost is known.
	HasFinal bool

	lateness []time.Duration
}

// Count is how many problems of a kind there are.
func (r *Report) Count(k Kind) int {
	n := 0
	for _, p := range r.Problems {
		if p.Kind == k {
			n++
		}
	}
	return n
}

// Lateness is a quantile, from 0 to 1, of how late tasks were handed out for the
// first time since they were due. A task that was due before it was scheduled
// counts from its due time too.
func (r *Report) Lateness(quantile float64) time.Duration {
	if len(r.lateness) == 0 {
		return 0
	}
	i := int(quantile * float64(len(r.lateness)))
	return r.lateness[min(max(i, 0), len(r.lateness)-1)]
}

// OK says that nothing is wrong.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tasks, %d runs, %d done, %d cancelled, %d repeated after a lease, %d answers unknown, lateness p50 %v p99 %v",
		r.Tasks, r.Runs, r.Done, r.Cancelled, len(r.Repeats), r.Unknown, r.Lateness(.5), r.Lateness(.99))
	if !r.HasFinal {
		b.WriteString("; what is lost is not known: the log has no final line")
	}
	for i, p := range r.Problems {
		if i == 20 {
			fmt.Fprintf(&b, "\n… and %d more problems", len(r.Problems)-i)
			break
		}
		b.WriteString("\n" + p.String())
	}
	return b.String()
}

func (r *Report) problem(k Kind, key store.Key, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{k, key, fmt.Sprintf(format, args...)})
}

func (r *Report) finish() {
	slices.Sort(r.lateness)
	slices.SortStableFunc(r.Problems, func(a, b Problem) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
}
