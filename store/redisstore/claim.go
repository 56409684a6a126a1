package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/duetime/duetime/store"
)

const (
	// How many tasks one script hands out at most, and bytes.
	claimItems = 400
	claimBytes = 1 << 20

	expireSlice = 200 // leases that a script ends at most; see the scripts

	// claimAhead is how far ahead those claim who keep tasks until they are due: it
	// hides the way to the server and back, the looks at several shards, and a server
	// that is busy or syncs each change.
	claimAhead = 10 * time.Millisecond
)

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, requests []store.ClaimRequest) ([]store.ClaimResult, error) {
	if err := store.CheckBatch(len(requests)); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	results := make([]store.ClaimResult, len(requests))
	good := func(i int) string {
		if results[i].Err = requests[i].Check(); results[i].Err != nil {
			return ""
		}
		return requests[i].Queue
	}
	room := store.MaxClaimBytes
	err := perQueue(len(requests), good, func(queue string, items []int) error {
		c := &claim{s: s, ctx: ctx, queue: queue, requests: requests, results: results, room: &room}
		return c.run(items)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// claim is the claims of one call for one queue.
type claim struct {
	s        *Store
	ctx      context.Context
	queue    string
	requests []store.ClaimRequest
	results  []store.ClaimResult
	room     *int // bytes that may yet be handed out

	k    *known
	sure time.Time        // what the server's clock showed when it was found to be thought wrong of
	seqs map[int][]uint64 // of the tasks of a request, for those who sort them; nil: nobody does
}

// errAgain says that what a claim went by was old: settings, or the clock.
var errAgain = errors.New("again")

func (c *claim) run(items []int) error {
	if err := c.learn(); err != nil {
		return err
	}
	for _, i := range items {
		c.results[i].Now = c.s.now()
	}
	for tries := 0; ; tries++ {
		var err error
		if len(c.k.shards) == 1 && c.k.old == nil {
			items, err = c.single(items)
		} else {
			items, err = c.spread(items)
		}
		switch {
		case err == errLayout:
			if err := c.s.relearn(c.ctx, c.queue); err != nil {
				return err
			}
		case err != errAgain:
			return err
		}
		if err := c.learn(); err != nil {
			return err
		}
		if tries > 3 {
			if err := sleep(c.ctx, time.Duration(tries)*time.Millisecond); err != nil {
				return err
			}
		}
		if tries > 100 {
			return errors.New("redis: the settings and the clock of the queue do not come to rest")
		}
	}
}

// learn finds out what the queue is. What is older than about a second is read
// again, so that a change of settings is seen.
func (c *claim) learn() error {
	q := c.s.queue(c.queue)
	q.mu.Lock()
	k, read := q.known(), q.readAt
	q.mu.Unlock()
	var err error
	if k == nil || time.Since(read) > refreshAfter {
		if k, err = c.s.reload(c.ctx, c.queue); err != nil {
			return err
		}
	}
	if k == nil {
		k = c.s.unmade(c.queue)
	}
	c.k = k
	return nil
}

// window is the release instants around what the server's clock is thought to
// show; the script sees whether it does. Empty where all is let out when it is
// due.
func (c *claim) window() [2]string {
	if c.k.settings.Release == store.ReleaseImmediate {
		return [2]string{}
	}
	now := c.s.now()
	if !c.sure.IsZero() {
		now, c.sure = c.sure, time.Time{}
	}
	from, end := int64(0), store.MaxTime.UnixMilli()
	if last := c.k.release.Last(now); !last.IsZero() {
		from = last.UnixMilli()
	}
	if next := c.k.release.Next(fromMilli(now.UnixMilli() + 1)); !next.IsZero() {
		end = next.UnixMilli()
	}
	return [2]string{strconv.FormatInt(from, 10), strconv.FormatInt(end, 10)}
}

// ahead is how far ahead a request claims, in ms.
func (c *claim) ahead(r *store.ClaimRequest) int64 {
	if r.AtMostOnce || c.k.settings.Release != store.ReleaseImmediate {
		return 0
	}
	return r.Ahead.Milliseconds()
}

// call makes the script call that asks one shard for up to n tasks, due at bound
// at the latest where there is one, and says what token their leases have.
func (c *claim) call(sh *shard, r *store.ClaimRequest, n int, window [2]string, bound string, bytes int) (call, string) {
	var token [8]byte
	_, _ = rand.Read(token[:]) // does not fail
	lease := ""
	switch {
	case r.AtMostOnce:
		lease = "0"
	case r.Lease > 0:
		lease = duration(r.Lease)
	}
	return call{c.s.scripts().claim, sh, []string{
		strconv.FormatInt(c.k.settings.Version, 10), strconv.Itoa(n), lease, store.CleanWorker(r.Worker), string(token[:]),
		window[0], window[1], strconv.Itoa(bytes), bound, strconv.FormatInt(c.ahead(r), 10),
	}}, string(token[:])
}

// single claims from the one shard of a queue: all requests in one go, and then
// again for those that one script could not fill. It returns those that are not
// served yet where it could not go on.
func (c *claim) single(items []int) ([]int, error) {
	sh := c.k.shards[0]
	for len(items) > 0 {
		window := c.window()
		bytes := min(claimBytes, max(1, *c.room))
		// What comes back is not known before, so that it is asked for by and by.
		n := min(len(items), 32)
		calls := make([]call, n)
		tokens := make([]string, n)
		asked := make([]int, n)
		for k, i := range items[:n] {
			r := &c.requests[i]
			if *c.room > 0 {
				asked[k] = min(claimItems, r.Max-len(c.results[i].Tasks))
			}
			calls[k], tokens[k] = c.call(sh, r, asked[k], window, "", bytes)
		}
		replies, err := c.s.run(c.ctx, calls)
		if err != nil {
			return items, err
		}
		var again error
		var unfilled []int
		for k := range replies {
			i := items[k]
			more, err := c.take(i, sh, &replies[k], tokens[k])
			switch {
			case err == errAgain || err == errLayout:
				again = err
				unfilled = append(unfilled, i)
			case err != nil:
				return items, err
			case more && asked[k] > 0 && len(c.results[i].Tasks) < c.requests[i].Max && *c.room > 0:
				unfilled = append(unfilled, i)
			}
		}
		items = append(unfilled, items[n:]...)
		if again != nil {
			return items, again
		}
	}
	return nil, nil
}

// take reads what a shard handed out, and says whether there may be more.
func (c *claim) take(i int, sh *shard, r *reply, token string) (more bool, err error) {
	if err := r.check(); err != nil {
		return false, err
	}
	if again, err := c.outdated(sh, r); again || err != nil {
		if err == nil {
			err = errAgain
		}
		return false, err
	}
	req, res := &c.requests[i], &c.results[i]
	now := r.now()
	c.s.sawClock(now)
	res.Now = now
	leaseEnd := fromMilli(r.number(8))
	const head = 9
	for n := head; n+1 < len(r.values); n += 2 {
		id, text := r.text(n), r.text(n+1)
		rec, err := readRecord(text, true)
		if err != nil {
			// Handed out, and nobody can run it: its lease runs out until it is dead.
			c.s.opts.warnf("redis: queue %s: task %q: %v", c.queue, id, err)
			continue
		}
		t := rec.task
		t.Queue, t.ID, t.State, t.Worker = c.queue, id, store.StateLeased, store.CleanWorker(req.Worker)
		out := store.Lease{ClaimedAt: now}
		if !req.AtMostOnce {
			t.LeaseUntil = leaseEnd
			out.Receipt = store.ReceiptParts{
				Queue: c.queue, ID: id, Shard: sh.number,
				Generation: uint32(t.Generation), Attempt: uint32(t.Attempt()),
				Token: bigEndian(token),
			}.Encode()
		}
		out.Task = t
		*c.room -= len(t.Payload)
		res.Tasks = append(res.Tasks, out)
		if c.seqs != nil {
			c.seqs[i] = append(c.seqs[i], rec.seq)
		}
	}
	c.s.counts.aside.Add(r.number(7))
	due, ends := r.number(4), r.number(5)
	res.Next = c.k.nextClaim(now, due, ends)
	if r.woke() {
		c.s.tick(c.queue)
	}
	more = r.number(3) == expireSlice || due >= 0 && !res.Next.IsZero() && !res.Next.After(now)
	return more, nil
}

// outdated says that a script did nothing because the settings or the clock that
// it was called with are not right, and puts right what can be.
func (c *claim) outdated(sh *shard, r *reply) (bool, error) {
	word, _ := r.values[0].ToString()
	if word == "settings" {
		version, _ := strconv.ParseInt(r.text(1), 10, 64)
		if c.k.settings.Version < version {
			if _, err := c.s.reload(c.ctx, c.queue); err != nil {
				return true, err
			}
			return true, c.learn()
		}
		k, err := c.s.reload(c.ctx, c.queue)
		if err != nil {
			return true, err
		}
		if k != nil && k.settings.Version > version {
			if err := c.s.pushSettings(c.ctx, c.queue, k, []*shard{sh}); err != nil {
				return true, err
			}
		}
		return true, c.learn()
	}
	if len(r.values) == 4 {
		if word, _ := r.values[3].ToString(); word == "clock" {
			c.sure = r.now()
			c.s.sawClock(c.sure)
			return true, nil
		}
	}
	return false, nil
}

// nextClaim is when another claim might get something, given when the first task
// is due and when the first lease ends; -1: there is none.
func (k *known) nextClaim(now time.Time, due, ends int64) time.Time {
	if k.settings.Paused {
		return time.Time{}
	}
	var next time.Time
	if due >= 0 {
		d := fromMilli(due)
		last := k.release.Last(now)
		if !last.IsZero() && !d.After(last) {
			return now
		}
		next = k.release.Next(d)
	}
	if ends >= 0 && (next.IsZero() || fromMilli(ends).Before(next)) {
		next = fromMilli(ends)
	}
	return next
}
