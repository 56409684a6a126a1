package mysqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/duetime/duetime/store"
)

// patience is how long deadlocks and waits for locks are tried again, where the
// caller's context does not end sooner.
const patience = 30 * time.Second

// link is a connection while one operation has it. Statements are collected and
// sent in packets of several, as each way to the server and back costs as much as
// the work of a statement.
type link struct {
	s    *Store
	conn driver.QueryerContext
	text []byte

	open   bool // a transaction may be open
	ending bool // a COMMIT was sent: whether it was carried out is not known if it fails

	moment
}

// moment is what the store's clock has shown.
type moment struct {
	now  time.Time
	seen time.Time // when that was heard, here; zero: the clock is one of the tests
}

// later is what it shows by now, or a little less, as it took time to hear of it.
func (m moment) later() time.Time {
	if m.seen.IsZero() {
		return m.now
	}
	return m.now.Add(time.Since(m.seen))
}

// with runs f with a connection, again where the server broke a transaction off
// for reasons that have nothing to do with it. f must leave nothing behind when it
// fails before its COMMIT was sent.
func (s *Store) with(ctx context.Context, f func(context.Context, *link) error) error {
	giveUp := time.Now().Add(patience)
	for attempt := 0; ; attempt++ {
		l, err := s.once(ctx, f)
		if err == nil {
			return nil
		}
		// What was broken off while its connection was being made or taken from the
		// pool was never sent.
		stale := errors.Is(err, driver.ErrBadConn) && !l.ending && attempt < 3
		again := stale || errors.Is(err, errRepeat) || serverError(err, errDeadlock, errLockTimeout, errChanged)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !again || time.Now().After(giveUp) {
			return s.explain(err)
		}
		wait := time.Duration(1+rand.Int64N(1<<min(attempt, 6))) * time.Millisecond
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Store) once(ctx context.Context, f func(context.Context, *link) error) (l *link, err error) {
	l = &link{s: s}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return l, err
	}
	defer conn.Close()
	var failed error
	err = conn.Raw(func(dc any) error {
		l.conn = dc.(driver.QueryerContext)
		if failed = f(ctx, l); failed == nil {
			return nil
		}
		// Of no use to the next one, unless it is certain that nothing is open.
		var answer *mysql.MySQLError
		if !l.open {
			if errors.As(failed, &answer) || errors.Is(failed, errUndo) {
				return nil
			}
			return driver.ErrBadConn
		}
		if !errors.As(failed, &answer) && !errors.Is(failed, errUndo) {
			return driver.ErrBadConn
		}
		l.text = l.text[:0]
		l.sql("ROLLBACK")
		if err := l.send(ctx); err != nil {
			return driver.ErrBadConn
		}
		return nil
	})
	if failed != nil {
		return l, failed
	}
	return l, err
}

// errUndo is what a function given to with returns, wrapped or not, to have its
// transaction undone.
var errUndo = errors.New("undo")

// errRepeat is errUndo, and to begin again.
var errRepeat = fmt.Errorf("begin again: %w", errUndo)

// explain makes the error that callers see.
func (s *Store) explain(err error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("mysql: %w: %w", store.ErrFull, err)
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn):
		return fmt.Errorf("mysql: the connection to the server was lost: %w", err)
	case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrVersion):
		return err
	}
	return fmt.Errorf("mysql: %w", err)
}

// add puts a statement into the next packet.
func (l *link) add(name string, args ...any) {
	st, ok := l.s.sql[name]
	if !ok {
		panic("no statement " + name)
	}
	if len(l.text) > 0 {
		l.text = append(l.text, ';')
	}
	l.text = st.fill(l.text, args...)
}

func (l *link) sql(text string) {
	if len(l.text) > 0 {
		l.text = append(l.text, ';')
	}
	l.text = append(l.text, text...)
}

func (l *link) begin() {
	l.sql("START TRANSACTION READ WRITE")
	l.open = true
}

func (l *link) commit() {
	l.sql("COMMIT")
	l.ending = true
}

// undo ends a transaction that is to change nothing.
func (l *link) undo(ctx context.Context) error {
	l.text = l.text[:0]
	l.sql("ROLLBACK")
	err := l.send(ctx)
	l.open = err != nil
	return err
}

// values is one row of an answer, good until the next one is read.
type values []driver.Value

// send sends what was added, and gives each row of the first set of rows in the
// answer to the first function, and so on.
func (l *link) send(ctx context.Context, each ...func(values) error) (err error) {
	text := string(l.text)
	l.text = l.text[:0]
	rows, err := l.conn.QueryContext(ctx, text, nil)
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	next, _ := rows.(driver.RowsNextResultSet)
	for i := 0; len(rows.Columns()) > 0; i++ {
		dest := make(values, len(rows.Columns()))
		for {
			if err := rows.Next(dest); err == io.EOF {
				break
			} else if err != nil {
				return err
			}
			if i >= len(each) {
				return fmt.Errorf("an answer that nobody asked for to %.60q", text)
			}
			if each[i] == nil {
				continue
			}
			if err := each[i](dest); err != nil {
				return err
			}
		}
		if err := next.NextResultSet(); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	if l.ending {
		l.open = false
	}
	return nil
}

// clock adds the question for the time to a packet; tell takes the answer.
func (l *link) clock() { l.add("now") }

func (l *link) tell(v values) error {
	if l.s.opts.now != nil {
		l.moment = moment{now: l.s.opts.now().UTC()}
		return nil
	}
	l.now, l.seen = time.UnixMicro(v.int(0)).UTC(), time.Now()
	l.s.offset.Store(int64(time.Until(l.now)))
	return nil
}

// guess is the store's clock without asking it: a hint.
func (s *Store) guess() time.Time {
	if s.opts.now != nil {
		return s.opts.now()
	}
	return time.Now().Add(time.Duration(s.offset.Load()))
}

func (v values) int(i int) int64 {
	switch n := v[i].(type) {
	case int64:
		return n
	case uint64:
		return int64(n)
	case []byte: // sums are decimals
		return parseInt(n)
	case nil:
		return 0
	}
	panic(fmt.Sprintf("a %T in the place of a number", v[i]))
}

func parseInt(b []byte) int64 {
	var n int64
	negative := false
	for i, c := range b {
		if i == 0 && c == '-' {
			negative = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

func (v values) uint(i int) uint64 {
	if n, ok := v[i].(uint64); ok {
		return n
	}
	return uint64(v.int(i))
}

func (v values) string(i int) string {
	b, _ := v[i].([]byte)
	return string(b)
}

// bytes is a copy; nil for NULL and for nothing.
func (v values) bytes(i int) []byte {
	b, _ := v[i].([]byte)
	if len(b) == 0 {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
