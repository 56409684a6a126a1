package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// The operations that a player plays, on the store and on the model.

// moment picks a due time or a delay.
func (p *player) moment() (due time.Time, delay time.Duration) {
	now := p.before
	switch n := p.IntN(10); {
	case n < 3:
		return now.Add(-time.Duration(1+p.IntN(5)) * time.Hour).Truncate(time.Hour), 0
	case n < 4:
		return now.Add(365*24*time.Hour + time.Duration(p.IntN(3))*time.Hour).Truncate(time.Hour), 0
	case !p.exact():
		return time.Time{}, time.Duration(1+p.IntN(3)) * 24 * time.Hour
	case n < 6:
		return time.Time{}, 0
	case n < 8:
		return time.Time{}, time.Duration(p.IntN(3000)) * time.Millisecond
	default:
		return now.Add(time.Duration(p.Int64N(int64(5 * time.Second)))), 0
	}
}

func (p *player) schedule() {
	p.start()
	var tasks []store.NewTask
	for range 1 + p.IntN(4) {
		n := store.NewTask{
			Queue: p.queue(), ID: p.name(), Payload: []byte(fmt.Sprint(p.IntN(1000))),
			Conflict: pick(p, store.ConflictKeep, store.ConflictKeep, store.ConflictReplace), MaxAttempts: p.IntN(4),
		}
		if p.IntN(4) == 0 {
			n.Headers = map[string]string{"h": n.ID}
		}
		n.Due, n.Delay = p.moment()
		if p.IntN(40) == 0 {
			n.Delay, n.Due = -1, time.Time{}
		}
		tasks = append(tasks, n)
	}
	p.note("schedule %+v", tasks)
	for i, r := range p.env.schedule(tasks...) {
		n := tasks[i]
		if n.Delay < 0 {
			p.want("schedule", r, store.Refused)
			continue
		}
		there := p.m.find(n.Queue, n.ID)
		outcome := p.m.schedule(n, r.Due, r.At)
		p.want("schedule "+n.ID, r, outcome)
		if outcome == store.Exists {
			p.same("exists", *r.Task, there.Task)
			continue
		}
		p.when("due", r.Due, n.Due, n.Delay)
		p.between("created", r.At, p.before, p.now(), 0)
		p.m.tick(p.before)
	}
}

func (p *player) importSome() {
	p.start()
	var tasks []store.Task
	for range 1 + p.IntN(4) {
		t := store.Task{
			Queue: p.queue(), ID: p.name(), Payload: []byte(fmt.Sprint(p.IntN(1000))),
			State:   pick(p, store.StateScheduled, store.StateReady, store.StateScheduled, store.StateReady, store.StateDead, store.StateLeased),
			Created: p.before.Add(-time.Duration(p.IntN(1000)) * time.Hour).Truncate(time.Millisecond),
			Due:     p.before.Add(time.Duration(p.IntN(7)-3) * 24 * time.Hour).Truncate(time.Hour),
			// A generation that the same id has had before would make old
			// receipts no less stale: they have tokens.
			Generation: p.IntN(3), Failures: p.IntN(3), Lost: p.IntN(2), MaxAttempts: p.IntN(4),
			LastError: pick(p, "", "elsewhere"),
		}
		tasks = append(tasks, t)
	}
	p.note("import %+v", tasks)
	results, err := p.importer().Import(p.ctx, tasks)
	p.must(err)
	for i, r := range results {
		t := tasks[i]
		if t.State == store.StateLeased {
			p.want("import "+t.ID, r, store.Refused)
			continue
		}
		there := p.m.find(t.Queue, t.ID)
		p.want("import "+t.ID, r, p.m.take(t))
		if there != nil {
			p.same("exists", *r.Task, there.Task)
		}
		p.m.tick(p.before)
	}
}

func (p *player) cancelSome() {
	p.start()
	var c []store.CancelRequest
	for range 1 + p.IntN(3) {
		c = append(c, store.CancelRequest{Queue: p.queue(), ID: p.name(), Force: p.IntN(3) == 0})
	}
	p.note("cancel %+v", c)
	results, err := p.st.Cancel(p.ctx, c)
	p.must(err)
	for i, r := range results {
		p.want("cancel "+c[i].ID, r, p.m.cancel(c[i]))
	}
}

