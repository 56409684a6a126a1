package mysqlstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

// fillRows puts n waiting tasks straight into the table, as quickly as the server
// can, due in the order given by due, and their counters.
func fillRows(t testing.TB, s *Store, name string, n int, due string) *queue {
	t.Helper()
	found, err := s.ensure(context.Background(), map[string]bool{name: true})
	if err != nil {
		t.Fatal(err)
	}
	q := found[name]
	const slice = 50_000
	for from := 0; from < n; from += slice {
		to := min(n, from+slice)
		execute(t, s.db, withTables(fmt.Sprintf(`INSERT INTO {task} (queue_id, state, at, due, created, size, id, payload)
			SELECT %d, 0, %s, %s, 0, 100, CONCAT('order-', LPAD(n, 9, '0')), REPEAT('x', 100) FROM (%s) s WHERE n < %d ORDER BY n`,
			q.id, due, due, countFrom(from), to), s.database))
	}
	execute(t, s.db, withTables(fmt.Sprintf("UPDATE {tally} SET waiting = waiting + %d, early = 0 WHERE queue_id = %d AND shard = 0", n, q.id), s.database))
	return q
}

// countFrom is a table of 100,000 numbers, which MariaDB and MySQL both can make.
func countFrom(n int) string {
	const digit = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	text, scale := fmt.Sprintf("SELECT %d", n), 1
	for _, t := range "abcde" {
		text += fmt.Sprintf(" + %d * %c.d", scale, t)
		scale *= 10
	}
	text += " AS n FROM " + digit + " a"
	for _, t := range "bcde" {
		text += fmt.Sprintf(" JOIN %s %c", digit, t)
	}
	return text
}

// Every statement on the table of tasks reads a range of an index, sorts nothing, and
// needs no table of its own; all but the one that says why in its file.
func TestHotStatementsReadRanges(t *testing.T) {
	t.Parallel()
	s := open(t, database(t), nil)
	base := time.Now().UnixMilli()
	q := fillRows(t, s, "orders", 20_000, fmt.Sprintf("%d + n * 10", base))
	execute(t, s.db, withTables(fmt.Sprintf("UPDATE {task} SET state = 1, at = at + 1000, token = 5 WHERE queue_id = %d AND seq %% 4 = 1", q.id), s.database))
	execute(t, s.db, withTables(fmt.Sprintf("UPDATE {task} SET state = 2 WHERE queue_id = %d AND seq %% 4 = 2", q.id), s.database))
	execute(t, s.db, withTables("ANALYZE TABLE {task}", s.database))
	var ids []string
	var seqs []uint64
	for i := range 400 {
		ids = append(ids, fmt.Sprintf("order-%09d", i*7))
		seqs = append(seqs, uint64(i*7+1))
	}
	mid := base + 50_000
	for name, args := range map[string][]any{
		"claim_ready":    {q.id, mid + 20_000, mid, mid, uint64(100), 100},
		"claim_expired":  {q.id, mid, mid + 20_000, 1000},
		"waiting_from":   {q.id, mid, mid, uint64(100), 101},
		"leased_from":    {q.id, mid},
		"state_lock":     {q.id, dead, 0, mid, 1000},
		"list":           {q.id, dead, int64(never), mid, mid, uint64(100), 100},
		"counted_step":   {q.id, mid, mid + 20_000, 1000},
		"task_find":      {q.id, ids},
		"task_get":       {q.id, ids},
		"task_lock":      {q.id, ids},
		"payloads":       {seqs},
		"claim_payloads": {seqs, 5},
		"ack":            {whereSeq(seqs), 5, mid},
		"task_delete":    {whereSeq(seqs)},
		"task_update":    {raw("state = 1, at = 5, token = 7"), whereSeq(seqs)},
		"tally_sum":      {q.id, mid, mid + 100, q.id, mid, mid + 100, q.id},
		"tally_advance":  {q.id, mid, mid + 100, q.id, mid, mid + 100},
		"tally_early":    {q.id},
		"tally_lock":     {q.id, 1000},
		"turn_lock":      {q.id},
		"queue_share":    {[]uint32{q.id}},
		"place_find":     {q.id, ids},
		"place_list":     {q.id, 0, mid + 20_000, mid, mid, uint64(100), 101},
		"place_claim":    {whereSeq(seqs)},
		"place_there":    {whereSeq(seqs)},
	} {
		text := string(s.sql[name].fill(nil, args...))
		plan := explain(t, s, text)
		t.Logf("%s: %v", name, plan)
		for _, step := range plan {
			if step.kind == "ALL" || step.kind == "index" {
				t.Errorf("%s reads all of %s: %v", name, step.table, step)
			}
			if strings.Contains(step.extra, "filesort") || strings.Contains(step.extra, "temporary") {
				t.Errorf("%s: %v", name, step)
			}
			if step.table == "duetime_task" && step.kind != "range" {
				t.Errorf("%s: %v, want a range", name, step)
			}
		}
	}
	// The check can fail.
	if plan := explain(t, s, "SELECT * FROM duetime_task ORDER BY lost LIMIT 1"); !strings.Contains(plan[0].extra, "filesort") || plan[0].kind != "ALL" {
		t.Errorf("a scan that sorts looks like %v", plan)
	}
}

