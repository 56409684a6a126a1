package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/go-sql-driver/mysql" // for database/sql

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/mysqlstore"
)

func openOurMySQL(hands int) func(context.Context) (system, error) {
	return func(ctx context.Context) (system, error) {
		server, err := startMariaDB()
		if err != nil {
			return nil, err
		}
		st, err := mysqlstore.Open(ctx, "mysql://root@"+server.Addr+"/"+server.Database, nil)
		if err != nil {
			server.Close()
			return nil, err
		}
		return newOurs(st, hands, server.Close), nil
	}
}

// table is a table of tasks that programs poll, with SKIP LOCKED: taken, marked, and
// deleted when done.
type table struct {
	server  *testserver.MariaDBServer
	db      *sql.DB
	pollers int
	max     int
	pause   time.Duration
}

func openTable(pollers, limit int, pause time.Duration) func(context.Context) (system, error) {
	return func(ctx context.Context) (system, error) {
		server, err := startMariaDB()
		if err != nil {
			return nil, err
		}
		db, err := sql.Open("mysql", "root@tcp("+server.Addr+")/"+server.Database+"?interpolateParams=true&tx_isolation=%27READ-COMMITTED%27")
		if err != nil {
			server.Close()
			return nil, err
		}
		db.SetMaxOpenConns(100)
		db.SetMaxIdleConns(100)
		t := &table{server: server, db: db, pollers: pollers, max: limit, pause: pause}
		return t, t.reset(ctx)
	}
}

func (t *table) reset(ctx context.Context) error {
	if _, err := t.db.ExecContext(ctx, "DROP TABLE IF EXISTS tasks"); err != nil {
		return err
	}
	_, err := t.db.ExecContext(ctx, `CREATE TABLE tasks (
		id BIGINT PRIMARY KEY, state TINYINT NOT NULL, due BIGINT NOT NULL, payload VARBINARY(200) NOT NULL,
		KEY by_due (state, due)) ENGINE=InnoDB`)
	return err
}

func (t *table) put(ctx context.Context, _, from, to int, due func(int) time.Time) error {
	var b strings.Builder
	b.WriteString("INSERT INTO tasks VALUES ")
	args := make([]any, 0, 3*(to-from))
	for i := from; i < to; i++ {
		if i > from {
			b.WriteByte(',')
		}
		b.WriteString("(?,0,?,?)")
		args = append(args, i, due(i).UnixMilli(), payload(i, due(i)))
	}
	_, err := t.db.ExecContext(ctx, b.String(), args...)
	return err
}

func (t *table) take(ctx context.Context, on func([]byte), acked func()) (n int, err error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	rows, err := tx.QueryContext(ctx, "SELECT id, payload FROM tasks WHERE state = 0 AND due <= ? ORDER BY due LIMIT ? FOR UPDATE SKIP LOCKED", time.Now().UnixMilli(), t.max)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ids []string
	var bodies [][]byte
	for rows.Next() {
		var number int64
		var body []byte
		if err := rows.Scan(&number, &body); err != nil {
			return 0, err
		}
		ids, bodies = append(ids, strconv.FormatInt(number, 10)), append(bodies, body)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	in := " WHERE id IN (" + strings.Join(ids, ",") + ")"
	if _, err := tx.ExecContext(ctx, "UPDATE tasks SET state = 1"+in); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	for _, body := range bodies {
		on(body)
	}
	for try := 0; ; try++ { // deadlocks happen
		if _, err = t.db.ExecContext(ctx, "DELETE FROM tasks"+in); err == nil || try == 100 {
			break
		}
	}
	for range ids {
		acked()
	}
	return len(ids), err
}

func (t *table) consume(ctx context.Context, on func([]byte), acked func()) (func(), error) {
	var done atomic.Bool
	var failures atomic.Int64
	var all sync.WaitGroup
	for range t.pollers {
		all.Go(func() {
			for !done.Load() && ctx.Err() == nil {
				n, err := t.take(ctx, on, acked)
				if err != nil {
					failures.Add(1)
					continue // a deadlock as a rule
				}
				if n < t.max {
					time.Sleep(t.pause)
				}
			}
		})
	}
	return func() {
		done.Store(true)
		all.Wait()
		if n := failures.Load(); n > 0 {
			fmt.Println("table:", n, "transactions failed and were repeated")
		}
	}, nil
}

func (t *table) close() {
	_ = t.db.Close()
	t.server.Close()
}
