package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// Options of a check.
type Options struct {
	// Forgets says that the store, when it crashes, may forget claims and
	// settlements, though not tasks: what was done shortly before may be done
	// again. The log must have a Crash line for each crash then.
	Forgets bool

	// Doubles says which tasks a crash may leave twice. Both run then.
	Doubles Doubles

	// Skew is how far the callers' clocks may be from the store's; 0 where both
	// are one machine's clock.
	Skew time.Duration
}

// Doubles says which tasks a crash may double.
type Doubles int

const (
	// NoDoubles: a task is there once, whatever happens.
	NoDoubles Doubles = iota
	// DoublesGivenBack: those that were given back before it (retry, snooze,
	// release), as a new message and the old one whose removal was forgotten.
	DoublesGivenBack
	// DoublesAll: any that was there, as in a broker that hands messages from queue
	// to queue at least once.
	DoublesAll
)

// task is all that is known about one queue and id.
type task struct {
	store.Key
	schedules, cancels, moves, claims []*call
	settles                           map[store.Receipt][]*call
	left                              bool // in the store at the end
}

type checker struct {
	Options
	report  *Report
	tasks   map[store.Key]*task
	queues  map[string]*queueCalls
	crashes []*call
}

// queueCalls are those that are about a whole queue.
type queueCalls struct{ redrives, purges, blindClaims []*call }

// Check says what was wrong in what the lines tell. What it can not know it
// takes to be right: a call whose answer never came may have happened at any time
// after it began, or not at all, and of calls that overlap either may have been
// first.
func Check(lines []Line, opts Options) *Report {
	c := &checker{Options: opts, report: &Report{}, tasks: make(map[store.Key]*task), queues: make(map[string]*queueCalls)}
	c.sort(pair(lines))
	keys := make([]store.Key, 0, len(c.tasks))
	for k := range c.tasks {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b store.Key) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.ID, b.ID)) })
	for _, k := range keys {
		t := c.tasks[k]
		t.sortClaims()
		c.early(t)
		c.afterCancel(t)
		c.staleActed(t)
		c.repeated(t)
		c.altered(t)
		c.conserved(t)
	}
	c.report.finish()
	return c.report
}

func (c *checker) task(i *Item) *task {
	k := store.Key{Queue: i.Queue, ID: i.ID}
	t := c.tasks[k]
	if t == nil {
		t = &task{Key: k, settles: make(map[store.Receipt][]*call)}
		c.tasks[k] = t
	}
	return t
}

func (c *checker) queue(name string) *queueCalls {
	if c.queues[name] == nil {
		c.queues[name] = &queueCalls{}
	}
	return c.queues[name]
}

// sort puts each call with the task or queue that it is about, and counts.
func (c *checker) sort(calls []*call) {
	r := c.report
	for _, x := range calls {
		if !x.known && x.op != "claim request" {
			r.Unknown++
		}
		if x.is(store.Refused) {
			continue
		}
		switch x.op {
		case "schedule":
			t := c.task(&x.Item)
			if x.is(store.Created) && len(t.schedules) == 0 {
				r.Tasks++
			}
			t.schedules = append(t.schedules, x)
		case "cancel":
			if x.is(store.Cancelled) {
				r.Cancelled++
			}
			t := c.task(&x.Item)
			t.cancels = append(t.cancels, x)
		case "reschedule":
			t := c.task(&x.Item)
			t.moves = append(t.moves, x)
		case "claim":
			r.Runs++
			if x.AtMostOnce {
				r.Done++
			}
			t := c.task(&x.Item)
			t.claims = append(t.claims, x)
			if x.Failures == 0 && x.Lost == 0 {
				r.lateness = append(r.lateness, x.ClaimedAt.Sub(x.Due))
			}
		case "claim request":
			if !x.known && x.AtMostOnce {
				q := c.queue(x.Queue)
				q.blindClaims = append(q.blindClaims, x)
			}
		case "settle":
			if x.is(store.Acked) {
				r.Done++
			}
			if x.ID != "" {
				t := c.task(&x.Item)
				t.settles[x.Receipt] = append(t.settles[x.Receipt], x)
			}
		case "redrive":
			q := c.queue(x.Queue)
			q.redrives = append(q.redrives, x)
		case "purge":
			q := c.queue(x.Queue)
			q.purges = append(q.purges, x)
		case "crash":
			c.crashes = append(c.crashes, x)
		case "final":
			r.HasFinal = true
			if x.ID != "" {
				c.task(&x.Item).left = true
			}
		}
	}
}

