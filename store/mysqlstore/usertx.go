package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// ErrOtherDatabase: the transaction is one of another database than the store's, so
// that they can not commit together.
var ErrOtherDatabase = errors.New("the transaction is of another database than the store")

// ScheduleTx is Schedule inside a transaction of the caller's own: the tasks exist
// if and only if it commits. The transaction must be one on the same server, whose
// user may write to the store's tables; its settings (isolation level, character
// set, SQL mode) do not matter, and the database that it uses may be another.
//
// The results say what will be so once the transaction has committed. Due times are
// counted from the moment of the call. An error means that nobody knows what the
// transaction contains: roll it back. A deadlock with another transaction is such
// an error: the server has then rolled the transaction back.
//
// Until the transaction ends, others who schedule tasks with the same ids wait for it
// (for up to half a minute), so keep it short. Workers in this process learn of the
// tasks within some 20 ms of the commit, if that comes within two seconds of the call,
// and those in other processes within a quarter of a second, as ever.
func (s *Store) ScheduleTx(ctx context.Context, tx *sql.Tx, tasks []store.NewTask) ([]store.Result, error) {
	if err := s.enter(ctx, len(tasks)); err != nil {
		return nil, err
	}
	defer s.leave()
	results := make([]store.Result, len(tasks))
	wishes := s.wishes(tasks, results)
	names := make(map[string]bool)
	for _, w := range wishes {
		names[w.queue] = true
	}
	// Queues are made outside: one that is empty harms nobody, and a transaction that
	// made one would keep all others from doing so.
	found, err := s.ensure(ctx, names)
	if err != nil {
		return nil, err
	}
	u, err := s.userTx(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, w := range wishes {
		w.row.queueID = found[w.queue].id
		if err := w.date(u.now); err != nil {
			results[w.index] = refused(err)
			w.queue = ""
		}
	}
	for _, w := range wishes {
		if w.queue == "" {
			continue
		}
		if results[w.index], err = u.schedule(ctx, w, found[w.queue]); err != nil {
			return nil, err
		}
	}
	return results, u.end(ctx)
}

// CancelTx is Cancel inside a transaction of the caller's own: see ScheduleTx. The
// tasks are not handed out from the call on until the transaction ends.
func (s *Store) CancelTx(ctx context.Context, tx *sql.Tx, tasks []store.CancelRequest) ([]store.Result, error) {
	if err := s.enter(ctx, len(tasks)); err != nil {
		return nil, err
	}
	defer s.leave()
	keys := make([]store.Key, len(tasks))
	for i, t := range tasks {
		keys[i] = store.Key{Queue: t.Queue, ID: t.ID}
	}
	return s.removeTx(ctx, tx, keys, make([]error, len(tasks)), store.NotFound, func(i int, r *row) store.Outcome {
		switch {
		case r == nil:
			return store.NotFound
		case r.state == leased && !tasks[i].Force:
			return store.Leased
		}
		return store.Cancelled
	})
}

// AckTx acks inside a transaction of the caller's own: see ScheduleTx. The task is
// gone if and only if what its handler did is there. Outcomes: Acked, Stale, Refused.
// A lease that ends before the transaction does is no harm: the task is held until
// then.
func (s *Store) AckTx(ctx context.Context, tx *sql.Tx, receipts []store.Receipt) ([]store.Result, error) {
	if err := s.enter(ctx, len(receipts)); err != nil {
		return nil, err
	}
	defer s.leave()
	keys, wrong := make([]store.Key, len(receipts)), make([]error, len(receipts))
	parts := make([]store.ReceiptParts, len(receipts))
	for i, r := range receipts {
		parts[i], wrong[i] = r.Parse()
		keys[i] = store.Key{Queue: parts[i].Queue, ID: parts[i].ID}
	}
	return s.removeTx(ctx, tx, keys, wrong, store.Stale, func(i int, r *row) store.Outcome {
		if r == nil || r.state != leased {
			return store.Stale
		}
		if seq, token := seqAndToken(&parts[i]); r.seq != seq || r.token != token {
			return store.Stale
		}
		return store.Acked
	})
}

// removeTx deletes the tasks of which judge says Cancelled or Acked. judge sees a
// lease that is over as ended.
func (s *Store) removeTx(ctx context.Context, tx *sql.Tx, keys []store.Key, wrong []error, absent store.Outcome, judge func(int, *row) store.Outcome) ([]store.Result, error) {
	results := make([]store.Result, len(keys))
	names := make(map[string]bool)
	for i, k := range keys {
		if wrong[i] == nil {
			wrong[i] = store.CheckKey(k.Queue, k.ID)
		}
		if wrong[i] != nil {
			results[i] = refused(wrong[i])
			continue
		}
		names[k.Queue] = true
	}
	found, err := s.find(ctx, names)
	if err != nil {
		return nil, err
	}
	u, err := s.userTx(ctx, tx)
	if err != nil {
		return nil, err
	}
	for i, k := range keys {
		if wrong[i] != nil {
			continue
		}
		q := found[k.Queue]
		if q == nil {
			results[i].Outcome = absent
			continue
		}
		r, err := u.lock(ctx, q.id, k.ID)
		if err != nil {
			return nil, err
		}
		seen := r
		if r != nil && r.expired(u.now) {
			ended := *r
			ended.end(waiting)
			seen = &ended
		}
		results[i].Outcome = judge(i, seen)
		if o := results[i].Outcome; o == store.Cancelled || o == store.Acked {
			if err := u.remove(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	return results, u.end(ctx)
}

// userTx is a transaction of the user's while one call is at work in it.
type userTx struct {
	s      *Store
	tx     *sql.Tx
	now    time.Time
	counts map[taskCount]*count
}

// taskCount: changes of one queue, and of one instant for those that wait.
type taskCount struct {
	queueID uint32
	at      int64
}

func (s *Store) userTx(ctx context.Context, tx *sql.Tx) (*userTx, error) {
	u := &userTx{s: s, tx: tx, counts: make(map[taskCount]*count)}
	var name []byte
	text, _ := s.sql["meta_store"].placed()
	if err := tx.QueryRowContext(ctx, text).Scan(&name); err != nil {
		return nil, fmt.Errorf("mysql: the transaction does not see duetime's tables in database %q: %w", s.database, err)
	}
	if string(name) != s.name {
		return nil, fmt.Errorf("mysql: database %q: %w", s.database, ErrOtherDatabase)
	}
	if s.opts.now != nil {
		u.now = s.opts.now().UTC()
		return u, nil
	}
	var micro int64
	text, _ = s.sql["now"].placed()
	if err := tx.QueryRowContext(ctx, text).Scan(&micro); err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	u.now = time.UnixMicro(micro).UTC()
	return u, nil
}

func (u *userTx) exec(ctx context.Context, name string, args ...any) error {
	text, values := u.s.sql[name].placed(args...)
	if _, err := u.tx.ExecContext(ctx, text, values...); err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	return nil
}

// lock is nil where there is no such task.
func (u *userTx) lock(ctx context.Context, queueID uint32, id string) (*row, error) {
	text, args := u.s.sql["task_lock"].placed(queueID, []string{id})
	var r row
	var worker, lastError []byte
	var big int
	err := u.tx.QueryRowContext(ctx, text, args...).Scan(&r.seq, &r.queueID, &r.state, &r.at, &r.due, &r.created, &r.generation, &r.failures, &r.lost,
		&r.limit, &r.token, &r.size, &r.id, &worker, &lastError, &big, &r.headers, &r.payload)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	r.worker, r.lastError, r.big = trimWorker(string(worker)), string(lastError), big != 0
	if !r.big {
		r.loaded = true
		return &r, nil
	}
	text, args = u.s.sql["payloads"].placed([]uint64{r.seq})
	var seq uint64
	var large []byte
	if err := u.tx.QueryRowContext(ctx, text, args...).Scan(&seq, &large); err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	r.unpack(large)
	return &r, nil
}

func (u *userTx) remove(ctx context.Context, r *row) error {
	u.count(r, -1)
	return u.exec(ctx, "task_delete", whereSeq([]uint64{r.seq}))
}

// schedule stores one task. It is inserted first, and looked for only where that
// fails: at REPEATABLE READ, the user's as a rule, looking for what is not there
// locks the place where it would be.
func (u *userTx) schedule(ctx context.Context, w *wish, q *queue) (store.Result, error) {
	outcome := store.Created
	for attempt := 0; ; attempt++ {
		err := u.exec(ctx, "task_insert", []tuple{w.row.insert()})
		if err == nil {
			u.count(&w.row, 1)
			return w.result(outcome), nil
		}
		if !serverError(err, errDuplicate) || attempt > 2 {
			return store.Result{}, err
		}
		old, err := u.lock(ctx, w.row.queueID, w.row.id)
		if err != nil {
			return store.Result{}, err
		}
		if old == nil {
			continue // it went in that moment
		}
		seen := *old
		if seen.expired(u.now) {
			v, err := u.s.viewOf(ctx, q)
			if err != nil {
				return store.Result{}, err
			}
			seen.expire(v.MaxLost)
		}
		switch {
		case seen.state != dead && !w.replace:
			t := seen.task(q.name, u.now)
			return store.Result{Outcome: store.Exists, Task: &t}, nil
		case seen.state != dead:
			outcome = store.Replaced
			w.row.generation = seen.generation + 1
		}
		if err := u.remove(ctx, old); err != nil {
			return store.Result{}, err
		}
	}
}

// viewOf reads a queue outside the transaction.
func (s *Store) viewOf(ctx context.Context, q *queue) (*view, error) {
	views := make(map[uint32]*view)
	err := s.with(ctx, func(ctx context.Context, l *link) error {
		l.add("queue_read", []uint32{q.id})
		return l.send(ctx, s.views(views))
	})
	if err == nil && views[q.id] == nil {
		err = fmt.Errorf("%w: queue %q is gone from the table duetime_queue", store.ErrCorrupt, q.name)
	}
	return views[q.id], err
}

func (u *userTx) count(r *row, n int64) {
	k := taskCount{r.queueID, never}
	if r.state == waiting {
		k.at = r.at
	}
	c := u.counts[k]
	if c == nil {
		c = newCount()
		u.counts[k] = c
	}
	c.add(r, 0, n)
	if n > 0 && r.state == waiting {
		c.early = min(c.early, r.at)
	}
}

// end writes the counters, into rows of their own: to add to rows that others need
// would make everybody wait for the user's transaction.
func (u *userTx) end(ctx context.Context) error {
	if len(u.counts) == 0 {
		return nil
	}
	var tuples []tuple
	for k, c := range u.counts {
		if c.zero() {
			continue
		}
		at := any(none)
		if k.at != never {
			at = k.at
		}
		shard := shards + rand.Uint64N(1<<62)
		tuples = append(tuples, tuple{k.queueID, shard, c.waiting, c.leased, c.dead, c.early, c.earlyLease, at})
	}
	for slice := range slices.Chunk(tuples, 500) {
		if err := u.exec(ctx, "tally_own", slice); err != nil {
			return err
		}
	}
	u.s.lookClosely()
	return nil
}

// lookClosely lets the watcher look often for a while.
func (s *Store) lookClosely() {
	s.closely.Store(time.Now().Add(closeFor).UnixNano())
	select {
	case s.kick <- struct{}{}:
	default:
	}
}