func (p *player) moveSome() {
	p.start()
	var c []store.RescheduleRequest
	for range 1 + p.IntN(3) {
		r := store.RescheduleRequest{Queue: p.queue(), ID: p.name()}
		r.Due, r.Delay = p.moment()
		c = append(c, r)
	}
	p.note("reschedule %+v", c)
	results, err := p.st.Reschedule(p.ctx, c)
	p.must(err)
	for i, r := range results {
		p.want("reschedule "+c[i].ID, r, p.m.reschedule(c[i], r.Due))
		if r.Outcome == store.Rescheduled {
			p.when("due", r.Due, c[i].Due, c[i].Delay)
		}
		p.m.tick(p.before)
	}
}

func (p *player) leaseTime() time.Duration {
	if !p.exact() {
		return pick(p, time.Hour, 2*time.Hour)
	}
	return pick(p, 0, 0, time.Millisecond, 700*time.Millisecond, 1500*time.Microsecond, 2*time.Second, time.Hour)
}

func (p *player) claimSome() {
	p.start()
	var c []store.ClaimRequest
	for range 1 + p.IntN(3) {
		r := store.ClaimRequest{Queue: p.queue(), Max: 1 + p.IntN(4), Worker: pick(p, "", "a", "b")}
		if p.IntN(12) == 0 {
			r.AtMostOnce = true
		} else {
			r.Lease = p.leaseTime()
		}
		c = append(c, r)
	}
	if !p.exact() {
		for i := range c {
			if !c[i].AtMostOnce && c[i].Lease == 0 {
				c[i].Lease = time.Hour
			}
		}
	}
	p.note("claim %+v", c)
	for i, r := range p.claimRequests(c...) {
		p.must(r.Err)
		p.claimed(&c[i], &r)
	}
}

func (p *player) claimed(c *store.ClaimRequest, r *store.ClaimResult) {
	p.Helper()
	could := p.m.claimable(c.Queue, p.before)
	var want []string
	for _, t := range could[:min(len(could), c.Max)] {
		want = append(want, t.ID)
	}
	p.sameIDs("claim from "+c.Queue, ids(r.Tasks), want)
	lease := c.Lease
	if lease == 0 {
		lease = p.m.of(c.Queue).Lease
	}
	for i, l := range r.Tasks {
		t := could[i]
		t.State, t.Worker, t.LeaseUntil, t.receipt = store.StateLeased, c.Worker, l.LeaseUntil, l.Receipt
		if c.AtMostOnce {
			p.m.remove(t)
		} else {
			p.when("end of lease", l.LeaseUntil, time.Time{}, lease)
			p.receipts = append(p.receipts, l.Receipt)
		}
		p.same("claim", l.Task, t.Task)
		if p.exact() && !l.ClaimedAt.Equal(p.before) {
			p.Errorf("claimed at %v, want %v", l.ClaimedAt, p.before)
		}
	}
	next := p.m.next(c.Queue)
	switch {
	case p.m.of(c.Queue).Paused:
		if !r.Next.IsZero() && !r.Next.After(r.Now) {
			p.Errorf("claim from %q, which is paused: next is %v, now %v", c.Queue, r.Next, r.Now)
		}
	case len(could) > c.Max:
		if r.Next.IsZero() || r.Next.After(r.Now) {
			p.Errorf("claim from %q: more is ready, next is %v, now %v", c.Queue, r.Next, r.Now)
		}
	case !next.IsZero() && (r.Next.IsZero() || r.Next.After(next)):
		p.Errorf("claim from %q: next is %v, the model says %v", c.Queue, r.Next, next)
	case !r.Next.IsZero() && !r.Next.After(r.Now):
		p.Errorf("claim from %q: nothing more is ready, next is %v, now %v", c.Queue, r.Next, r.Now)
	}
}

