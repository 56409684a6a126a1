// Command onetransaction places an order and its timeout in one transaction, so that
// there is never one without the other: not when the payment service says no and the
// order is rolled back, and not when the program dies between the two. The timeout's
// end and what it does to the order are one transaction as well.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/duetime/duetime/internal/testserver"
	"github.com/duetime/duetime/store"
	"github.com/duetime/duetime/store/mysqlstore"
)

const queue = "onetransaction:order-timeout"

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

type shop struct {
	db    *sql.DB
	tasks *mysqlstore.Store
	out   io.Writer
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
		"DROP TABLE IF EXISTS onetransaction_orders",
		"CREATE TABLE onetransaction_orders (number INT PRIMARY KEY, state VARCHAR(20) NOT NULL)",
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	tasks, err := mysqlstore.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer tasks.Close()
	s := &shop{db, tasks, out}

	// Three orders: the second is refused after both were written.
	for number, accepted := range []bool{true, false, true} {
		if err := s.place(ctx, number, accepted); err != nil && !errors.Is(err, errRefused) {
			return err
		}
	}
	// The third is paid: its timeout is cancelled with that, or not at all.
	if err := s.pay(ctx, 2); err != nil {
		return err
	}
	// The timeouts that are left.
	if err := s.timeouts(ctx); err != nil {
		return err
	}
	return s.show(ctx)
}

// inTransaction commits what f does, or rolls all of it back.
func (s *shop) inTransaction(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

var errRefused = errors.New("refused by the payment service")

func id(number int) string { return fmt.Sprint("order ", number) }

func (s *shop) place(ctx context.Context, number int, accepted bool) error {
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO onetransaction_orders VALUES (?, 'ordered')", number); err != nil {
			return err
		}
		// In a shop: half an hour.
		if _, err := s.tasks.ScheduleTx(ctx, tx, []store.NewTask{{Queue: queue, ID: id(number), Payload: fmt.Append(nil, number), Delay: time.Second}}); err != nil {
			return err
		}
		if !accepted {
			return errRefused
		}
		return nil
	})
	fmt.Fprintf(s.out, "order %d: placed %v\n", number, err == nil)
	return err
}

func (s *shop) pay(ctx context.Context, number int) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		r, err := s.tasks.CancelTx(ctx, tx, []store.CancelRequest{{Queue: queue, ID: id(number)}})
		if err != nil {
			return err
		}
		if r[0].Outcome != store.Cancelled {
			return fmt.Errorf("order %d: too late to be paid, its timeout is %v", number, r[0].Outcome)
		}
		_, err = tx.ExecContext(ctx, "UPDATE onetransaction_orders SET state = 'paid' WHERE number = ?", number)
		return err
	})
}

// timeouts works until no task is left. It claims by itself, where a program that
// needs no such transaction would leave that to a duetime.Worker.
func (s *shop) timeouts(ctx context.Context) error {
	ticks, stop := s.tasks.Wake(queue)
	defer stop()
	for {
		r, err := s.tasks.Claim(ctx, []store.ClaimRequest{{Queue: queue, Max: 10, Lease: time.Minute}})
		if err != nil {
			return err
		}
		for _, l := range r[0].Tasks {
			if err := s.cancel(ctx, l); err != nil {
				return err
			}
		}
		if len(r[0].Tasks) > 0 {
			continue
		}
		if r[0].Next.IsZero() {
			return nil // nothing waits
		}
		select {
		case <-ticks:
		case <-time.After(min(r[0].Next.Sub(r[0].Now), time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *shop) cancel(ctx context.Context, l store.Lease) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE onetransaction_orders SET state = 'cancelled' WHERE number = ?", string(l.Payload)); err != nil {
			return err
		}
		r, err := s.tasks.AckTx(ctx, tx, []store.Receipt{l.Receipt})
		if err != nil {
			return err
		}
		if r[0].Outcome != store.Acked {
			return fmt.Errorf("%s: its lease is over, somebody else has it", l.ID)
		}
		fmt.Fprintf(s.out, "%s: not paid in time, cancelled\n", l.ID)
		return nil
	})
}

func (s *shop) show(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, "SELECT number, state FROM onetransaction_orders ORDER BY number")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var number int
		var state string
		if err := rows.Scan(&number, &state); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "order %d is %s\n", number, state)
	}
	st, err := s.tasks.Stats(ctx, queue)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%d timeouts are left\n", st.Scheduled+st.Ready+st.Leased+st.Dead)
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
