package mysqlsource

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/store"
)

// passing is how far a pass over the table is. It goes by the id, as the server
// orders ids.
type passing struct {
	after string // SQL: the last id that was read; empty at the beginning
	ahead []row  // rows that were read and not taken yet
	last  bool   // nothing comes behind ahead
	left  int64  // since Rewind
	first []takeover.Left
}

// row is one that can become a task.
type row struct {
	takeover.Entry
	size int64 // of the payload as the server has it, in bytes
}

// Rewind implements takeover.Source.
func (s *Source) Rewind() { s.passing = passing{} }

// Skip implements takeover.Source.
func (s *Source) Skip(id string) { s.skip[id] = true }

// Left implements takeover.Source.
func (s *Source) Left() (int64, []takeover.Left) { return s.left, s.first }

func (s *Source) leave(id, why string) {
	s.left++
	if len(s.first) < firstLeft {
		s.first = append(s.first, takeover.Left{ID: id, Why: why})
	}
}

// Count implements takeover.Source.
func (s *Source) Count(ctx context.Context) (n int64, err error) {
	if err := s.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+s.table.name+" WHERE "+s.table.where).Scan(&n); err != nil || !s.opts.keeps() {
		return n, err
	}
	var before int64
	err = s.conn.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE %s AND phase = %d AND id <> ''", s.table.state, s.queueIs(), done)).Scan(&before)
	return max(n-before, 0), err
}

// Take implements takeover.Source.
func (s *Source) Take(ctx context.Context) (entries []takeover.Entry, more bool, err error) {
	if len(s.ahead) == 0 {
		if s.last {
			return nil, false, nil
		}
		if err := s.read(ctx); err != nil {
			return nil, false, err
		}
	}
	n, size := 0, int64(0)
	for n < min(len(s.ahead), s.opts.slice) && (n == 0 || size+s.ahead[n].size <= sliceBytes) {
		size += s.ahead[n].size
		entries = append(entries, s.ahead[n].Entry)
		n++
	}
	if s.table.payload != nil && n > 0 {
		if entries, err = s.payloads(ctx, entries); err != nil {
			return nil, false, err
		}
	}
	if err := s.stage(ctx, entries); err != nil {
		return nil, false, err
	}
	s.ahead = s.ahead[n:]
	return entries, len(s.ahead) > 0 || !s.last, nil
}