func (p *player) settleSome() {
	p.start()
	if len(p.receipts) == 0 {
		return
	}
	var c []store.Settlement
	for range 1 + p.IntN(3) {
		s := store.Settlement{
			Receipt: pick(p, p.receipts[max(0, len(p.receipts)-8):]...), // mostly the newest
			Action:  pick(p, store.Ack, store.Ack, store.Retry, store.Retry, store.Snooze, store.Bury, store.Release, store.Extend),
		}
		if p.IntN(10) == 0 {
			s.Receipt = pick(p, p.receipts...)
		}
		switch s.Action {
		case store.Retry:
			s.Error = pick(p, "", "boom")
			if p.IntN(3) == 0 {
				s.Backoff = true
			} else {
				s.Delay = p.later()
			}
		case store.Snooze:
			s.Delay = p.later()
		case store.Bury:
			s.Error = pick(p, "", "bad order")
		case store.Extend:
			if s.Lease = p.leaseTime(); s.Lease == 0 && !p.exact() {
				s.Lease = time.Hour
			}
		}
		c = append(c, s)
	}
	for i := range c {
		if t := p.m.holder(c[i].Receipt); t != nil {
			p.note("settle %s: %v delay %v backoff %v lease %v", t.ID, c[i].Action, c[i].Delay, c[i].Backoff, c[i].Lease)
		} else {
			p.note("settle a stale receipt: %v", c[i].Action)
		}
	}
	for i, r := range p.settle(c...) {
		s := c[i]
		holder := p.m.holder(s.Receipt)
		at := r.Due
		if s.Action == store.Extend {
			at = r.At
		}
		attempt := 0
		if holder != nil {
			attempt = holder.Attempt()
		}
		p.want(s.Action.String(), r, p.m.settle(s, at))
		switch {
		case r.Outcome == store.Extended:
			d := s.Lease
			if d == 0 {
				d = p.m.of(holder.Queue).Lease
			}
			p.when("new deadline", r.At, time.Time{}, d)
		case r.Outcome == store.Retrying && s.Backoff:
			// The model's queues have no jitter.
			b, d := p.m.of(holder.Queue).Backoff, 0*time.Second
			for d = b.Initial; attempt > 1 && d < b.Max; attempt-- {
				d = time.Duration(float64(d) * b.Factor)
			}
			if b.Jitter == 0 {
				p.when("due by backoff", r.Due, time.Time{}, min(d, b.Max))
			}
		case r.Outcome == store.Retrying || r.Outcome == store.Snoozed:
			p.when("due", r.Due, time.Time{}, s.Delay)
		}
		p.m.tick(p.before)
	}
}

// later picks a delay for what comes back.
func (p *player) later() time.Duration {
	if !p.exact() {
		return time.Duration(1+p.IntN(3)) * 24 * time.Hour
	}
	return pick(p, 0, time.Millisecond, 1100*time.Microsecond, time.Second, time.Minute)
}

func (p *player) getSome() {
	p.start()
	var keys []store.Key
	for range 5 {
		keys = append(keys, store.Key{Queue: p.queue(), ID: p.name()})
	}
	results, err := p.st.Get(p.ctx, keys)
	p.must(err)
	for i, r := range results {
		t := p.m.find(keys[i].Queue, keys[i].ID)
		if t == nil {
			p.want("get "+keys[i].ID, r, store.NotFound)
			continue
		}
		p.want("get "+keys[i].ID, r, store.Found)
		p.same("get", *r.Task, t.Task)
	}
}

func (p *player) putSettings(queue string, change func(*store.Settings)) {
	s := p.m.of(queue)
	change(&s)
	// Without jitter the model can foretell the delay. A queue that was never
	// changed has the default, with jitter.
	s.Backoff = store.Backoff{Initial: time.Second, Factor: 2, Max: time.Minute}
	if !p.exact() {
		s.Backoff = store.Backoff{Initial: 24 * time.Hour, Factor: 2, Max: 48 * time.Hour}
	}
	if p.IntN(8) == 0 {
		wrong := s
		wrong.Version++
		if _, err := p.st.PutSettings(p.ctx, queue, wrong); !errors.Is(err, store.ErrVersion) {
			p.Errorf("put settings of a wrong version: error %v", err)
		}
	}
	got, err := p.st.PutSettings(p.ctx, queue, s)
	p.must(err)
	s.Version = got.Version
	if got != s {
		p.Errorf("put settings: %+v, want %+v", got, s)
	}
	p.m.settings[queue] = s
}

