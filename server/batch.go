package server

import (
	"net/http"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

// The batch calls take items of any queues. What is wrong with one item is that
// item's result.

// items converts the items of a batch, keeps those that are well formed for the
// store, and puts the results together.
func items[In, Record any](c *call, field string, in []In, convert func(*In) (Record, error), do func([]Record) ([]store.Result, error)) error {
	if err := checkBatch(field, len(in)); err != nil {
		return err
	}
	how, err := c.payloads(wire.PayloadAsJSON)
	if err != nil {
		return err
	}
	answer := wire.Results{Results: make([]wire.Result, len(in))}
	good := make([]Record, 0, len(in))
	index := make([]int, 0, len(in))
	for i := range in {
		record, err := convert(&in[i])
		if err != nil {
			answer.Results[i] = wire.Result{Outcome: store.Refused.String(), Error: wire.FromError(err)}
			continue
		}
		good, index = append(good, record), append(index, i)
	}
	results, err := do(good)
	if err != nil {
		return err
	}
	for j := range results {
		answer.Results[index[j]] = wire.FromResult(&results[j], how)
	}
	return c.answer(http.StatusOK, answer)
}

func importBatch(c *call) error {
	into, ok := store.As[store.Importer](c.s.store)
	if !ok {
		return store.Unsupported(c.s.store.Capabilities().Name, "import")
	}
	var body wire.ImportBatch
	if err := c.decode(&body); err != nil {
		return err
	}
	return items(c, "tasks", body.Tasks,
		func(t *wire.ImportItem) (store.Task, error) { return t.Store() },
		func(tasks []store.Task) ([]store.Result, error) {
			results, err := into.Import(c.r.Context(), tasks)
			if err == nil {
				for i := range results {
					c.s.metrics.scheduled(tasks[i].Queue, results[i].Outcome, 1)
				}
			}
			return results, err
		})
}

func getBatch(c *call) error {
	var body wire.GetBatch
	if err := c.decode(&body); err != nil {
		return err
	}
	return items(c, "tasks", body.Tasks,
		func(k *wire.Key) (store.Key, error) { return store.Key{Queue: k.Queue, ID: k.ID}, nil },
		func(keys []store.Key) ([]store.Result, error) { return c.s.store.Get(c.ctx(), keys) })
}

func cancelBatch(c *call) error {
	var body wire.CancelBatch
	if err := c.decode(&body); err != nil {
		return err
	}
	return items(c, "tasks", body.Tasks,
		func(t *wire.CancelItem) (store.CancelRequest, error) {
			return store.CancelRequest{Queue: t.Queue, ID: t.ID, Force: t.Force}, nil
		},
		func(tasks []store.CancelRequest) ([]store.Result, error) {
			return c.s.store.Cancel(c.ctx(), tasks)
		})
}

func rescheduleBatch(c *call) error {
	var body wire.RescheduleBatch
	if err := c.decode(&body); err != nil {
		return err
	}
	return items(c, "tasks", body.Tasks,
		func(t *wire.RescheduleItem) (store.RescheduleRequest, error) {
			due, delay, err := wire.When(t.DueAt, t.Delay)
			return store.RescheduleRequest{Queue: t.Queue, ID: t.ID, Due: due, Delay: delay}, err
		},
		func(tasks []store.RescheduleRequest) ([]store.Result, error) {
			return c.s.store.Reschedule(c.ctx(), tasks)
		})
}

func settleBatch(c *call) error {
	var body wire.SettleBatch
	if err := c.decode(&body); err != nil {
		return err
	}
	return items(c, "settlements", body.Settlements,
		func(m *wire.SettleItem) (store.Settlement, error) { return m.Store() },
		func(settlements []store.Settlement) ([]store.Result, error) {
			results, err := c.s.store.Settle(c.ctx(), settlements)
			if err == nil {
				c.s.settled(settlements, results)
			}
			return results, err
		})
}

func claimBatch(c *call) error {
	how, err := c.payloads(wire.PayloadAsJSON)
	if err != nil {
		return err
	}
	var body wire.ClaimBatch
	if err := c.decode(&body); err != nil {
		return err
	}
	if err := checkBatch("claims", len(body.Claims)); err != nil {
		return err
	}
	answer := wire.ClaimResults{Results: make([]wire.ClaimResult, len(body.Claims))}
	requests := make([]store.ClaimRequest, 0, len(body.Claims))
	index := make([]int, 0, len(body.Claims))
	for i := range body.Claims {
		request, err := body.Claims[i].Store()
		if err != nil {
			answer.Results[i] = wire.ClaimResult{Tasks: []wire.Task{}, Error: wire.FromError(err)}
			continue
		}
		requests, index = append(requests, request), append(index, i)
	}
	results, err := c.s.store.Claim(c.r.Context(), requests)
	if err != nil {
		return err
	}
	var leases []store.Lease
	for j := range results {
		answer.Results[index[j]] = wire.FromClaimResult(&results[j], how)
		leases = append(leases, results[j].Tasks...)
	}
	return c.handOut(leases, answer)
}