// early compares each hand-out with the due times that may have counted then.
func (c *checker) early(t *task) {
	var setters []*call
	for _, s := range t.schedules {
		if s.mayBe(store.Created, store.Replaced) {
			setters = append(setters, s)
		}
	}
	for _, m := range t.moves {
		if m.mayBe(store.Rescheduled) {
			setters = append(setters, m)
		}
	}
	for _, ss := range t.settles {
		for _, s := range ss {
			if s.is(store.Retrying, store.Snoozed) || !s.known && (s.Action == "retry" || s.Action == "snooze") {
				setters = append(setters, s)
			}
		}
	}
	for _, l := range t.claims {
		at := l.ClaimedAt.Add(l.Ahead)
		if at.Before(l.Due) {
			c.report.problem(Early, t.Key, "handed out at %v, %v before it was due", l.ClaimedAt, l.Due.Sub(l.ClaimedAt))
			continue
		}
		if !slices.ContainsFunc(t.schedules, func(s *call) bool { return s.mayPrecede(l) }) {
			c.report.problem(Unscheduled, t.Key, "handed out at %v", l.ClaimedAt)
			continue
		}
		if slices.ContainsFunc(c.queue(t.Queue).redrives, func(r *call) bool { return r.mayPrecede(l) }) {
			continue // due from then on
		}
		earliest, some := time.Time{}, false
		for _, s := range setters {
			if !s.mayPrecede(l) || slices.ContainsFunc(setters, func(later *call) bool {
				return later.known && s.precedes(later) && later.precedes(l) && (later.op != "settle" || !c.Forgets)
			}) {
				continue
			}
			if !some || s.Due.Before(earliest) {
				earliest, some = s.Due, true
			}
		}
		if some && at.Before(earliest.Add(-c.Skew)) {
			c.report.problem(Early, t.Key, "handed out at %v, but was due at %v or later", l.ClaimedAt, earliest)
		}
	}
}

