package mysqlstore

import (
	"embed"
	"fmt"
	"path"
	"strconv"
	"strings"
)

//go:embed queries/*.sql migrations/*.sql
var files embed.FS

// tables are the names of the store's tables, which share a database with the
// user's own.
var tables = []string{"queue", "turn", "tally", "task", "meta"}

const columns = "seq, queue_id, state, at, due, created, generation, failures, lost, max_attempts, token, size, id, COALESCE(worker_long, worker), last_error, big, headers, payload"

// statement is SQL with holes, each a question mark in the text.
type statement struct {
	name  string
	parts []string // one more than there are holes
}

// statements are those of queries/, by the names of their files, with the names of
// tables in a database filled in.
type statements map[string]statement

func loadStatements(database string) statements {
	s := make(statements)
	entries, err := files.ReadDir("queries")
	if err != nil {
		panic(err) // they are part of this program
	}
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("queries", e.Name()))
		if err != nil {
			panic(err)
		}
		name := strings.TrimSuffix(e.Name(), ".sql")
		s[name] = statement{name, strings.Split(withTables(string(text), database), "?")}
	}
	return s
}

// withTables fills in names and leaves out comments.
func withTables(text, database string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") || line == "--\n" {
			lines = append(lines, line)
		}
	}
	text = strings.TrimSpace(strings.Join(lines, ""))
	text = strings.ReplaceAll(text, "{columns}", columns)
	for _, t := range tables {
		text = strings.ReplaceAll(text, "{"+t+"}", quoteName(database)+".duetime_"+t)
	}
	return text
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// raw is SQL that goes into a hole as it is.
type raw string

// fill appends the statement with its holes filled. The values are written as
// literals, as a packet of several statements can not be prepared; appendLiteral
// says why that is safe.
func (st statement) fill(b []byte, args ...any) []byte {
	if len(args) != len(st.parts)-1 {
		panic(fmt.Sprintf("statement %s: %d values for %d holes", st.name, len(args), len(st.parts)-1))
	}
	for i, p := range st.parts {
		b = append(b, p...)
		if i < len(args) {
			b = appendLiteral(b, args[i])
		}
	}
	return b
}

// placed is the statement for a connection of somebody else's, whose settings are
// not known: with placeholders, and bytes in hexadecimal digits, which are the
// same in all character sets.
func (st statement) placed(args ...any) (string, []any) {
	var b strings.Builder
	var values []any
	one := func(v any) {
		switch v := v.(type) {
		case raw:
			b.WriteString(string(v))
		case string:
			b.WriteString("UNHEX(?)")
			values = append(values, fmt.Sprintf("%x", v))
		case []byte:
			if v == nil {
				b.WriteString("NULL")
				return
			}
			b.WriteString("UNHEX(?)")
			values = append(values, fmt.Sprintf("%x", v))
		default:
			b.WriteString("?")
			values = append(values, v)
		}
	}
	for i, p := range st.parts {
		b.WriteString(p)
		if i == len(args) {
			continue
		}
		switch v := args[i].(type) {
		case []string:
			for j, s := range v {
				if j > 0 {
					b.WriteByte(',')
				}
				one(s)
			}
		case []uint64:
			for j, n := range v {
				if j > 0 {
					b.WriteByte(',')
				}
				one(n)
			}
		case []tuple:
			for j, t := range v {
				if j > 0 {
					b.WriteByte(',')
				}
				b.WriteByte('(')
				for k, x := range t {
					if k > 0 {
						b.WriteByte(',')
					}
					one(x)
				}
				b.WriteByte(')')
			}
		default:
			one(v)
		}
	}
	return b.String(), values
}

// tuple is one row of an INSERT.
type tuple []any

// appendLiteral writes a value as SQL. Strings are safe because the session is
// ours: its sql_mode (see session) leaves the backslash an escape character, and
// its character set is binary, so that no byte is part of another character.
func appendLiteral(b []byte, v any) []byte {
	switch v := v.(type) {
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint32:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case string:
		return appendString(b, v)
	case []byte:
		if v == nil {
			return append(b, "NULL"...)
		}
		return appendString(b, v)
	case raw:
		return append(b, v...)
	case []uint64:
		for i, n := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, n, 10)
		}
		return b
	case []uint32:
		for i, n := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(n), 10)
		}
		return b
	case []string:
		for i, s := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, s)
		}
		return b
	case []tuple:
		for i, t := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, '(')
			for j, x := range t {
				if j > 0 {
					b = append(b, ',')
				}
				b = appendLiteral(b, x)
			}
			b = append(b, ')')
		}
		return b
	}
	panic(fmt.Sprintf("no literal for a %T", v))
}

func appendString[T string | []byte](b []byte, s T) []byte {
	b = append(b, '\'')
	from := 0
	for i := 0; i < len(s); i++ {
		var escaped byte
		switch s[i] {
		case '\'', '\\':
			escaped = s[i]
		case 0:
			escaped = '0'
		default:
			continue
		}
		b = append(b, s[from:i]...)
		b = append(b, '\\', escaped)
		from = i + 1
	}
	b = append(b, s[from:]...)
	return append(b, '\'')
}

// whereSeq is the condition that seq is one of a sorted list. Tasks that were
// scheduled together have neighbouring numbers, and a range is as cheap as one
// number of a list.
func whereSeq(seqs []uint64) raw {
	var ranges, list []byte
	for from := 0; from < len(seqs); {
		to := from + 1
		for to < len(seqs) && seqs[to] == seqs[to-1]+1 {
			to++
		}
		if to-from >= 4 {
			if len(ranges) > 0 {
				ranges = append(ranges, " OR "...)
			}
			ranges = append(ranges, "seq BETWEEN "...)
			ranges = strconv.AppendUint(ranges, seqs[from], 10)
			ranges = append(ranges, " AND "...)
			ranges = strconv.AppendUint(ranges, seqs[to-1], 10)
		} else {
			for _, seq := range seqs[from:to] {
				if len(list) > 0 {
					list = append(list, ',')
				}
				list = strconv.AppendUint(list, seq, 10)
			}
		}
		from = to
	}
	switch {
	case len(list) == 0:
	case len(ranges) == 0:
		ranges = append(append(append(ranges, "seq IN ("...), list...), ')')
	default:
		ranges = append(append(append(ranges, " OR seq IN ("...), list...), ')')
	}
	return raw("(" + string(ranges) + ")")
}
