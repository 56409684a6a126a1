package server

import (
	"net/http"
	"time"

	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

func ack(c *call) error {
	var body wire.ReceiptsBody
	return c.settle(&body, &body.Receipts, func() (store.Settlement, error) { return store.Settlement{Action: store.Ack}, nil })
}

func release(c *call) error {
	var body wire.ReceiptsBody
	return c.settle(&body, &body.Receipts, func() (store.Settlement, error) { return store.Settlement{Action: store.Release}, nil })
}

func retry(c *call) error {
	var body wire.RetryBody
	return c.settle(&body, &body.Receipts, func() (m store.Settlement, err error) {
		m = store.Settlement{Action: store.Retry, Error: body.Error, Backoff: body.Delay == nil}
		m.Delay, err = optional("delay", body.Delay)
		return m, err
	})
}

func snooze(c *call) error {
	var body wire.SnoozeBody
	return c.settle(&body, &body.Receipts, func() (m store.Settlement, err error) {
		if body.Delay == nil {
			return m, store.NewInputError("delay", "", "is missing: after how long is the task due again?")
		}
		m.Action = store.Snooze
		m.Delay, err = optional("delay", body.Delay)
		return m, err
	})
}

func bury(c *call) error {
	var body wire.BuryBody
	return c.settle(&body, &body.Receipts, func() (store.Settlement, error) {
		return store.Settlement{Action: store.Bury, Error: body.Error}, nil
	})
}

func extend(c *call) error {
	var body wire.ExtendBody
	return c.settle(&body, &body.Receipts, func() (m store.Settlement, err error) {
		m.Action = store.Extend
		m.Lease, err = optional("lease", body.Lease)
		if err == nil && body.Lease != nil && m.Lease == 0 {
			err = store.NewInputError("lease", "0s", "must be %v to %v", store.MinLease, store.MaxLease)
		}
		return m, err
	})
}

func optional(field string, d *wire.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	return timetext.Duration(field, string(*d))
}

// settle does the same with all receipts of a body.
func (c *call) settle(body any, receipts *[]string, what func() (store.Settlement, error)) error {
	if err := c.decode(body); err != nil {
		return err
	}
	if *receipts == nil {
		return store.NewInputError("receipts", "", "is missing, must be an array of receipts")
	}
	if err := checkBatch("receipts", len(*receipts)); err != nil {
		return err
	}
	m, err := what()
	if err != nil {
		return err
	}
	// What is wrong with all of them is wrong with the request.
	if err := m.Check(c.s.now()); err != nil {
		return err
	}
	settlements := make([]store.Settlement, len(*receipts))
	for i, receipt := range *receipts {
		settlements[i] = m
		settlements[i].Receipt = store.Receipt(receipt)
	}
	results, err := c.s.store.Settle(c.ctx(), settlements)
	if err != nil {
		return err
	}
	c.s.settled(settlements, results)
	answer := wire.SettleOutcomes{Outcomes: make([]string, len(results))}
	for i := range results {
		answer.Outcomes[i] = results[i].Outcome.String()
		if results[i].Err != nil {
			answer.Errors = append(answer.Errors, wire.ReceiptError{Index: i, Error: *wire.FromError(results[i].Err)})
		}
	}
	return c.answer(http.StatusOK, answer)
}
