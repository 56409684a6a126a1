package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

// record makes a record of a task in a request, with an id if it has none.
func record(t *wire.NewTask) (store.NewTask, error) {
	if t.ID == nil {
		id, err := uuid.NewV7()
		if err != nil {
			return store.NewTask{}, err
		}
		text := id.String()
		t.ID = &text
	}
	return t.Store()
}

func schedule(c *call) error {
	how, err := c.payloads(wire.PayloadAsJSON)
	if err != nil {
		return err
	}
	var body wire.NewTask
	if err := c.decode(&body); err != nil {
		return err
	}
	if body.Queue != "" && body.Queue != c.params.queue {
		return store.NewInputError("queue", body.Queue, "is another than the path's, %q", c.params.queue)
	}
	body.Queue = c.params.queue
	task, err := record(&body)
	if err != nil {
		return err
	}
	results, err := c.s.store.Schedule(c.ctx(), []store.NewTask{task})
	if err != nil {
		return err
	}
	r := &results[0]
	c.s.metrics.scheduled(task.Queue, r.Outcome, 1)
	var answer wire.Task
	switch r.Outcome {
	case store.Refused:
		return r.Err
	case store.Exists:
		answer = wire.FromTask(r.Task, how)
	default:
		answer = wire.FromTask(&store.Task{
			Queue: task.Queue, ID: task.ID, State: stateAt(r.Due, r.At), Payload: task.Payload, Headers: task.Headers,
			Due: r.Due, Created: r.At, MaxAttempts: task.MaxAttempts,
		}, how)
	}
	answer.Outcome = r.Outcome.String()
	status := http.StatusOK
	if r.Outcome == store.Created {
		status = http.StatusCreated
	}
	return c.answer(status, answer)
}

func stateAt(due, now time.Time) store.State {
	if due.After(now) {
		return store.StateScheduled
	}
	return store.StateReady
}

// scheduleQueueBatch schedules many into the queue of the path.
func scheduleQueueBatch(c *call) error {
	return c.scheduleMany(func(t *wire.NewTask) error {
		if t.Queue != "" && t.Queue != c.params.queue {
			return store.NewInputError("queue", t.Queue, "is another than the path's, %q", c.params.queue)
		}
		t.Queue = c.params.queue
		return nil
	})
}

func scheduleBatch(c *call) error {
	return c.scheduleMany(func(*wire.NewTask) error { return nil })
}

func (c *call) scheduleMany(prepare func(*wire.NewTask) error) error {
	how, err := c.payloads(wire.PayloadAsJSON)
	if err != nil {
		return err
	}
	tasks, err := c.decodeTasks()
	if err != nil {
		return err
	}
	// What is wrong with one is that one's outcome; the store sees the others.
	outcomes := make([]wire.Result, len(tasks))
	var good []store.NewTask
	var index []int
	for i := range tasks {
		err := prepare(&tasks[i])
		var task store.NewTask
		if err == nil {
			task, err = record(&tasks[i])
		}
		if err != nil {
			outcomes[i] = wire.Result{Outcome: store.Refused.String(), Error: wire.FromError(err)}
		} else {
			good, index = append(good, task), append(index, i)
		}
		if tasks[i].ID != nil {
			outcomes[i].ID = *tasks[i].ID
		}
	}
	results, err := c.s.store.Schedule(c.ctx(), good)
	if err != nil {
		return err
	}
	refused := len(tasks) - len(good)
	for j := range results {
		c.s.metrics.scheduled(good[j].Queue, results[j].Outcome, 1)
		if results[j].Outcome == store.Refused {
			refused++
		}
		id := outcomes[index[j]].ID
		outcomes[index[j]] = wire.FromResult(&results[j], how)
		outcomes[index[j]].ID = id
	}
	return c.answer(http.StatusOK, wire.Outcomes{Outcomes: outcomes, Refused: refused})
}

