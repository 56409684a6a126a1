// Package mysqlsource takes tasks over from a table in MySQL or MariaDB, as programs
// that poll a table make them by hand: see package takeover.
//
// Beside the user's table it has one of its own, duetime_import_ and the table's
// name, which says of each row how far it is: staged, in the store, or, where the
// user's rows stay as they are, done. A row is taken from its old consumers in the same
// transaction that notes it as stored; until then it stays as it was, and what has
// become of it by then decides.
//
// All is done on one connection, which holds a lock of the server's (GET_LOCK). A
// process that was killed loses both at once, and one that was taken for dead by the
// server can not do anything any more.
package mysqlsource

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/mysqlstore"
)

// Options say what is taken over, and how it is to be read.
type Options struct {
	Table         string // in the URL's database
	IDColumn      string // under a unique index of its own
	DueColumn     string
	PayloadColumn string // empty: the id is the payload too
	Where         string // SQL; empty: all rows

	Unit  takeover.Unit  // what numbers in DueColumn count; empty where it has no numbers
	Zone  *time.Location // of DATETIME and DATE; nil where the column is neither
	Delay time.Duration  // how much later than DueColumn says a task is due
	// Created is set where DueColumn says when a row was made.
	Created bool

	// Rows stay as they are, unless one of these takes them from their old consumers.
	Delete bool
	Set    string // SQL: what follows SET in an UPDATE, after which Where does not match

	// Queue and To name where tasks go, so that a takeover that was broken off is
	// not gone on with to another place.
	Queue, To string

	MaxPayload int // bytes

	// Waiting is called once where another process has the lock, with the number of
	// its connection. May be nil.
	Waiting func(connection int64)

	// Patience is how long to wait for that lock; 0: 15 s.
	Patience time.Duration

	slice int // rows in one step; tests have small ones
}

const (
	sliceRows  = 500
	sliceBytes = 4 << 20
	firstLeft  = 10
)

// keeps reports whether the user's rows stay as they are.
func (o *Options) keeps() bool { return !o.Delete && o.Set == "" }

// Source is a takeover.Source. Close it.
type Source struct {
	opts  Options
	db    *sql.DB
	conn  *sql.Conn // of its own
	table table
	token int64 // number of the connection, while it has the lock

	skip map[string]bool
	passing
}

var _ takeover.Source = (*Source)(nil)

// Open connects to the database that a URL names, in the form that
// mysqlstore.Open takes, and looks at the table. An *InputError shows no password.
func Open(ctx context.Context, url string, opts Options) (*Source, error) {
	if opts.slice == 0 {
		opts.slice = sliceRows
	}
	if opts.Patience == 0 {
		opts.Patience = 15 * time.Second
	}
	name, err := mysqlstore.DataSource(url)
	if err != nil {
		var input *store.InputError
		if errors.As(err, &input) && input.Field == "store" {
			input.Field = "URL"
		}
		return nil, err
	}
	config, err := mysql.ParseDSN(name)
	if err != nil {
		return nil, err
	}
	config.Logger = silent{}
	config.Collation = "" // the server's for its character set; see session
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	s := &Source{opts: opts, db: sql.OpenDB(connector), skip: make(map[string]bool)}
	if err := s.start(ctx, config.DBName); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

type silent struct{}

func (silent) Print(...any) {}

// session is what the connection is set to. Zone and SQL mode stay the server's own,
// so that the user's conditions mean here what they mean elsewhere; nothing else
// depends on them, but that text is not to be filled up with spaces. The server ends
// the connection of a machine that is gone after ten minutes.
var session = []string{
	"SET NAMES utf8mb4",
	"SET SESSION sql_mode = REPLACE(@@SESSION.sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', ''), autocommit = 1, sql_safe_updates = 0, innodb_lock_wait_timeout = 5, wait_timeout = 600",
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
}

func (s *Source) start(ctx context.Context, database string) (err error) {
	if s.conn, err = s.db.Conn(ctx); err != nil {
		return err
	}
	for _, text := range session {
		if _, err := s.conn.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("settings of the session: %w", err)
		}
	}
	return s.inspect(ctx, database)
}

// Close ends the connection.
func (s *Source) Close() error {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	return s.db.Close()
}

// about is what a takeover is about, as it is kept.
type about struct {
	Version int           `json:"version"`
	To      string        `json:"to"`
	ID      string        `json:"id"`
	Due     string        `json:"due"`
	Payload string        `json:"payload"`
	Where   string        `json:"where"`
	Unit    takeover.Unit `json:"unit"`
	Zone    string        `json:"zone"`
	Delay   time.Duration `json:"delay"`
	Created bool          `json:"created"`
	Delete  bool          `json:"delete"`
	Set     string        `json:"set"`
	Hold    time.Time     `json:"hold"`
}