// read reads the next rows that can be taken into ahead.
func (s *Source) read(ctx context.Context) error {
	where := s.table.where
	if s.after != "" {
		where = s.table.id.name + " > " + s.after + " AND " + where
	} else if s.table.id.null {
		if err := s.nameless(ctx); err != nil {
			return err
		}
	}
	if s.table.id.null {
		where = s.table.id.name + " IS NOT NULL AND " + where
	}
	size := "0"
	if s.table.payload != nil {
		size = "COALESCE(OCTET_LENGTH(" + s.table.payload.name + "), 0)"
	}
	rows, err := s.conn.QueryContext(ctx, fmt.Sprintf("SELECT %s, %s, %s FROM %s WHERE %s ORDER BY %s LIMIT %d",
		s.table.id.name, s.dueSQL(), size, s.table.name, where, s.table.id.name, sliceRows))
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	var found []row
	for ; rows.Next(); n++ {
		var r row
		var due sql.NullString
		if err := rows.Scan(&r.ID, &due, &r.size); err != nil {
			return err
		}
		if s.after, err = s.table.id.literal(r.ID); err != nil {
			return err
		}
		if s.good(&r, due) {
			found = append(found, r)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	s.last = n < sliceRows
	if !s.opts.keeps() {
		s.ahead = found
		return nil
	}
	entries := make([]takeover.Entry, len(found))
	for i, r := range found {
		entries[i] = r.Entry
	}
	is, err := s.noted(ctx, entries)
	for _, r := range found {
		if !is[r.ID] {
			s.ahead = append(s.ahead, r)
		}
	}
	return err
}

// nameless counts rows that have no id.
func (s *Source) nameless(ctx context.Context) error {
	var n int64
	err := s.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+s.table.name+" WHERE "+s.table.id.name+" IS NULL AND "+s.table.where).Scan(&n)
	if err == nil && n > 0 {
		s.leave("NULL", "has no id")
		s.left += n - 1
	}
	return err
}

// good says that a row may become a task; one that may not is left.
func (s *Source) good(r *row, due sql.NullString) bool {
	if s.skip[r.ID] {
		return false // it is counted already
	}
	err := store.CheckID(r.ID)
	switch {
	case err != nil && strings.HasSuffix(s.table.id.kind, "binary"):
		err = fmt.Errorf("%w: a generated column with HEX(%s) and a unique index can be the column of the ids", err, s.opts.IDColumn)
	case err != nil:
	case !due.Valid:
		err = fmt.Errorf("its %s is NULL", s.opts.DueColumn)
	default:
		r.Due, r.Created, err = s.times(due.String)
	}
	if err == nil && r.size > int64(s.opts.MaxPayload) {
		err = s.tooLong()
	}
	if err != nil {
		s.leave(r.ID, err.Error())
		return false
	}
	if s.table.payload == nil {
		r.Payload = []byte(r.ID)
	}
	return true
}

func (s *Source) tooLong() error {
	return fmt.Errorf("its payload is longer than %d bytes", s.opts.MaxPayload)
}

// rowsAre is a condition on the user's table.
func (s *Source) rowsAre(entries []takeover.Entry) (string, error) {
	ids := make([]string, len(entries))
	for i, e := range entries {
		var err error
		if ids[i], err = s.table.id.literal(e.ID); err != nil {
			return "", err
		}
	}
	return s.table.id.name + " IN (" + strings.Join(ids, ",") + ") AND " + s.table.where, nil
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// look returns what rows are now, by id; those that are not there any more are left
// out.
func (s *Source) look(ctx context.Context, in queryer, entries []takeover.Entry, lock string) (map[string]takeover.Entry, error) {
	are, err := s.rowsAre(entries)
	if err != nil {
		return nil, err
	}
	payload := "NULL"
	if s.table.payload != nil {
		payload = s.table.payload.name
	}
	rows, err := in.QueryContext(ctx, "SELECT "+s.table.id.name+", "+s.dueSQL()+", "+payload+" FROM "+s.table.byID+" WHERE "+are+lock)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	now := make(map[string]takeover.Entry)
	for rows.Next() {
		var e takeover.Entry
		var due sql.NullString
		if err := rows.Scan(&e.ID, &due, &e.Payload); err != nil {
			return nil, err
		}
		if e.Due, e.Created, err = s.times(due.String); err != nil {
			continue // it has changed
		}
		if s.table.payload == nil {
			e.Payload = []byte(e.ID)
		} else if len(e.Payload) == 0 {
			e.Payload = nil
		}
		now[e.ID] = e
	}
	return now, rows.Err()
}

// payloads reads the payloads of rows, and leaves out those that are not there any
// more.
func (s *Source) payloads(ctx context.Context, entries []takeover.Entry) (there []takeover.Entry, err error) {
	now, err := s.look(ctx, s.conn, entries, "")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		is, ok := now[e.ID]
		if !ok {
			continue
		}
		if len(is.Payload) > s.opts.MaxPayload { // as UTF-8 it is longer than in the table
			s.leave(e.ID, s.tooLong().Error())
			continue
		}
		there = append(there, is)
	}
	return there, nil
}

// Stored implements takeover.Source: it takes rows that are as they were from their
// old consumers, and returns the others.
func (s *Source) Stored(ctx context.Context, entries []takeover.Entry) (gone []takeover.Entry, err error) {
	err = eachSlice(entries, func(some []takeover.Entry) error {
		var missing []takeover.Entry
		err := s.tx(ctx, func(tx *sql.Tx) error {
			missing = nil
			return s.take(ctx, tx, some, &missing)
		})
		gone = append(gone, missing...)
		return err
	})
	return gone, err
}

// errRehearsed ends the transaction of a rehearsal.
var errRehearsed = errors.New("it would work")

// rehearse takes one row and undoes that: whether --set and --where fit each other, and
// whether triggers and foreign keys let it be, is better known before anything is
// staged.
func (s *Source) rehearse(ctx context.Context) error {
	if s.opts.keeps() {
		return nil
	}
	lock := " FOR UPDATE"
	if s.table.skips {
		lock += " SKIP LOCKED"
	}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var e takeover.Entry
		err := tx.QueryRowContext(ctx, "SELECT "+s.table.id.name+" FROM "+s.table.name+" WHERE "+s.table.id.name+" IS NOT NULL AND "+s.table.where+" LIMIT 1"+lock).Scan(&e.ID)
		if errors.Is(err, sql.ErrNoRows) {
			return errRehearsed
		}
		if err != nil {
			return err
		}
		if err := s.alter(ctx, tx, []takeover.Entry{e}); err != nil {
			return err
		}
		return errRehearsed
	})
	if errors.Is(err, errRehearsed) {
		return nil
	}
	return err
}

func (s *Source) take(ctx context.Context, tx *sql.Tx, entries []takeover.Entry, gone *[]takeover.Entry) error {
	lock := ""
	switch {
	case s.opts.keeps():
	case s.table.skips:
		// Nothing is waited for, so that the old consumers' statements, which hold
		// less, are not the ones that a deadlock breaks off. Who has a row now is
		// changing it.
		lock = " FOR UPDATE SKIP LOCKED"
	default:
		lock = " FOR UPDATE"
	}
	now, err := s.look(ctx, tx, entries, lock)
	if err != nil {
		return err
	}
	var same []takeover.Entry
	for _, e := range entries {
		if is, ok := now[e.ID]; ok && is.Due.Equal(e.Due) && bytes.Equal(is.Payload, e.Payload) {
			same = append(same, e)
		} else {
			*gone = append(*gone, e)
		}
	}
	if len(same) == 0 {
		return nil
	}
	r, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET phase = %d WHERE phase = %d AND %s", s.table.state, stored, staged, s.are(same)))
	if err := s.changed(r, err, len(same)); err != nil {
		return err
	}
	if s.opts.keeps() {
		return nil
	}
	return s.alter(ctx, tx, same)
}

// alter takes rows from their old consumers.
func (s *Source) alter(ctx context.Context, tx *sql.Tx, same []takeover.Entry) error {
	are, err := s.rowsAre(same)
	if err != nil {
		return err
	}
	change := "DELETE " + s.table.name + " FROM " + s.table.byID + " WHERE " + are
	if !s.opts.Delete {
		change = "UPDATE " + s.table.byID + " SET " + s.opts.Set + "\nWHERE " + are
	}
	r, err := tx.ExecContext(ctx, change)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil {
		return err
	} else if n != int64(len(same)) {
		return fmt.Errorf("%d of %d rows of %s were changed: does --set change nothing?", n, len(same), s.opts.Table)
	}
	if s.opts.Delete {
		return nil
	}
	var still int64
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+s.table.byID+" WHERE "+are).Scan(&still); err != nil {
		return err
	}
	if still > 0 {
		return errors.New("rows still match --where after --set, and would be taken again and again: one has to exclude the other; run it again with another --set")
	}
	return nil
}
