package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/duetime/duetime/store"
)

// queueMover moves one queue.
type queueMover struct {
	*mover
	name    string
	report  *QueueReport
	journal *journal
	limit   int             // how many tasks the next page has
	stuck   map[string]bool // ids that stay at the source
}

// move moves what there is, until there is nothing left but what can not be moved.
// The first time it also copies settings, and waits for tasks that are running.
func (q *queueMover) move(ctx context.Context, first bool) error {
	if q.over(ctx) {
		return nil
	}
	// What has begun goes through: only between two steps all is in order.
	work := context.WithoutCancel(ctx)
	var err error
	if q.journal, err = q.readJournal(work); err != nil {
		return err
	}
	stats, err := q.from.Stats(work, q.name)
	if err != nil {
		return err
	}
	if first {
		if err := q.copySettings(work); err != nil {
			return err
		}
	}
	if q.journal == nil && stats.Scheduled+stats.Ready+stats.Dead+stats.Leased <= q.report.Stuck {
		return nil
	}
	if err := q.pause(ctx, work); err != nil {
		return err
	}
	q.report.StaysPaused = true
	if err := q.recover(work); err != nil {
		return err
	}
	giveUp := time.Now().Add(q.opts.Wait)
	if !first {
		giveUp = time.Now()
	}
	for {
		found, err := q.pass(ctx, work)
		if errors.Is(err, store.ErrFull) { // an answer, so that nothing is on its way
			if q.recover(work) == nil {
				_ = q.finish(work)
			}
		}
		if err != nil {
			return err
		}
		if q.all.Interrupted {
			break
		}
		if found > 0 {
			continue
		}
		if stats, err = q.from.Stats(work, q.name); err != nil {
			return err
		}
		q.progress.Waiting = stats.Leased
		q.show()
		if stats.Leased == 0 || time.Now().After(giveUp) {
			break
		}
		sleep(ctx, 200*time.Millisecond)
		if err := q.lock.keep(work); err != nil {
			return err
		}
	}
	q.progress.Waiting = 0
	if err := q.running(work); err != nil {
		return err
	}
	return q.finish(work)
}

// pause makes the source hand out nothing more of the queue.
func (q *queueMover) pause(ctx, work context.Context) error {
	for {
		s, err := q.from.Settings(work, q.name)
		if err != nil {
			return err
		}
		if q.journal == nil {
			q.journal = &journal{Version: journalVersion, To: q.opts.To, Hold: newHold(), WasPaused: s.Paused}
			if err := q.writeJournal(work); err != nil {
				return err
			}
		}
		if s.Paused {
			return nil
		}
		s.Paused = true
		if _, err = q.from.PutSettings(work, q.name, s); errors.Is(err, store.ErrVersion) {
			continue
		} else if err != nil {
			return err
		}
		// Not cut short by ctx: only then nothing is handed out any more.
		sleep(work, q.opts.Obeyed)
		return nil
	}
}

// finish ends the pause, unless the queue was paused before.
func (q *queueMover) finish(work context.Context) error {
	for !q.journal.WasPaused {
		s, err := q.from.Settings(work, q.name)
		if err != nil {
			return err
		}
		if !s.Paused {
			break
		}
		s.Paused = false
		if _, err = q.from.PutSettings(work, q.name, s); errors.Is(err, store.ErrVersion) {
			continue
		} else if err != nil {
			return err
		}
		break
	}
	if err := q.dropJournal(work); err != nil {
		return err
	}
	q.report.StaysPaused = false
	return nil
}

// copySettings gives the destination the queue's settings, but for the pause that
// is this move's own. Where somebody has changed the destination's, they stay.
func (q *queueMover) copySettings(work context.Context) error {
	s, err := q.from.Settings(work, q.name)
	if err != nil {
		return err
	}
	if q.journal != nil {
		s.Paused = q.journal.WasPaused
	}
	plain := store.DefaultSettings()
	if same(s, plain) {
		return nil
	}
	if c := q.to.Capabilities(); !c.Settings || !c.Release && s.Release != store.ReleaseImmediate {
		if s.Release != store.ReleaseImmediate {
			return fmt.Errorf("its tasks are let out by %q, which a %s store can not do: %w", s.Release, c.Name, store.ErrUnsupported)
		}
		if !c.Settings {
			q.report.Settings = SettingsNone
			return nil
		}
	}
	for {
		there, err := q.to.Settings(work, q.name)
		if err != nil {
			return err
		}
		switch {
		case same(there, s):
			q.report.Settings = SettingsSame
			return nil
		case !same(there, plain):
			q.report.Settings = SettingsKept
			return nil
		}
		s.Version = there.Version
		_, err = q.to.PutSettings(work, q.name, s)
		if errors.Is(err, store.ErrVersion) {
			continue
		}
		if err == nil {
			q.report.Settings = SettingsCopied
		}
		return err
	}
}