// until is the earliest and the latest moment at which a lease may have run out,
// as x found it.
func (t *task) until(l, x *call) (earliest, latest time.Time) {
	earliest, latest = l.LeaseUntil, l.LeaseUntil
	for _, s := range t.settles[l.Receipt] {
		switch {
		case s.Action != "extend" || !s.mayPrecede(x):
		case s.is(store.Extended) && s.precedes(x):
			earliest, latest = s.LeaseUntil, s.LeaseUntil
		case s.is(store.Extended):
			earliest, latest = minTime(earliest, s.LeaseUntil), maxTime(latest, s.LeaseUntil)
		case !s.known:
			// Without a time it is the queue's setting, which is not known here.
			earliest, latest = minTime(earliest, s.LeaseUntil), store.MaxTime
		}
	}
	return earliest, latest
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sortClaims puts claims in the order in which they took effect. Where a clock
// that stands still does not tell, the calls' own order does; and where they
// overlap, the one that was settled first was first, as leases do not overlap.
func (t *task) sortClaims() {
	slices.SortStableFunc(t.claims, func(a, b *call) int { return cmp.Or(a.ClaimedAt.Compare(b.ClaimedAt), cmp.Compare(a.start, b.start)) })
	for i := range t.claims {
		for j := i; j > 0; j-- {
			a, b := t.claims[j-1], t.claims[j]
			if !a.ClaimedAt.Equal(b.ClaimedAt) || a.precedes(b) || t.settledAt(a) <= t.settledAt(b) {
				break
			}
			t.claims[j-1], t.claims[j] = b, a
		}
	}
}

// settledAt is when the settlement of a lease began; never where there is none.
func (t *task) settledAt(l *call) int64 {
	for _, s := range t.settles[l.Receipt] {
		if s.ends() {
			return s.start
		}
	}
	return never
}

// ends says that a settlement ends its lease, if it was not stale.
func (a *call) ends() bool { return a.Action != "extend" && !a.is(store.Stale) }

// over says that a lease may have been over when x took effect.
func (c *checker) over(t *task, l, x *call) bool {
	if l.AtMostOnce {
		return false
	}
	for _, s := range t.settles[l.Receipt] {
		if s.ends() && s.mayPrecede(x) {
			return true
		}
	}
	if c.forgot(l, x) {
		return true
	}
	earliest, _ := t.until(l, x)
	return x.ended.IsZero() || !x.ended.Add(c.Skew).Before(earliest)
}

// forgot says that the store may have forgotten, before b, what a was about.
func (c *checker) forgot(a, b *call) bool {
	return c.Forgets && slices.ContainsFunc(c.crashes, func(x *call) bool { return a.mayPrecede(x) && x.mayPrecede(b) })
}

// doubled says that there may have been two of the task when it was claimed.
func (c *checker) doubled(t *task, claim *call) bool {
	in := func(s *call) bool {
		return slices.ContainsFunc(c.crashes, func(x *call) bool { return s.mayPrecede(x) && x.mayPrecede(claim) })
	}
	switch c.Doubles {
	case NoDoubles:
		return false
	case DoublesAll:
		return slices.ContainsFunc(t.schedules, in)
	}
	for _, settles := range t.settles {
		for _, s := range settles {
			if s.Action != "retry" && s.Action != "snooze" && s.Action != "release" {
				continue
			}
			if in(s) {
				return true
			}
		}
	}
	return false
}

// anew says that the task may have been scheduled between a and b.
func (t *task) anew(a, b *call) bool {
	return slices.ContainsFunc(t.schedules, func(s *call) bool {
		return s.mayBe(store.Created, store.Replaced) && a.mayPrecede(s) && s.mayPrecede(b)
	})
}

func (c *checker) afterCancel(t *task) {
	for _, x := range t.cancels {
		if !x.is(store.Cancelled) {
			continue
		}
		for _, l := range t.claims {
			before := l.mayPrecede(x) && (x.Force || c.over(t, l, x) || t.anew(l, x))
			after := x.mayPrecede(l) && t.anew(x, l)
			if before || after {
				continue
			}
			if x.precedes(l) {
				c.report.problem(AfterCancel, t.Key, "cancelled at %v, handed out to %q at %v", x.ended, l.Worker, l.ClaimedAt)
			} else {
				c.report.problem(AfterCancel, t.Key, "cancelled at %v, while %q had it from %v", x.ended, l.Worker, l.ClaimedAt)
			}
		}
	}
}

// staleActed looks for settlements that took effect though their lease was over.
func (c *checker) staleActed(t *task) {
	for _, l := range t.claims {
		settles := t.settles[l.Receipt]
		for i, s := range settles {
			if !s.known || s.is(store.Stale) {
				continue
			}
			if why := c.stale(t, l, s, settles[:i]); why != "" {
				c.report.problem(StaleActed, t.Key, "%s at %v with the receipt of %q from %v: %s", s.Outcome, s.ended, l.Worker, l.ClaimedAt, why)
			}
		}
	}
}

// stale says why a lease was certainly over when s took effect.
func (c *checker) stale(t *task, l, s *call, others []*call) string {
	for _, o := range others {
		if o.known && o.ends() && (s.ends() || o.precedes(s)) {
			return "it had been settled before: " + o.Outcome
		}
	}
	for _, l2 := range t.claims {
		if c.doubled(t, l2) {
			continue
		}
		if l2 != l && l2.precedes(s) && (l.precedes(l2) || l.ClaimedAt.Before(l2.ClaimedAt)) {
			return "another, " + l2.Worker + ", had the task since " + l2.ClaimedAt.String()
		}
	}
	if _, latest := t.until(l, s); s.began.After(latest.Add(c.Skew)) {
		return "the lease had run out at " + latest.String()
	}
	for _, x := range t.cancels {
		if x.is(store.Cancelled) && l.precedes(x) && x.precedes(s) {
			return "the task had been cancelled"
		}
	}
	for _, x := range t.schedules {
		if x.is(store.Replaced) && l.precedes(x) && x.precedes(s) {
			return "the task had been replaced"
		}
	}
	return ""
}

func (c *checker) repeated(t *task) {
	for i := 1; i < len(t.claims); i++ {
		a, b := t.claims[i-1], t.claims[i]
		if t.anew(a, b) || c.backForGood(t, a, b) {
			continue
		}
		// A settlement whose answer is known ends the lease, which then can not
		// run out.
		settled := slices.ContainsFunc(t.settles[a.Receipt], func(s *call) bool { return s.known && s.ends() })
		earliest, _ := t.until(a, b)
		expired := !a.AtMostOnce && !settled && !b.ClaimedAt.Before(earliest)
		switch {
		case c.forgot(a, b), c.doubled(t, b), expired && (b.Lost > a.Lost || b.Generation != a.Generation):
			c.report.Repeats = append(c.report.Repeats, Repeat{t.Key, a.Receipt, b.Receipt, a.Worker})
		case expired:
			c.report.problem(Hidden, t.Key, "handed out to %q at %v and, after its lease, to %q at %v, lost %d times both", a.Worker, a.ClaimedAt, b.Worker, b.ClaimedAt, b.Lost)
		default:
			c.report.problem(Repeated, t.Key, "handed out to %q at %v until %v and to %q at %v", a.Worker, a.ClaimedAt, a.LeaseUntil, b.Worker, b.ClaimedAt)
		}
	}
}

// backForGood says that something brought a task back between two claims.
func (c *checker) backForGood(t *task, a, b *call) bool {
	for _, s := range t.settles[a.Receipt] {
		back := s.is(store.Retrying, store.Snoozed, store.Released) ||
			!s.known && (s.Action == "retry" || s.Action == "snooze" || s.Action == "release")
		if back && s.mayPrecede(b) {
			return true
		}
	}
	return slices.ContainsFunc(c.queue(t.Queue).redrives, func(r *call) bool {
		return (!r.known || r.Count > 0) && a.mayPrecede(r) && r.mayPrecede(b)
	})
}

func (c *checker) altered(t *task) {
	for _, l := range t.claims {
		if len(t.schedules) > 0 && !slices.ContainsFunc(t.schedules, func(s *call) bool { return s.Sum == l.Sum }) {
			c.report.problem(Altered, t.Key, "handed out to %q at %v with checksum %08x", l.Worker, l.ClaimedAt, l.Sum)
		}
	}
}

// conserved compares what should be in the store at the end with what is.
func (c *checker) conserved(t *task) {
	if !c.report.HasFinal {
		return
	}
	var removals []*call
	for _, ss := range t.settles {
		for _, s := range ss {
			if s.Action == "ack" && s.mayBe(store.Acked) {
				removals = append(removals, s)
			}
		}
	}
	for _, x := range t.cancels {
		if x.mayBe(store.Cancelled) {
			removals = append(removals, x)
		}
	}
	for _, l := range t.claims {
		if l.AtMostOnce {
			removals = append(removals, l)
		}
	}
	if t.left {
		c.back(t, removals)
		return
	}
	q := c.queue(t.Queue)
	removals = append(append(removals, q.purges...), q.blindClaims...)
	for i := len(t.schedules) - 1; i >= 0; i-- {
		s := t.schedules[i]
		if !s.known {
			continue
		}
		if !slices.ContainsFunc(removals, func(r *call) bool { return s.mayPrecede(r) }) {
			c.report.problem(Lost, t.Key, "%s at %v, handed out %d times, neither done nor cancelled since", s.Outcome, s.ended, len(t.claims))
		}
		return
	}
}

// back looks for a reason why a task is there at the end.
func (c *checker) back(t *task, removals []*call) {
	if len(t.schedules) == 0 {
		c.report.problem(Unscheduled, t.Key, "in the store at the end")
		return
	}
	for _, r := range removals {
		if !r.known {
			continue
		}
		forgotten := c.Forgets && r.op != "cancel" && slices.ContainsFunc(c.crashes, func(x *call) bool { return r.mayPrecede(x) })
		anew := slices.ContainsFunc(t.schedules, func(s *call) bool { return s.mayBe(store.Created, store.Replaced) && r.mayPrecede(s) })
		if !forgotten && !anew {
			c.report.problem(Returned, t.Key, "%s at %v, and in the store at the end", cmp.Or(r.Outcome, r.op), r.ended)
			return
		}
	}
}
