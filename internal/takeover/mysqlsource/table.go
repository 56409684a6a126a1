package mysqlsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/duetime/duetime/store"
)

// table is the user's, as the server describes it.
type table struct {
	name    string // quoted, with the database
	state   string // our own, quoted, with the database
	lock    string // name of the lock
	id      column
	due     column
	payload *column
	where   string // in brackets; "TRUE" where there is none
	innoDB  bool
	byID    string // the table and the hint to go by the unique index
	skips   bool   // the server knows SKIP LOCKED
}

type column struct {
	name string // quoted
	kind string // datetime, bigint and so on, in lower case
	null bool
}

// quote makes an identifier of any text.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// StateTable is the name of the table that says how far the import from a table is.
func StateTable(name string) string {
	const prefix, most = "duetime_import_", 64
	runes := []rune(name)
	if len(prefix)+len(runes) <= most {
		return prefix + name
	}
	return prefix + string(runes[:32]) + "_" + digest(name)[:16]
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (s *Source) inspect(ctx context.Context, database string) error {
	o := &s.opts
	t := &s.table
	t.name = quote(database) + "." + quote(o.Table)
	t.state = quote(database) + "." + quote(StateTable(o.Table))
	t.lock = "duetime:" + digest(database + "\x00" + o.Table)[:40]
	t.where = "TRUE"
	if o.Where != "" {
		t.where = "(" + o.Where + "\n)" // a comment at the end does not take the bracket with it
	}
	columns, err := s.columns(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		flag, name string
		to         *column
	}{{"--id-column", o.IDColumn, &t.id}, {"--due-column", o.DueColumn, &t.due}, {"--payload-column", o.PayloadColumn, nil}} {
		if c.to == nil {
			if c.name == "" {
				continue
			}
			t.payload = &column{}
			c.to = t.payload
		}
		found, ok := columns[strings.ToLower(c.name)]
		if !ok {
			return store.NewInputError(c.flag, c.name, "is no column of the table %s", o.Table)
		}
		*c.to = found
	}
	if err := s.checkID(ctx); err != nil {
		return err
	}
	if err := s.checkDue(); err != nil {
		return err
	}
	return s.checkChange(ctx)
}

// text gets the answer to a question as text, with nothing for NULL.
func (s *Source) text(ctx context.Context, query string) ([]map[string]string, error) {
	rows, err := s.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var all []map[string]string
	for rows.Next() {
		fields, dest := make([][]byte, len(names)), make([]any, len(names))
		for i := range fields {
			dest[i] = &fields[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		row := make(map[string]string)
		for i, name := range names {
			row[strings.ToLower(name)] = string(fields[i])
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func (s *Source) columns(ctx context.Context) (map[string]column, error) {
	rows, err := s.text(ctx, "SHOW COLUMNS FROM "+s.table.name)
	if number(err) == 1146 {
		return nil, store.NewInputError("--table", s.opts.Table, "is no table of that database")
	}
	if err != nil {
		return nil, err
	}
	columns := make(map[string]column)
	for _, r := range rows {
		kind := strings.ToLower(r["type"])
		if end := strings.IndexAny(kind, "( "); end >= 0 {
			kind = kind[:end]
		}
		columns[strings.ToLower(r["field"])] = column{name: quote(r["field"]), kind: kind, null: r["null"] == "YES"}
	}
	return columns, nil
}

// checkID wants ids that the server finds by an index, of which no two are the same.
func (s *Source) checkID(ctx context.Context) error {
	id := s.opts.IDColumn
	switch s.table.id.kind {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "char", "varchar", "binary", "varbinary", "uuid":
	default:
		return store.NewInputError("--id-column", id, "is a column of type %s, must have whole numbers or text", s.table.id.kind)
	}
	rows, err := s.text(ctx, "SHOW INDEX FROM "+s.table.name)
	if err != nil {
		return err
	}
	width := make(map[string]int) // columns in each index
	for _, r := range rows {
		width[r["key_name"]]++
	}
	for _, r := range rows {
		if r["non_unique"] == "0" && width[r["key_name"]] == 1 && r["sub_part"] == "" && strings.EqualFold(r["column_name"], id) {
			s.table.byID = s.table.name + " FORCE INDEX (" + quote(r["key_name"]) + ")"
			return nil
		}
	}
	return store.NewInputError("--id-column", id, "has no unique index of its own in %s, so that two rows could be one task: CREATE UNIQUE INDEX … ON %s (%s)", s.opts.Table, s.table.name, s.table.id.name)
}

func (s *Source) checkDue() error {
	o := &s.opts
	flags := func(unit, zone bool, what string) error {
		now := time.Now()
		switch {
		case unit && o.Unit == "":
			return store.NewInputError("--unit", "", "is needed, as %s is %s: what does it count since 1970, s, ms, us or ns? (%d is now in s, %d in ms)", o.DueColumn, what, now.Unix(), now.UnixMilli())
		case !unit && o.Unit != "":
			return store.NewInputError("--unit", string(o.Unit), "is for columns of numbers: %s is %s", o.DueColumn, what)
		case zone && o.Zone == nil:
			return store.NewInputError("--zone", "", "is needed, as %s is %s, which says no time zone: UTC, one such as Asia/Shanghai, or +08:00", o.DueColumn, what)
		case !zone && o.Zone != nil:
			return store.NewInputError("--zone", o.Zone.String(), "is for DATETIME and DATE: %s is %s", o.DueColumn, what)
		}
		return nil
	}
	switch s.table.due.kind {
	case "datetime", "date":
		return flags(false, true, "a "+strings.ToUpper(s.table.due.kind))
	case "timestamp":
		return flags(false, false, "a TIMESTAMP, which needs none")
	case "int", "bigint", "decimal", "double":
		return flags(true, false, "a number")
	}
	return store.NewInputError("--due-column", o.DueColumn, "is a column of type %s, must be DATETIME, TIMESTAMP, DATE, INT, BIGINT, DECIMAL or DOUBLE: a generated column can be one", s.table.due.kind)
}

// checkChange looks whether the conditions can be read, and whether rows can be
// taken from their consumers.
func (s *Source) checkChange(ctx context.Context) error {
	o := &s.opts
	conditions := []string{s.table.where}
	if o.Where != "" {
		// Without brackets, too: x) OR (y is one within them only, and means another
		// thing there.
		conditions = append(conditions, o.Where+"\n")
	}
	for _, condition := range conditions {
		if _, err := s.text(ctx, "SELECT 1 FROM "+s.table.name+" WHERE "+condition+" LIMIT 0"); err != nil {
			if o.Where != "" && number(err) != 0 {
				return store.NewInputError("--where", o.Where, "is not what the server can use after WHERE: %v", err)
			}
			return err
		}
	}
	rows, err := s.text(ctx, "SHOW TABLE STATUS WHERE Name = "+literal(o.Table))
	if err != nil {
		return err
	}
	for _, r := range rows {
		s.table.innoDB = strings.EqualFold(r["engine"], "InnoDB")
	}
	if !o.keeps() && !s.table.innoDB {
		return store.NewInputError("--table", o.Table, "is not kept by InnoDB, so that a row can not be taken and noted in one transaction: ALTER TABLE … ENGINE=InnoDB, or leave out --delete and --set")
	}
	if !o.keeps() {
		_, err := s.text(ctx, "SELECT 1 FROM "+s.table.byID+" WHERE FALSE LIMIT 0 FOR UPDATE SKIP LOCKED")
		s.table.skips = err == nil // a server of an earlier time has it not
	}
	if o.Set != "" {
		// A statement of its own, which changes nothing.
		if _, err := s.conn.ExecContext(ctx, "UPDATE "+s.table.name+" SET "+o.Set+"\nWHERE FALSE"); err != nil {
			if number(err) != 0 {
				return store.NewInputError("--set", o.Set, "is not what the server can use after SET: %v", err)
			}
			return err
		}
	}
	return nil
}

// literal is text as SQL that is the same in every mode and session: of the weakest
// kind, so that comparisons go by the column's collation, and use its index.
func literal(text string) string {
	if text == "" {
		return "''"
	}
	return "_utf8mb4 X'" + hex.EncodeToString([]byte(text)) + "'"
}

var isNumber = regexp.MustCompile(`^-?\d+(\.\d+)?$`)

// literal is one of its values as SQL.
func (c *column) literal(value string) (string, error) {
	switch c.kind {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal":
		if !isNumber.MatchString(value) {
			return "", fmt.Errorf("column %s has the value %q, which is no number", c.name, value)
		}
		return value, nil
	case "binary", "varbinary":
		return "X'" + hex.EncodeToString([]byte(value)) + "'", nil
	}
	return literal(value), nil
}