// same compares settings but for their version.
func same(a, b store.Settings) bool {
	a.Version, b.Version = 0, 0
	return a == b
}

// running names the tasks that are still running.
func (q *queueMover) running(work context.Context) error {
	stats, err := q.from.Stats(work, q.name)
	if err != nil {
		return err
	}
	q.report.Running, q.report.FirstRunning = stats.Leased, nil
	if stats.Leased == 0 {
		return nil
	}
	page, err := q.from.List(work, store.ListRequest{Queue: q.name, State: store.StateLeased, Limit: firstShow})
	for i := range page.Tasks {
		q.report.FirstRunning = append(q.report.FirstRunning, page.Tasks[i].ID)
	}
	return err
}

// pass goes over all states once, in the order in which tasks are due, and says
// how many tasks it found that it had anything to do with.
func (q *queueMover) pass(ctx, work context.Context) (found int, err error) {
	for _, state := range []store.State{store.StateReady, store.StateScheduled, store.StateDead} {
		if state == store.StateDead && q.importer == nil {
			if err := q.deadStay(work); err != nil {
				return found, err
			}
			continue
		}
		cursor := ""
		for {
			if q.over(ctx) {
				return found, nil
			}
			if err := q.lock.keep(work); err != nil {
				return found, err
			}
			page, err := q.list(work, state, cursor)
			if err != nil {
				return found, err
			}
			var tasks []store.Task
			for i := range page.Tasks {
				if !q.stuck[page.Tasks[i].ID] {
					tasks = append(tasks, page.Tasks[i])
				}
			}
			if len(tasks) > 0 {
				if err := q.movePage(work, tasks); err != nil {
					return found, err
				}
				found += len(tasks)
				q.progress.Queue, q.progress.Total, q.progress.Waiting = q.name, max(q.progress.Total, q.progress.Done), 0
				q.show()
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
	}
	return found, nil
}

// list reads a page whose payloads fit into memory, as far as the page before it
// tells. A page that the source can not answer is tried smaller.
func (q *queueMover) list(work context.Context, state store.State, cursor string) (store.ListPage, error) {
	most := min(q.opts.PageSize, max(1, q.from.Capabilities().MaxPayload/entryBytes-1))
	if q.limit == 0 {
		q.limit = min(8, most)
	}
	for {
		page, err := q.from.List(work, store.ListRequest{Queue: q.name, State: state, Cursor: cursor, Limit: q.limit, Payloads: true})
		if err != nil {
			if q.limit == 1 {
				return page, err
			}
			q.limit /= 2
			continue
		}
		bytes := 0
		for i := range page.Tasks {
			bytes += len(page.Tasks[i].Payload)
		}
		if n := len(page.Tasks); n > 0 {
			q.limit = min(2*q.limit, most, max(1, pageBytes*n/max(bytes, 1)))
		}
		return page, nil
	}
}

// deadStay counts the dead where the destination can not take them.
func (q *queueMover) deadStay(work context.Context) error {
	stats, err := q.from.Stats(work, q.name)
	if err != nil || stats.Dead == 0 {
		return err
	}
	r := store.ListRequest{Queue: q.name, State: store.StateDead, Limit: store.MaxList}
	for {
		page, err := q.from.List(work, r)
		if err != nil {
			return err
		}
		for i := range page.Tasks {
			q.stay(page.Tasks[i].ID, fmt.Sprintf("is dead, and a %s store can take in no dead tasks", q.to.Capabilities().Name))
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return nil
		}
	}
}

// stay notes a task that stays at the source.
func (q *queueMover) stay(id, why string) {
	if q.stuck[id] {
		return
	}
	q.stuck[id] = true
	q.report.Stuck++
	if len(q.report.FirstStuck) < firstShow {
		q.report.FirstStuck = append(q.report.FirstStuck, Stuck{id, why})
	}
}
