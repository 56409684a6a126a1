package storetest_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

type mutation struct {
	name   string
	groups string // that must find it
	mutant mutant
}

func mutants() []mutation {
	return []mutation{
		{"a delay is cut by a millisecond", "schedule model", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				return withDelay(m, tasks, func(d time.Duration) time.Duration { return d - time.Millisecond })
			},
		}},
		{"hands out a millisecond early", "claim model", mutant{
			// Moving what is due within a millisecond to now is what a store
			// does whose claimer runs ahead of its clock.
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				r, err := m.Store.Claim(ctx, c)
				if err != nil || r[0].Err != nil || len(r[0].Tasks) > 0 || r[0].Next.Sub(r[0].Now) > time.Millisecond || !r[0].Next.After(r[0].Now) {
					return r, err
				}
				page, _ := m.Store.List(ctx, store.ListRequest{Queue: c[0].Queue, State: store.StateScheduled, Limit: 1})
				for _, t := range page.Tasks {
					_, _ = m.Store.Reschedule(ctx, []store.RescheduleRequest{{Queue: t.Queue, ID: t.ID, Due: r[0].Now.Truncate(time.Millisecond)}})
					if r, err = m.Store.Claim(ctx, c); err == nil && len(r[0].Tasks) > 0 {
						r[0].Tasks[0].Due = t.Due
					}
				}
				return r, err
			},
		}},
		{"cuts milliseconds down instead of up", "schedule reschedule", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				for i := range tasks {
					tasks[i].Due = tasks[i].Due.Truncate(time.Millisecond)
				}
				return m.Store.Schedule(ctx, tasks)
			},
			onReschedule: func(m *mutant, c []store.RescheduleRequest) ([]store.Result, error) {
				for i := range c {
					c[i].Due = c[i].Due.Truncate(time.Millisecond)
				}
				return m.Store.Reschedule(ctx, c)
			},
		}},
		{"loses one in a thousand", "schedule", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				r, err := m.Store.Schedule(ctx, tasks)
				for i := range r {
					if m.count++; m.count%1000 == 0 && r[i].Outcome == store.Created {
						_, _ = m.Store.Cancel(ctx, []store.CancelRequest{{Queue: tasks[i].Queue, ID: tasks[i].ID}})
					}
				}
				return r, err
			},
		}},
		{"a refused item refuses its batch", "schedule", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				for i := range tasks {
					if _, err := tasks[i].Check(time.Now(), store.MaxPayloadBytes); err != nil {
						r := make([]store.Result, len(tasks))
						for i := range r {
							r[i].Err = err
						}
						return r, nil
					}
				}
				return m.Store.Schedule(ctx, tasks)
			},
		}},
		{"exists overwrites", "identity model", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				r, err := m.Store.Schedule(ctx, tasks)
				for i := range r {
					if r[i].Outcome == store.Exists {
						tasks[i].Conflict = store.ConflictReplace
						_, _ = m.Store.Schedule(ctx, tasks[i:i+1])
					}
				}
				return r, err
			},
		}},
		{"exists brings the caller's own task", "identity model", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				r, err := m.Store.Schedule(ctx, tasks)
				for i := range r {
					if r[i].Outcome == store.Exists {
						r[i].Task.Payload = tasks[i].Payload
					}
				}
				return r, err
			},
		}},
		{"replace keeps the lease", "identity model", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				r, err := m.Store.Schedule(ctx, tasks)
				for i := range r {
					if r[i].Outcome != store.Replaced {
						continue
					}
					// The old holder is given the new lease.
					c, _ := m.Store.Claim(ctx, []store.ClaimRequest{{Queue: tasks[i].Queue, Max: 1, Lease: time.Hour}})
					for _, l := range c[0].Tasks {
						for _, old := range m.leases {
							if old.ID == l.ID && old.Queue == l.Queue {
								m.receipts[old.Receipt] = l.Receipt
							}
						}
					}
				}
				return r, err
			},
			onClaim:  remember,
			onSettle: translated,
			receipts: make(map[store.Receipt]store.Receipt),
		}},
		{"a dead task is in the way", "identity", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				for i := range tasks {
					g, _ := m.Store.Get(ctx, []store.Key{{Queue: tasks[i].Queue, ID: tasks[i].ID}})
					if t := g[0].Task; t != nil && t.State == store.StateDead {
						return []store.Result{{Outcome: store.Exists, Task: t}}, nil
					}
				}
				return m.Store.Schedule(ctx, tasks)
			},
		}},
		{"forgets one cancel in three", "cancel model", mutant{
			onCancel: func(m *mutant, c []store.CancelRequest) ([]store.Result, error) {
				g, _ := m.Store.Get(ctx, []store.Key{{Queue: c[0].Queue, ID: c[0].ID}})
				if t := g[0].Task; t != nil && t.State != store.StateLeased && len(c) == 1 {
					if m.count++; m.count%3 == 1 {
						return []store.Result{{Outcome: store.Cancelled}}, nil
					}
				}
				return m.Store.Cancel(ctx, c)
			},
		}},
		{"a dead task can not be cancelled", "cancel model", mutant{
			onCancel: func(m *mutant, c []store.CancelRequest) ([]store.Result, error) {
				r := make([]store.Result, len(c))
				for i := range c {
					g, _ := m.Store.Get(ctx, []store.Key{{Queue: c[i].Queue, ID: c[i].ID}})
					if t := g[0].Task; t != nil && t.State == store.StateDead {
						r[i].Outcome = store.NotFound
						continue
					}
					one, err := m.Store.Cancel(ctx, c[i:i+1])
					if err != nil {
						return nil, err
					}
					r[i] = one[0]
				}
				return r, nil
			},
		}},
		{"cancels what is running", "cancel model", mutant{
			onCancel: func(m *mutant, c []store.CancelRequest) ([]store.Result, error) {
				for i := range c {
					c[i].Force = true
				}
				return m.Store.Cancel(ctx, c)
			},
		}},
		{"the old receipt is good for a task scheduled anew", "cancel", mutant{
			onClaim:  remember,
			onSettle: translated,
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				r, err := m.Store.Schedule(ctx, tasks)
				m.tasks = append(m.tasks, tasks...)
				return r, err
			},
			receipts: map[store.Receipt]store.Receipt{}, // by queue, id and attempt alone: see remember
			count:    1,
		}},
		{"reschedule to earlier is forgotten", "reschedule model", mutant{
			onReschedule: func(m *mutant, c []store.RescheduleRequest) ([]store.Result, error) {
				r := make([]store.Result, len(c))
				for i := range c {
					g, _ := m.Store.Get(ctx, []store.Key{{Queue: c[i].Queue, ID: c[i].ID}})
					if t := g[0].Task; t != nil && !c[i].Due.IsZero() && c[i].Due.Before(t.Due) && t.State == store.StateScheduled {
						r[i] = store.Result{Outcome: store.Rescheduled, Due: store.CeilMilli(c[i].Due)}
						continue
					}
					one, err := m.Store.Reschedule(ctx, c[i:i+1])
					if err != nil {
						return nil, err
					}
					r[i] = one[0]
				}
				return r, nil
			},
		}},
		{"newest first", "order claim", mutant{
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				r, err := m.Store.Claim(ctx, c)
				for i := range r {
					if r[i].Err != nil || c[i].AtMostOnce || len(r[i].Tasks) < c[i].Max {
						continue
					}
					all, _ := m.Store.Claim(ctx, []store.ClaimRequest{{Queue: c[i].Queue, Max: store.MaxBatch, Lease: c[i].Lease, Worker: c[i].Worker}})
					both := append(r[i].Tasks, all[0].Tasks...)
					keep := len(both) - c[i].Max
					for _, l := range both[:keep] {
						_, _ = m.Store.Settle(ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Release}})
					}
					r[i].Tasks = both[keep:]
				}
				return r, err
			},
		}},
		{"ties in no order", "order model", mutant{
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				r, err := m.Store.Claim(ctx, c)
				for i := range r {
					t := r[i].Tasks
					for j := 1; j < len(t); j++ {
						if t[j].Due.Equal(t[j-1].Due) {
							t[j], t[j-1] = t[j-1], t[j]
						}
					}
				}
				return r, err
			},
		}},
		{"hands out one task twice", "claim concurrency", mutant{
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				r, err := m.Store.Claim(ctx, c)
				for i := range r {
					if n := len(r[i].Tasks); n == 0 && len(m.leases) > 0 && m.leases[0].Queue == c[i].Queue {
						r[i].Tasks, m.leases = m.leases[:1], nil
					} else if n > 0 {
						m.leases = r[i].Tasks[n-1:]
					}
				}
				return r, err
			},
		}},
		{"at most once leaves the task leased", "claim model", mutant{
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				once := make([]bool, len(c))
				for i := range c {
					once[i], c[i].AtMostOnce = c[i].AtMostOnce && c[i].Lease == 0, false
				}
				r, err := m.Store.Claim(ctx, c)
				for i := range r {
					for j := range r[i].Tasks {
						if once[i] {
							r[i].Tasks[j].Receipt, r[i].Tasks[j].LeaseUntil = "", time.Time{}
						}
					}
				}
				return r, err
			},
		}},
		{"the lease starts at schedule", "lease", mutant{
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				r, err := m.Store.Claim(ctx, c)
				for i := range r {
					for j := range r[i].Tasks {
						l := &r[i].Tasks[j]
						if age := l.ClaimedAt.Sub(l.Created); age > 0 && !c[i].AtMostOnce {
							left := max(l.LeaseUntil.Sub(l.ClaimedAt)-age, time.Millisecond)
							s, _ := m.Store.Settle(ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Extend, Lease: left}})
							l.LeaseUntil = s[0].At
						}
					}
				}
				return r, err
			},
		}},
		{"a lost lease is not counted", "lease model", mutant{
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				r, err := m.Store.Claim(ctx, c)
				for i := range r {
					for j := range r[i].Tasks {
						r[i].Tasks[j].Lost = 0
					}
				}
				return r, err
			},
		}},
		{"says extended and does not", "lease model", mutant{
			onSettle: func(m *mutant, c []store.Settlement) ([]store.Result, error) {
				r := make([]store.Result, len(c))
				for i := range c {
					if c[i].Action == store.Extend && c[i].Lease > 0 && c[i].Lease < time.Hour {
						r[i] = store.Result{Outcome: store.Extended, At: store.CeilMilli(m.clock().Add(c[i].Lease))}
						continue
					}
					one, err := m.Store.Settle(ctx, c[i:i+1])
					if err != nil {
						return nil, err
					}
					r[i] = one[0]
				}
				return r, nil
			},
		}},
		{"accepts a stale ack", "lease settle cancel model", mutant{
			onSettle: func(m *mutant, c []store.Settlement) ([]store.Result, error) {
				r, err := m.Store.Settle(ctx, c)
				for i := range r {
					if r[i].Outcome == store.Stale && c[i].Action == store.Ack {
						r[i].Outcome = store.Acked
					}
				}
				return r, err
			},
		}},
		{"a stale ack deletes the new holder's task", "lease model", mutant{
			onSettle: func(m *mutant, c []store.Settlement) ([]store.Result, error) {
				r, err := m.Store.Settle(ctx, c)
				for i := range r {
					if r[i].Outcome == store.Stale && c[i].Action == store.Ack {
						p, _ := c[i].Receipt.Parse()
						_, _ = m.Store.Cancel(ctx, []store.CancelRequest{{Queue: p.Queue, ID: p.ID, Force: true}})
					}
				}
				return r, err
			},
		}},
		{"release counts an attempt", "settle model", mutant{
			onSettle: func(m *mutant, c []store.Settlement) ([]store.Result, error) {
				released := make([]bool, len(c))
				for i := range c {
					if released[i] = c[i].Action == store.Release; released[i] {
						c[i].Action = store.Retry
					}
				}
				r, err := m.Store.Settle(ctx, c)
				for i := range r {
					if released[i] && r[i].Outcome == store.Retrying {
						r[i] = store.Result{Outcome: store.Released}
					}
				}
				return r, err
			},
		}},
		{"retry forgets its delay", "retry model", mutant{
			onSettle: func(m *mutant, c []store.Settlement) ([]store.Result, error) {
				delays := make([]time.Duration, len(c))
				for i := range c {
					if c[i].Action == store.Retry && c[i].Delay > 0 && !c[i].Backoff {
						delays[i], c[i].Delay = c[i].Delay, 0
					}
				}
				r, err := m.Store.Settle(ctx, c)
				for i := range r {
					if r[i].Outcome == store.Retrying {
						r[i].Due = r[i].Due.Add(delays[i])
					}
				}
				return r, err
			},
		}},
		{"refuses error texts that are too long", "limits", mutant{
			onSettle: func(m *mutant, c []store.Settlement) ([]store.Result, error) {
				for i := range c {
					if len(c[i].Error) > store.MaxErrorBytes {
						return []store.Result{{Err: store.NewInputError("error", "", "is too long")}}, nil
					}
				}
				return m.Store.Settle(ctx, c)
			},
		}},
		{"ignores max_attempts", "retry model", mutant{onPutSettings: pretend(func(s *store.Settings) { s.MaxAttempts = max(s.MaxAttempts, 1000) })}},
		{"ignores max_lost", "lease model", mutant{onPutSettings: pretend(func(s *store.Settings) { s.MaxLost = max(s.MaxLost, 1000) })}},
		{"ignores paused", "settings model", mutant{onPutSettings: pretend(func(s *store.Settings) { s.Paused = false })}},
		{"ignores the release setting", "release model", mutant{onPutSettings: pretend(func(s *store.Settings) { s.Release = store.ReleaseImmediate })}},
		{"ignores a cron's zone", "release", mutant{onPutSettings: pretend(func(s *store.Settings) {
			s.Release = strings.TrimPrefix(s.Release, "CRON_TZ=Asia/Shanghai ")
		})}},
		{"the last writer of settings wins", "settings concurrency", mutant{
			onPutSettings: func(m *mutant, queue string, s store.Settings) (store.Settings, error) {
				now, err := m.Store.Settings(ctx, queue)
				if err == nil {
					s.Version = now.Version
				}
				return m.Store.PutSettings(ctx, queue, s)
			},
		}},
		{"stats are off by one when something is dead", "stats model", mutant{
			onStats: func(m *mutant, queue string) (store.Stats, error) {
				s, err := m.Store.Stats(ctx, queue)
				if s.Dead > 0 {
					s.Scheduled++
				}
				return s, err
			},
		}},
		{"a page loses its last task", "list model", mutant{
			onList: func(m *mutant, r store.ListRequest) (store.ListPage, error) {
				page, err := m.Store.List(ctx, r)
				if page.Cursor != "" && len(page.Tasks) > 1 {
					page.Tasks = page.Tasks[:len(page.Tasks)-1]
				}
				return page, err
			},
		}},
		{"JSON payloads are written anew", "payload", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				for i := range tasks {
					var b bytes.Buffer
					if json.Compact(&b, tasks[i].Payload) == nil {
						tasks[i].Payload = b.Bytes()
					}
				}
				return m.Store.Schedule(ctx, tasks)
			},
		}},
		{"payloads are made UTF-8", "payload", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				for i := range tasks {
					tasks[i].Payload = bytes.ToValidUTF8(tasks[i].Payload, []byte("\uFFFD"))
				}
				return m.Store.Schedule(ctx, tasks)
			},
		}},
		{"ids are compared without case and trailing spaces", "hostile", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				for i := range tasks {
					tasks[i].ID = collate(tasks[i].ID)
				}
				return m.Store.Schedule(ctx, tasks)
			},
			onGet: func(m *mutant, keys []store.Key) ([]store.Result, error) {
				r, err := m.Store.Get(ctx, []store.Key{{Queue: keys[0].Queue, ID: collate(keys[0].ID)}})
				if err == nil && r[0].Task != nil {
					r[0].Task.ID = keys[0].ID
				}
				return r, err
			},
		}},
		{"redrive keeps the failures", "dead model", mutant{
			onRedrive: func(m *mutant, r store.RedriveRequest) (int, error) {
				n, err := m.Store.Redrive(ctx, r)
				m.count++
				return n, err
			},
			onGet: func(m *mutant, keys []store.Key) ([]store.Result, error) {
				r, err := m.Store.Get(ctx, keys)
				for i := range r {
					if r[i].Task != nil && m.count > 0 {
						r[i].Task.Failures++
					}
				}
				return r, err
			},
		}},
		{"next is always now", "next model", mutant{
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				r, err := m.Store.Claim(ctx, c)
				for i := range r {
					r[i].Next = r[i].Now
				}
				return r, err
			},
		}},
		{"next forgets the ends of leases", "next model", mutant{
			onClaim: func(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
				r, err := m.Store.Claim(ctx, c)
				for i := range r {
					if r[i].Next.After(r[i].Now) {
						s, _ := m.Store.Stats(ctx, c[i].Queue)
						r[i].Next = s.NextDue
					}
				}
				return r, err
			},
		}},
		{"never ticks for what is moved", "wake", mutant{
			onWake: func(m *mutant, queue string) (<-chan struct{}, func()) {
				return make(chan struct{}), func() {}
			},
		}},
		{"a crash brings back what was cancelled", "crash", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				m.tasks = append(m.tasks, tasks...)
				return m.Store.Schedule(ctx, tasks)
			},
			onCrash: func(m *mutant) { _, _ = m.Store.Schedule(ctx, m.tasks) },
		}},
		{"a crash ends all leases", "crash", mutant{
			onClaim: remember,
			onCrash: func(m *mutant) {
				for _, l := range m.leases {
					_, _ = m.Store.Settle(ctx, []store.Settlement{{Receipt: l.Receipt, Action: store.Release}})
				}
			},
		}},
		{"a crash loses the last task", "crash", mutant{
			onSchedule: func(m *mutant, tasks []store.NewTask) ([]store.Result, error) {
				m.tasks = append(m.tasks, tasks...)
				return m.Store.Schedule(ctx, tasks)
			},
			onCrash: func(m *mutant) {
				if n := len(m.tasks); n > 0 {
					_, _ = m.Store.Cancel(ctx, []store.CancelRequest{{Queue: m.tasks[n-1].Queue, ID: m.tasks[n-1].ID}})
				}
			},
		}},
	}
}

func collate(id string) string { return strings.TrimRight(strings.ToLower(id), " ") }

func (m *mutant) clock() time.Time {
	r, _ := m.Store.Claim(ctx, []store.ClaimRequest{{Queue: "clock", Max: 1}})
	return r[0].Now
}

// remember keeps all leases in mind. Mutants with a count take old receipts of
// the same task and attempt for the new one, as a store without a token would.
func remember(m *mutant, c []store.ClaimRequest) ([]store.ClaimResult, error) {
	r, err := m.Store.Claim(ctx, c)
	for i := range r {
		for _, l := range r[i].Tasks {
			for _, old := range m.leases {
				if m.count > 0 && old.Queue == l.Queue && old.ID == l.ID && old.Attempt() == l.Attempt() && old.Generation == l.Generation {
					m.receipts[old.Receipt] = l.Receipt
				}
			}
			m.leases = append(m.leases, l)
		}
	}
	return r, err
}

func translated(m *mutant, c []store.Settlement) ([]store.Result, error) {
	for i := range c {
		if r, ok := m.receipts[c[i].Receipt]; ok {
			c[i].Receipt = r
		}
	}
	return m.Store.Settle(ctx, c)
}
