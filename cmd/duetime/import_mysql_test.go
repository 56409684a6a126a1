package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/duetime/duetime/internal/testserver"
)

// polledTable is a scheduler as people build them on a table: producers insert, and
// pollers run what is due and say so in the row.
type polledTable struct {
	t    *testing.T
	db   *sql.DB
	url  string
	name string   // of the table and of the queue
	args []string // of duetime import mysql

	mu  sync.Mutex
	due map[string]time.Time
	ran map[string]int // by the old pollers
}

func (p *polledTable) exec(text string, args ...any) int64 {
	r, err := p.db.ExecContext(context.Background(), text, args...)
	if err != nil {
		p.t.Errorf("%s: %v", text, err)
		return 0
	}
	n, _ := r.RowsAffected()
	return n
}

func (p *polledTable) produce(n int, pause time.Duration) {
	for range n {
		due := time.Now().Add(time.Duration(rand.IntN(5000)-1000) * time.Millisecond).Truncate(time.Second).UTC()
		p.mu.Lock()
		id := fmt.Sprintf("%s-%05d", p.name, len(p.due))
		p.due[id] = due
		p.mu.Unlock()
		p.exec("INSERT INTO "+p.name+" (order_no, expires, body) VALUES (?, ?, ?)", id, due.Format(time.DateTime), `{"order":"`+id+`"}`)
		time.Sleep(pause)
	}
}

// consume is a poller: what it has changed it runs.
func (p *polledTable) consume(stop *atomic.Bool) {
	for !stop.Load() {
		rows, err := p.db.Query("SELECT order_no FROM "+p.name+" WHERE status = 'unpaid' AND expires <= ? ORDER BY expires LIMIT 5", time.Now().UTC().Format(time.DateTime))
		if err != nil {
			p.t.Error(err)
			return
		}
		var ids []string
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				p.t.Error(err)
			}
			ids = append(ids, id)
		}
		_ = rows.Close()
		for _, id := range ids {
			if p.exec("UPDATE "+p.name+" SET status = 'closed' WHERE order_no = ? AND status = 'unpaid'", id) == 1 {
				p.mu.Lock()
				p.ran[id]++
				p.mu.Unlock()
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestImportMySQLKilled: two tables are taken over with --follow while their producers
// and pollers go on and duetime's workers run what has come; the command is killed
// in the middle, again and again. Each row runs once, in the old system or in the new.
func TestImportMySQLKilled(t *testing.T) {
	t.Parallel()
	testserver.NeedMariaDB(t)
	f := newFleet(t)
	m := testserver.MariaDB(t, &testserver.MariaDBOptions{Config: []string{"--innodb-flush-log-at-trx-commit=2"}})
	db, err := sql.Open("mysql", m.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	n, kills := 1200, 4
	if long {
		n, kills = 15_000, 30
	}
	var all []*polledTable
	for name, change := range map[string][]string{"marked": {"--set", "status = 'queued'"}, "deleted": {"--delete"}} {
		all = append(all, &polledTable{
			t: t, db: db, url: "mysql://root@" + m.Addr + "/" + m.Database, name: name, due: make(map[string]time.Time), ran: make(map[string]int),
			args: append([]string{"--id-column", "order_no", "--due-column", "expires", "--payload-column", "body", "--zone", "UTC", "--where", "status = 'unpaid'"}, change...),
		})
	}
	var group sync.WaitGroup
	for _, p := range all {
		p.exec("CREATE TABLE " + p.name + " (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_no VARCHAR(64) NOT NULL UNIQUE, expires DATETIME NOT NULL, body TEXT, status VARCHAR(10) NOT NULL DEFAULT 'unpaid', KEY (status, expires)) ENGINE=InnoDB")
		_, log := f.start("duetime", "work", p.name, "--concurrency", "8")
		f.logs = append(f.logs, log)
		group.Go(func() { p.takenOver(f, n, kills) })
	}
	group.Wait()
	if t.Failed() {
		return
	}
	runs := func() map[string]int {
		counts := make(map[string]int)
		for _, r := range f.runs() {
			counts[r.ID]++
		}
		return counts
	}
	f.poll("everything to have run", func() bool {
		got := len(runs())
		for _, p := range all {
			got += len(p.ran)
		}
		return got >= len(all)*n
	})
	inNew := runs()
	for _, p := range all {
		for id := range p.due {
			if p.ran[id]+inNew[id] != 1 {
				t.Errorf("%s ran %d times in the old system and %d times in the new", id, p.ran[id], inNew[id])
			}
		}
		if old := len(p.ran); old == 0 || old == n {
			t.Errorf("%s: %d of %d ran in the old system: this test shows nothing", p.name, old, n)
		} else {
			t.Logf("%s: %d of %d ran in the old system", p.name, old, n)
		}
	}
	for _, r := range f.runs() {
		for _, p := range all {
			if due, ok := p.due[r.ID]; ok && (!r.DueAt.Equal(due) || r.ClaimedAt.Before(due)) {
				t.Errorf("%s ran at %v with due time %v, was due at %v", r.ID, r.ClaimedAt, r.DueAt, due)
			}
		}
	}
	var left int
	if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'duetime%'").Scan(&left); err != nil || left > 0 {
		t.Errorf("%d tables are left, %v", left, err)
	}
}

func (p *polledTable) takenOver(f *fleet, n, kills int) {
	p.produce(n/2, 0)
	var stop atomic.Bool
	var consumers, producer sync.WaitGroup
	for range 4 {
		consumers.Go(func() { p.consume(&stop) })
	}
	producer.Go(func() { p.produce(n-n/2, 4*time.Second/time.Duration(n)) })
	time.Sleep(300 * time.Millisecond) // the old pollers have their share
	args := append([]string{"import", "mysql", p.url, "--table", p.name, "--queue", p.name, "--follow"}, p.args...)
	command := func() (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command("duetime", args...)
		cmd.Env = append(os.Environ(), "DUETIME_STORE="+f.url())
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			p.t.Error(err)
		}
		return cmd, &said
	}
	for range kills {
		cmd, _ := command()
		time.Sleep(30*time.Millisecond + time.Duration(rand.Int64N(int64(300*time.Millisecond))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	cmd, said := command()
	producer.Wait()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var waiting int
		if err := p.db.QueryRow("SELECT COUNT(*) FROM " + p.name + " WHERE status = 'unpaid'").Scan(&waiting); err != nil {
			p.t.Error(err)
			break
		}
		if waiting == 0 {
			break
		}
		if time.Now().After(end) {
			p.t.Errorf("%s: %d rows still wait: %s", p.name, waiting, said.String())
			break
		}
	}
	stop.Store(true)
	consumers.Wait()
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		p.t.Errorf("%s: the import: %v: %s", p.name, err, said.String())
	}
}