type planStep struct{ table, kind, key, extra string }

func explain(t testing.TB, s *Store, text string) (steps []planStep) {
	t.Helper()
	rows, err := s.db.Query("EXPLAIN FORMAT=TRADITIONAL " + text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		fields, dest := make([][]byte, len(names)), make([]any, len(names))
		for i := range fields {
			dest[i] = &fields[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		var step planStep
		for i, name := range names {
			switch v := string(fields[i]); name {
			case "table":
				step.table = v
			case "type":
				step.kind = v
			case "key":
				step.key = v
			case "Extra":
				step.extra = v
			}
		}
		steps = append(steps, step)
	}
	return steps
}

// Ten thousand tasks were handed out and are gone, and the server could not purge
// their rows, because somebody reads a snapshot from before (a backup does that for
// hours): claims do not walk over them.
func TestClaimsDoNotWalkWhatIsGone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := database(t)
	s := open(t, url, nil)
	conn, err := s.db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	due := time.Now().Add(-time.Hour)
	fill(t, s, n, due) // all due at one moment
	if got := drain(t, s, 1000, 1); got != n {
		t.Fatalf("drained %d", got)
	}
	fill(t, s, 100, due) // and some before the place where claims begin
	time.Sleep(resetEvery)
	for range 20 {
		r, err := s.Claim(ctx, []store.ClaimRequest{{Queue: "orders", Max: 5, Lease: time.Minute}})
		if err != nil || len(r[0].Tasks) != 5 {
			t.Fatalf("claimed %v, %v", r, err)
		}
	}
	var at, seq uint64
	if err := s.db.QueryRow("SELECT LEAST(t.pos_at, MIN(y.early)), t.pos_seq FROM duetime_turn t JOIN duetime_tally y USING (queue_id) WHERE queue_id = 1").Scan(&at, &seq); err != nil {
		t.Fatal(err)
	}
	fastest := func(text string) time.Duration {
		took := time.Duration(1 << 62)
		for range 30 {
			start := time.Now()
			if _, err := s.db.Exec(text); err != nil {
				t.Fatal(err)
			}
			took = min(took, time.Since(start))
		}
		return took
	}
	if last := due.UnixMilli(); int64(at) <= last {
		t.Errorf("claims begin at %d, before the last task that is gone, at %d", at, last)
	}
	took := func(at, seq uint64) time.Duration {
		return fastest(string(s.sql["waiting_from"].fill(nil, 1, at, at, seq, 1))) - fastest("DO 1")
	}
	t.Logf("to look from the mark takes %v, from the beginning %v", took(at, seq), took(0, 0))
}
