// Command nopolling cancels unpaid orders that are kept in MySQL or MariaDB. By
// hand this is a job that scans the table of orders once a minute: up to a minute
// late, and the more orders there are, the more it loads the database. Here each
// order has a task in the same database, found by an index, and the workers sleep
// until one is due.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store/mysqlstore"
)

var timeouts = duetime.QueueOf[int]("nopolling:order-timeout", nil)

const (
	orders  = 200
	workers = 2 // each with a connection pool of its own, as two processes have
)

func main() {
	given := flag.String("mysql", "", "URL of a database, such as mysql://root@127.0.0.1:3306/shop; without it a MariaDB is started")
	flag.Parse()
	if *given == "" {
		*given = flag.Arg(0) // the URL alone will do
	}
	url, end := mysqlURL(*given)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, url)
	stop()
	end()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, url string) error {
	name, err := mysqlstore.DataSource(url)
	if err != nil {
		return err
	}
	db, err := sql.Open("mysql", name)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, text := range []string{
		"DROP TABLE IF EXISTS nopolling_orders",
		"CREATE TABLE nopolling_orders (number INT PRIMARY KEY, state VARCHAR(20) NOT NULL)",
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var late []time.Duration
	var wg sync.WaitGroup
	failed := make(chan error, workers)
	clients := make([]*duetime.Client, workers)
	for i := range clients {
		st, err := mysqlstore.Open(ctx, url, nil)
		if err != nil {
			return err
		}
		clients[i] = duetime.NewClient(st, nil)
		defer clients[i].Close()
		worker := duetime.NewWorker(clients[i], &duetime.WorkerOptions{Name: fmt.Sprint("worker ", i)})
		timeouts.Handle(worker, func(ctx context.Context, t *duetime.Task, number int) error {
			// A task may come twice when a worker dies: the condition makes that harmless.
			if _, err := db.ExecContext(ctx, "UPDATE nopolling_orders SET state = 'cancelled' WHERE number = ? AND state = 'ordered'", number); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if late = append(late, t.Lateness()); len(late) == orders/2 {
				stop()
			}
			return nil
		})
		wg.Go(func() {
			if err := worker.Run(ctx); err != nil {
				failed <- err
				stop()
			}
		})
	}

	// Orders come in, and every second one is paid before its time is over.
	for number := range orders {
		if _, err := db.ExecContext(ctx, "INSERT INTO nopolling_orders VALUES (?, 'ordered')", number); err != nil {
			return err
		}
		id := fmt.Sprint("order ", number)
		if _, err := timeouts.Schedule(ctx, clients[0], number, duetime.NewTask{ID: id, Delay: time.Second}); err != nil {
			return err
		}
		if number%2 == 0 {
			if _, err := db.ExecContext(ctx, "UPDATE nopolling_orders SET state = 'paid' WHERE number = ?", number); err != nil {
				return err
			}
			if err := clients[0].Cancel(ctx, timeouts.Name(), id); err != nil {
				return err
			}
		}
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	rows, err := db.Query("SELECT state, COUNT(*) FROM nopolling_orders GROUP BY state ORDER BY state")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var state string
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return err
		}
		fmt.Fprintf(out, "%d %s\n", n, state)
	}
	slices.Sort(late)
	if len(late) > 0 {
		fmt.Fprintf(out, "after their time: half of them within %v, all within %v\n", late[len(late)/2].Round(time.Microsecond), late[len(late)-1].Round(time.Microsecond))
	}
	return rows.Err()
}

// mysqlURL is the URL that was given, or that of a MariaDB that is started here. This
// function can not be copied, because testserver belongs to duetime itself.
func mysqlURL(given string) (url string, end func()) {
	if given != "" {
		return given, func() {}
	}
	m, err := testserver.StartMariaDB(nil)
	if err != nil {
		log.Fatalf("%v; or name a database with -mysql mysql://USER:PASSWORD@HOST:PORT/DATABASE", err)
	}
	return "mysql://root@" + m.Addr + "/" + m.Database, m.Close
}