// Begin implements takeover.Source.
func (s *Source) Begin(ctx context.Context, hold time.Time) (time.Time, error) {
	if err := s.lock(ctx); err != nil {
		return hold, err
	}
	if err := s.createState(ctx); err != nil {
		return hold, err
	}
	o := &s.opts
	mine := about{
		Version: 1, To: o.To, ID: o.IDColumn, Due: o.DueColumn, Payload: o.PayloadColumn, Where: o.Where, Unit: o.Unit,
		Delay: o.Delay, Created: o.Created, Delete: o.Delete, Set: o.Set, Hold: hold,
	}
	if o.Zone != nil {
		mine.Zone = o.Zone.String()
	}
	text, err := s.note(ctx)
	if err != nil {
		return hold, err
	}
	if staged, err := s.staged(ctx); err != nil {
		return hold, err
	} else if len(staged) > 0 {
		return s.sameAs(ctx, mine, text)
	}
	if err := s.rehearse(ctx); err != nil {
		return hold, errors.Join(err, s.End(ctx))
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return hold, err
	}
	return hold, s.setNote(ctx, b)
}

// sameAs compares what an earlier takeover was about.
func (s *Source) sameAs(ctx context.Context, mine about, text []byte) (time.Time, error) {
	var there about
	err := json.Unmarshal(text, &there)
	if err == nil && there.Version > mine.Version {
		err = fmt.Errorf("it is of version %d, this program knows up to %d", there.Version, mine.Version)
	}
	hold := there.Hold
	if err != nil {
		err = fmt.Errorf("table %s can not be read: %w", s.table.state, err)
	} else if other := there; !there.Delete && !mine.Delete && (there.Set == "") == (mine.Set == "") {
		// How rows are changed may be put right: those that are staged were not changed
		// yet, and those that were are tasks now.
		if other.Hold, other.Set = mine.Hold, mine.Set; other == mine {
			mine.Hold = there.Hold
			b, err := json.Marshal(mine)
			if err == nil {
				err = s.setNote(ctx, b)
			}
			return hold, err
		}
	}
	if there.Hold = mine.Hold; err == nil && there != mine {
		err = fmt.Errorf("an import from %s into queue %s of %s was broken off, with other flags than these: finish it first, by the same command as then", s.opts.Table, s.opts.Queue, there.To)
	}
	if err != nil {
		return hold, errors.Join(err, s.End(ctx))
	}
	return hold, nil
}

// lock makes sure that there is no other takeover from the table.
func (s *Source) lock(ctx context.Context) error {
	giveUp := time.Time{}
	for {
		var got sql.NullInt64
		if err := s.conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+s.table.lock+"', 0)").Scan(&got); err != nil {
			return err
		}
		if got.Int64 == 1 {
			return s.conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&s.token)
		}
		var other sql.NullInt64
		if err := s.conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK('"+s.table.lock+"')").Scan(&other); err != nil {
			return err
		}
		if now := time.Now(); giveUp.IsZero() {
			giveUp = now.Add(s.opts.Patience)
			if s.opts.Waiting != nil {
				s.opts.Waiting(other.Int64)
			}
		} else if now.After(giveUp) {
			return fmt.Errorf("another import from %s is under way, by connection %d of the server: if that is gone, with its machine, end it with KILL %d", s.opts.Table, other.Int64, other.Int64)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// End implements takeover.Source.
func (s *Source) End(ctx context.Context) error {
	if err := s.dropState(ctx); err != nil {
		return err
	}
	_, err := s.conn.ExecContext(ctx, "DO RELEASE_LOCK('"+s.table.lock+"')")
	return err
}

// again runs f, which is one transaction or statement, again where the server broke
// it off for a deadlock or as a lock was not to be had.
func again(ctx context.Context, f func() error) error {
	for attempt := 0; ; attempt++ {
		err := f()
		var answer *mysql.MySQLError
		if !errors.As(err, &answer) || answer.Number != 1213 && answer.Number != 1205 || attempt == 9 {
			return err
		}
		select {
		case <-time.After(time.Duration(10<<min(attempt, 6)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tx runs f in a transaction, perhaps several times.
func (s *Source) tx(ctx context.Context, f func(*sql.Tx) error) error {
	return again(ctx, func() error {
		tx, err := s.conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
}