// decodeTasks reads {"tasks":[…]}, or one task a line.
func (c *call) decodeTasks() ([]wire.NewTask, error) {
	data, mediaType, err := c.body()
	if err != nil {
		return nil, err
	}
	if mediaType == "application/json" {
		var body wire.ScheduleBatch
		if err := wire.Decode(data, &body); err != nil {
			return nil, err
		}
		if body.Tasks == nil {
			return nil, store.NewInputError("tasks", "", "is missing, must be an array of tasks")
		}
		return body.Tasks, checkBatch("tasks", len(body.Tasks))
	}
	var tasks []wire.NewTask
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if len(tasks) == store.MaxBatch {
			return nil, checkBatch("tasks", len(tasks)+1)
		}
		var t wire.NewTask
		if err := wire.Decode(line, &t); err != nil {
			var input *store.InputError
			if errors.As(err, &input) {
				input.Field = fmt.Sprintf("line %d: %s", number, input.Field)
			}
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

func checkBatch(field string, n int) error {
	if n > store.MaxBatch {
		return tooLarge(field, n, "has too many items, the limit is %d", store.MaxBatch)
	}
	return nil
}

func getTask(c *call) error {
	how, err := c.payloads(wire.PayloadAsJSON)
	if err != nil {
		return err
	}
	id, err := c.id()
	if err != nil {
		return err
	}
	results, err := c.s.store.Get(c.ctx(), []store.Key{{Queue: c.params.queue, ID: id}})
	if err != nil {
		return err
	}
	switch r := &results[0]; r.Outcome {
	case store.Found:
		return c.answer(http.StatusOK, wire.FromTask(r.Task, how))
	case store.NotFound:
		return noTask(id)
	default:
		return r.Err
	}
}

func noTask(id string) error { return notFound("id", id, "there is no such task in the queue") }

func cancelTask(c *call) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	force, err := c.queryBool("force")
	if err != nil {
		return err
	}
	results, err := c.s.store.Cancel(c.ctx(), []store.CancelRequest{{Queue: c.params.queue, ID: id, Force: force}})
	if err != nil {
		return err
	}
	switch r := &results[0]; r.Outcome {
	case store.Cancelled:
		return c.answer(http.StatusOK, wire.Cancelled{Outcome: r.Outcome.String(), Queue: c.params.queue, ID: id})
	case store.NotFound:
		return noTask(id)
	case store.Leased:
		return conflict("id", id, "the task is running: too late to cancel it; ?force=true revokes its lease")
	default:
		return r.Err
	}
}

func rescheduleTask(c *call) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	var body wire.RescheduleBody
	if err := c.decode(&body); err != nil {
		return err
	}
	if body.Delay == nil && body.DueAt == nil {
		return store.NewInputError("due_at", "", "is missing: give delay or due_at")
	}
	request := store.RescheduleRequest{Queue: c.params.queue, ID: id}
	if request.Due, request.Delay, err = wire.When(body.DueAt, body.Delay); err != nil {
		return err
	}
	results, err := c.s.store.Reschedule(c.ctx(), []store.RescheduleRequest{request})
	if err != nil {
		return err
	}
	switch r := &results[0]; r.Outcome {
	case store.Rescheduled:
		return c.answer(http.StatusOK, wire.Rescheduled{Outcome: r.Outcome.String(), Queue: c.params.queue, ID: id, DueAt: wire.Milli(r.Due)})
	case store.NotFound:
		return notFound("id", id, "there is no scheduled or ready task with this id in the queue; a dead one is brought back by redrive")
	case store.Leased:
		return conflict("id", id, "the task is running: too late to reschedule it")
	default:
		return r.Err
	}
}

// listTasks lists one state, or all in turn where none is given: then the
// cursor says which state it belongs to.
func listTasks(c *call) error {
	how, err := c.payloads(wire.PayloadNone)
	if err != nil {
		return err
	}
	limit, err := c.queryInt("limit")
	if err != nil {
		return err
	}
	if c.query.Has("limit") && limit == 0 {
		return store.NewInputError("limit", limit, "must be 1 to %d", store.MaxList)
	}
	request := store.ListRequest{Queue: c.params.queue, Cursor: c.query.Get("cursor"), Limit: limit, Payloads: how != wire.PayloadNone}
	states := store.States()
	if c.query.Has("state") {
		state, err := store.ParseState(c.query.Get("state"))
		if err != nil {
			return err
		}
		states = []store.State{state}
	}
	all := len(states) > 1
	if all && request.Cursor != "" {
		name, rest, _ := strings.Cut(request.Cursor, ".")
		state, err := store.ParseState(name)
		if err != nil {
			return store.NewInputError("cursor", request.Cursor, "is not one that this call gave")
		}
		for states[0] != state {
			states = states[1:]
		}
		request.Cursor = rest
	}
	request.State = states[0]
	if err := request.Check(); err != nil {
		return err
	}
	page := wire.TaskPage{Tasks: []wire.Task{}}
	for _, state := range states {
		request.State, request.Limit = state, request.Limit-len(page.Tasks)
		if request.Limit == 0 { // the page is full, and this state is not begun
			page.NextCursor = state.String() + "."
			break
		}
		got, err := c.s.store.List(c.ctx(), request)
		if err != nil {
			return err
		}
		for i := range got.Tasks {
			page.Tasks = append(page.Tasks, wire.FromTask(&got.Tasks[i], how))
		}
		if got.Cursor != "" {
			page.NextCursor = got.Cursor
			if all {
				page.NextCursor = state.String() + "." + got.Cursor
			}
			break
		}
		request.Limit += len(page.Tasks) - len(got.Tasks) // back to the whole limit
		request.Cursor = ""
	}
	return c.answer(http.StatusOK, page)
}
