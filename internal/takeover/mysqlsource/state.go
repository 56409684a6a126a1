package mysqlsource

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/duetime/duetime/internal/takeover"
)

// The phases of a row, in the state table.
const (
	staged = 0 // it may be in the store, held
	stored = 1 // it is there, and was taken from its old consumers
	done   = 2 // it has been let go; kept where the user's rows stay as they are
)

func number(err error) uint16 {
	var answer *mysql.MySQLError
	if errors.As(err, &answer) {
		return answer.Number
	}
	return 0
}

// createState makes the table, in which a row without an id says what the import into
// a queue is about.
func (s *Source) createState(ctx context.Context) error {
	_, err := s.conn.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+s.table.state+` (
		queue VARBINARY(100) NOT NULL,
		id VARBINARY(255) NOT NULL,
		phase TINYINT NOT NULL,
		due BIGINT NOT NULL,
		note BLOB,
		PRIMARY KEY (queue, id),
		KEY by_phase (queue, phase)
	) ENGINE=InnoDB ROW_FORMAT=DYNAMIC`)
	if n := number(err); n == 1142 || n == 1044 || n == 1290 || n == 1836 {
		return fmt.Errorf("what was taken over is noted in the table %s, which can not be made: %w", s.table.state, err)
	}
	return err
}

// dropState removes the table where it says nothing any more.
func (s *Source) dropState(ctx context.Context) error {
	rows, err := s.text(ctx, "SELECT queue FROM "+s.table.state+" WHERE id <> '' LIMIT 1")
	if err != nil || len(rows) > 0 {
		return err
	}
	_, err = s.conn.ExecContext(ctx, "DROP TABLE "+s.table.state)
	return err
}

// binary is text as SQL of bytes.
func binary(text string) string { return "X'" + hex.EncodeToString([]byte(text)) + "'" }

func (s *Source) queueIs() string { return "queue = " + binary(s.opts.Queue) }

// note is what an earlier takeover was about, or nothing.
func (s *Source) note(ctx context.Context) (text []byte, err error) {
	err = s.conn.QueryRowContext(ctx, "SELECT note FROM "+s.table.state+" WHERE "+s.queueIs()+" AND id = ''").Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return text, err
}

func (s *Source) setNote(ctx context.Context, text []byte) error {
	return again(ctx, func() error {
		_, err := s.conn.ExecContext(ctx, fmt.Sprintf("REPLACE INTO %s (queue, id, phase, due, note) VALUES (%s, '', %d, 0, %s)",
			s.table.state, binary(s.opts.Queue), done, binary(string(text))))
		return err
	})
}

func (s *Source) staged(ctx context.Context) ([]takeover.Entry, error) {
	rows, err := s.text(ctx, fmt.Sprintf("SELECT id, phase, due FROM %s WHERE %s AND phase < %d", s.table.state, s.queueIs(), done))
	if err != nil {
		return nil, err
	}
	entries := make([]takeover.Entry, len(rows))
	for i, r := range rows {
		due, err := strconv.ParseInt(r["due"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("table %s: the row %q can not be read", s.table.state, r["id"])
		}
		entries[i] = takeover.Entry{ID: r["id"], Due: time.UnixMilli(due).UTC(), Stored: r["phase"] == "1", Anew: r["phase"] == "0"}
	}
	return entries, nil
}

// Staged implements takeover.Source. Nobody knows any more what a row that is not
// stored looked like when it was taken: it is to be taken anew.
func (s *Source) Staged(ctx context.Context) ([]takeover.Entry, error) { return s.staged(ctx) }

// stage notes rows as staged.
func (s *Source) stage(ctx context.Context, entries []takeover.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (queue, id, phase, due) VALUES ", s.table.state)
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "(%s,%s,%d,%d)", binary(s.opts.Queue), binary(e.ID), staged, e.Due.UnixMilli())
	}
	return again(ctx, func() error {
		_, err := s.conn.ExecContext(ctx, b.String())
		return err
	})
}

// are is a condition on the state table.
func (s *Source) are(entries []takeover.Entry) string {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = binary(e.ID)
	}
	return s.queueIs() + " AND id IN (" + strings.Join(ids, ",") + ")"
}

// eachSlice gives all entries to f, a few at a time.
func eachSlice(entries []takeover.Entry, f func([]takeover.Entry) error) error {
	for len(entries) > 0 {
		n := min(len(entries), sliceRows)
		if err := f(entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// change runs a statement that must change as many rows of the state table as there
// are entries.
func (s *Source) change(ctx context.Context, text string, entries []takeover.Entry) error {
	return eachSlice(entries, func(some []takeover.Entry) error {
		return again(ctx, func() error {
			r, err := s.conn.ExecContext(ctx, text+s.are(some))
			return s.changed(r, err, len(some))
		})
	})
}

func (s *Source) changed(r sql.Result, err error, want int) error {
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil {
		return err
	} else if n != int64(want) {
		return fmt.Errorf("table %s has changed under this import: %d of %d rows are there", s.table.state, n, want)
	}
	return nil
}

// PutBack implements takeover.Source.
func (s *Source) PutBack(ctx context.Context, entries []takeover.Entry) error {
	return s.change(ctx, fmt.Sprintf("DELETE FROM %s WHERE phase = %d AND ", s.table.state, staged), entries)
}

// Done implements takeover.Source.
func (s *Source) Done(ctx context.Context, entries []takeover.Entry) error {
	if s.opts.keeps() {
		return s.change(ctx, fmt.Sprintf("UPDATE %s SET phase = %d WHERE phase = %d AND ", s.table.state, done, stored), entries)
	}
	return s.change(ctx, fmt.Sprintf("DELETE FROM %s WHERE phase = %d AND ", s.table.state, stored), entries)
}

// noted returns which of some ids are in the state table.
func (s *Source) noted(ctx context.Context, entries []takeover.Entry) (map[string]bool, error) {
	is := make(map[string]bool)
	if len(entries) == 0 {
		return is, nil
	}
	rows, err := s.text(ctx, "SELECT id FROM "+s.table.state+" WHERE "+s.are(entries))
	for _, r := range rows {
		is[r["id"]] = true
	}
	return is, err
}
