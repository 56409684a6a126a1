package main

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/duetime/duetime/internal/testserver"
)

// polledTable is a scheduler as people build them on a table: producers insert, and
// pollers run what is due and say so in the row.
type polledTable struct {
	*oldSystem // its name is the table's
	db         *sql.DB
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
		id, due := p.fresh(4 * time.Second)
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
				p.has(id)
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *polledTable) left() (left int) {
	if err := p.db.QueryRow("SELECT COUNT(*) FROM " + p.name + " WHERE status = 'unpaid'").Scan(&left); err != nil {
		p.t.Error(err)
	}
	return left
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
	var all []*oldSystem
	for name, change := range map[string][]string{"marked": {"--set", "status = 'queued'"}, "deleted": {"--delete"}} {
		args := append([]string{
			"mysql", "mysql://root@" + m.Addr + "/" + m.Database, "--table", name, "--id-column", "order_no", "--due-column", "expires",
			"--payload-column", "body", "--zone", "UTC", "--where", "status = 'unpaid'",
		}, change...)
		p := &polledTable{newOldSystem(t, name, args...), db}
		p.atWork = p
		p.exec("CREATE TABLE " + name + " (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_no VARCHAR(64) NOT NULL UNIQUE, expires DATETIME NOT NULL, body TEXT, status VARCHAR(10) NOT NULL DEFAULT 'unpaid', KEY (status, expires)) ENGINE=InnoDB")
		all = append(all, p.oldSystem)
	}
	takeOver(t, f, all, n, kills, 4*time.Second)
	var left int
	if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'duetime%'").Scan(&left); err != nil || left > 0 {
		t.Errorf("%d tables are left, %v", left, err)
	}
}