func (p *player) changeSettings() {
	p.start()
	queue := p.queue()
	p.note("change settings of %s", queue)
	p.putSettings(queue, func(s *store.Settings) {
		if s.Paused && p.IntN(2) == 0 { // or most claims would get nothing
			s.Paused = false
			return
		}
		switch p.IntN(4) {
		case 0:
			s.Paused = !s.Paused
		case 1:
			s.MaxAttempts = 1 + p.IntN(4)
		case 2:
			s.Lease = time.Duration(1+p.IntN(4)) * time.Hour
		case 3:
			if p.caps.Release && p.exact() {
				s.Release = pick(p, store.ReleaseImmediate, "every 2s", "every 250ms")
			}
		}
	})
}

func (p *player) redriveSome() {
	p.start()
	r := store.RedriveRequest{Queue: p.queue()}
	if r.All = p.IntN(2) == 0; !r.All {
		for range 3 {
			r.IDs = append(r.IDs, p.name())
		}
	}
	p.note("redrive %+v", r)
	n, err := p.st.Redrive(p.ctx, r)
	p.must(err)
	want := 0
	for _, t := range p.m.in(r.Queue, store.StateDead) {
		if r.All || slices.Contains(r.IDs, t.ID) {
			want++
			t.State, t.Failures, t.Lost = store.StateScheduled, 0, 0
			t.Due = p.lookup(t.Queue, t.ID).Due
			p.when("due after redrive", t.Due, time.Time{}, 0)
		}
	}
	if n != want {
		p.Errorf("redrive moved %d, want %d", n, want)
	}
	if !p.exact() {
		p.advance(2 * time.Millisecond)
	}
}

func (p *player) purgeSome() {
	p.start()
	queue, state := p.queue(), pick(p, store.States()...)
	p.note("purge %v of %s", state, queue)
	n, err := p.st.Purge(p.ctx, queue, state)
	p.must(err)
	gone := p.m.in(queue, state)
	for _, t := range gone {
		p.m.remove(t)
	}
	if n != len(gone) {
		p.Errorf("purged %d, want %d", n, len(gone))
	}
}

func (p *player) passTime() {
	if !p.exact() {
		return
	}
	p.start()
	d := pick(p, 1, 499*time.Microsecond, time.Millisecond, 250*time.Millisecond, time.Second, time.Minute, time.Hour)
	if p.IntN(2) == 0 { // to just before or just at the next event
		if next := p.m.next(p.queue()); next.After(p.before) {
			d = next.Sub(p.before) - pick(p, 0, 0, 1, time.Millisecond)
		}
	}
	p.note("%v pass", d)
	p.advance(max(d, 0))
}

func (p *player) crash() {
	if p.in.Reopen == nil {
		return
	}
	p.start()
	p.note("crash")
	p.reopen()
}

// compare compares everything that can be seen.
func (p *player) compare() {
	p.Helper()
	p.start()
	queues, err := p.st.Queues(p.ctx)
	p.must(err)
	for _, queue := range queues {
		if _, ok := p.m.settings[queue]; !ok {
			p.Errorf("there is a queue %q", queue)
		}
	}
	if len(queues) != len(p.m.settings) || !slices.IsSorted(queues) {
		p.Errorf("queues %q, want %d of them, in order", queues, len(p.m.settings))
	}
	for _, queue := range p.queues {
		if got, want := p.stats(queue), p.m.stats(queue); got != want {
			p.Errorf("stats of %q: %+v, want %+v", queue, got, want)
		}
		for _, state := range store.States() {
			got := p.listAll(queue, state, pick(p, 1, 3, 0), true)
			want := p.m.in(queue, state)
			var names []string
			for _, t := range want {
				names = append(names, t.ID)
			}
			p.sameIDs(fmt.Sprintf("list of %v in %s", state, queue), taskIDs(got), names)
			for i := range got {
				p.same("list", got[i], want[i].Task)
			}
		}
		got, err := p.st.Settings(p.ctx, queue)
		p.must(err)
		if got != p.m.of(queue) {
			p.Errorf("settings of %q: %+v, want %+v", queue, got, p.m.of(queue))
		}
	}
}
