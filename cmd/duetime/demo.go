package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v3"

	"github.com/duetime/duetime"
	"github.com/duetime/duetime/internal/storeurl"
)

// The scenario: an order that is not paid in time is to be cancelled. A hundred
// of them should have been handled half an hour ago, while nothing was running;
// a hundred have a moment left, and every second of those is paid in time.
const (
	demoOverdue    = 100
	demoSoon       = 100
	demoOverdueBy  = 30 * time.Minute
	demoFirstDue   = 1500 * time.Millisecond // after the start
	demoLastDue    = 4 * time.Second
	demoPaidBefore = 700 * time.Millisecond // its time is over
	demoPatience   = 10 * time.Second       // after the last due time
)

func (a *app) demoCommand() *cli.Command {
	return &cli.Command{
		Name:     "demo",
		Category: categoryRun,
		Usage:    "see it work: 200 unpaid orders, in five seconds",
		Description: "Schedules 100 orders whose time to pay was over 30 minutes ago and 100 whose time will be over in a\n" +
			"moment, has 50 of those paid (their tasks cancelled), and runs the others as they come due. The last\n" +
			"line says what happened, counted from the recorded events; the exit status is 1 where anything was\n" +
			"early, repeated or lost. Without --store it works on an embedded store in a temporary folder.",
		Action: a.demo,
	}
}

func (a *app) demo(ctx context.Context, c *cli.Command) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	url := c.String("store")
	if url == "" {
		dir, err := os.MkdirTemp("", "duetime-demo-")
		if err != nil {
			return fmt.Errorf("a temporary folder for the demo: %w", err)
		}
		defer os.RemoveAll(dir)
		url = "embedded:" + dir
	}
	st, err := openStore(ctx, url, false)
	if err != nil {
		return explain(err, url)
	}
	client := duetime.NewClient(st, &duetime.ClientOptions{Logger: a.logger()})
	defer client.Close()

	d := &demo{
		client: client,
		// Of its own, for stores that others use.
		queue: "demo-" + uuid.NewString(),
		log:   newDemoLog(a.stdout, c.Bool("json")),
	}
	defer d.log.stop()
	d.log.say("200 orders; each is to be cancelled when its time to pay is over.")
	d.log.say("Store: %s (%s).", storeurl.Shown(url), client.Capabilities().Durability)
	if err := d.play(ctx); err != nil {
		return explain(err, url)
	}
	result := judge(d.log.events())
	return d.log.finish(result)
}

// demo is one run of the scenario.
type demo struct {
	client *duetime.Client
	queue  string
	log    *demoLog
}

func (d *demo) play(ctx context.Context) error {
	orders := demoOrders(time.Now())
	if err := d.schedule(ctx, orders[:demoOverdue]); err != nil {
		return err
	}
	d.log.say("Scheduled %d orders whose time was over %v ago.", demoOverdue, shortDuration(demoOverdueBy))
	if err := d.schedule(ctx, orders[demoOverdue:]); err != nil {
		return err
	}
	d.log.say("Scheduled %d orders that have %v to %v left. One worker starts.", demoSoon, demoFirstDue, demoLastDue)

	worker := duetime.NewWorker(d.client, &duetime.WorkerOptions{
		// One at a time, so that the order in which they run can be seen.
		Concurrency: 1, Name: "demo",
	})
	worker.Handle(d.queue, func(_ context.Context, t *duetime.Task) error {
		d.log.add(demoEvent{What: demoRun, ID: t.ID, At: time.Now()})
		return nil
	})
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(working) }()

	err := d.pay(ctx, orders)
	if err == nil {
		err = d.wait(ctx, orders[len(orders)-1].due)
	}
	stopWorking()
	return cmp.Or(err, <-worked)
}

type demoOrder struct {
	id     string
	due    time.Time
	paidAt time.Time // zero: never
}

// demoOrders makes up the orders, in order of their due times.
func demoOrders(start time.Time) []demoOrder {
	var orders []demoOrder
	for i := range demoOverdue {
		orders = append(orders, demoOrder{due: start.Add(-demoOverdueBy - time.Duration(demoOverdue-i)*10*time.Millisecond)})
	}
	for i := range demoSoon {
		o := demoOrder{due: start.Add(demoFirstDue + time.Duration(i)*(demoLastDue-demoFirstDue)/(demoSoon-1))}
		if i%2 == 1 {
			o.paidAt = o.due.Add(-demoPaidBefore)
		}
		orders = append(orders, o)
	}
	for i := range orders {
		orders[i].id = fmt.Sprintf("order-%03d", i+1)
		orders[i].due = orders[i].due.Truncate(time.Millisecond)
	}
	return orders
}

func (d *demo) schedule(ctx context.Context, orders []demoOrder) error {
	// Last due first: that they run oldest first is then the store's doing.
	tasks := make([]duetime.NewTask, len(orders))
	for i, o := range orders {
		tasks[len(orders)-1-i] = duetime.NewTask{ID: o.id, Due: o.due, Payload: []byte(`{"order": "` + o.id + `"}`)}
	}
	answers, err := d.client.ScheduleMany(ctx, d.queue, tasks)
	if err != nil {
		return err
	}
	now := time.Now()
	for i, answer := range answers {
		if answer.Err != nil {
			return answer.Err
		}
		d.log.add(demoEvent{What: demoScheduled, ID: tasks[i].ID, At: now, Due: tasks[i].Due})
	}
	return nil
}

// pay has some orders paid before their time is over.
func (d *demo) pay(ctx context.Context, orders []demoOrder) error {
	for _, o := range orders {
		if o.paidAt.IsZero() {
			continue
		}
		if err := sleepUntil(ctx, o.paidAt); err != nil {
			return err
		}
		err := d.client.Cancel(ctx, d.queue, o.id)
		switch {
		case err == nil:
			d.log.add(demoEvent{What: demoPaid, ID: o.id, At: time.Now()})
		case errors.Is(err, duetime.ErrNotFound), errors.Is(err, duetime.ErrRunning):
			// A machine that stood still for long enough. The order has run, and
			// is counted so.
			d.log.say("%s was paid too late: %v", o.id, err)
		default:
			return err
		}
	}
	return nil
}

// wait waits until every order has come to its end, and has had the time to come
// to a second one: until after the last due time, also of those that were
// cancelled.
func (d *demo) wait(ctx context.Context, last time.Time) error {
	const second = 300 * time.Millisecond
	if err := sleepUntil(ctx, last.Add(second)); err != nil {
		return err
	}
	for time.Now().Before(last.Add(demoPatience)) && judge(d.log.events()).Lost > 0 {
		if err := sleepUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.New("interrupted")
	}
}
