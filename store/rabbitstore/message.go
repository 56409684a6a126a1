package rabbitstore

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duetime/duetime/store"
)

// A task is one message. The payload is its body and the id its message id, so
// that whoever looks into a queue sees what he expects; the rest is headers. What
// is zero is left out.
const (
	messageType = "duetime.task.1" // property type; another number is another form

	headerQueue    = "queue"    // longstr
	headerDue      = "due"      // int64, Unix milliseconds
	headerCreated  = "created"  // int64, Unix milliseconds
	headerFailures = "failures" // int64
	headerLost     = "lost"     // int64
	headerLimit    = "limit"    // int64, the task's own max_attempts
	headerError    = "error"    // longstr, the last error
	headerUser     = "headers"  // array of names and values in turn
)

// encode makes a task's message, without its way.
func encode(t *store.Task) amqp.Publishing {
	h := amqp.Table{
		headerQueue:   t.Queue,
		headerDue:     t.Due.UnixMilli(),
		headerCreated: t.Created.UnixMilli(),
	}
	number := func(name string, n int) {
		if n != 0 {
			h[name] = int64(n)
		}
	}
	number(headerFailures, t.Failures)
	number(headerLost, t.Lost)
	number(headerLimit, t.MaxAttempts)
	if t.LastError != "" {
		h[headerError] = t.LastError
	}
	if len(t.Headers) > 0 {
		list := make([]any, 0, 2*len(t.Headers))
		for name, value := range t.Headers {
			list = append(list, name, value)
		}
		h[headerUser] = list
	}
	return amqp.Publishing{
		Headers:      h,
		ContentType:  "application/octet-stream",
		DeliveryMode: amqp.Persistent,
		MessageId:    t.ID,
		Type:         messageType,
		Body:         t.Payload,
	}
}

var errForeign = errors.New("not a message of duetime")

// decode reads a task from a message that arrived in one of a queue's own
// queues. The error says what is wrong with the message, and the task then has
// what could be read.
func decode(queue string, d *amqp.Delivery) (store.Task, error) {
	t := store.Task{Queue: queue, ID: d.MessageId, State: store.StateScheduled}
	if len(d.Body) > 0 {
		t.Payload = d.Body
	}
	if d.Type != messageType {
		return t, fmt.Errorf("%w: its type is %q, want %q", errForeign, d.Type, messageType)
	}
	var err error
	number := func(name string, required bool) int64 {
		v, ok := d.Headers[name]
		n, isNumber := v.(int64)
		if (ok || required) && !isNumber {
			err = fmt.Errorf("%w: its header %q is %v", errForeign, name, v)
		}
		return n
	}
	t.Due = time.UnixMilli(number(headerDue, true)).UTC()
	t.Created = time.UnixMilli(number(headerCreated, true)).UTC()
	t.Failures = int(number(headerFailures, false))
	t.Lost = int(number(headerLost, false))
	t.MaxAttempts = int(number(headerLimit, false))
	t.LastError, _ = d.Headers[headerError].(string)
	if list, ok := d.Headers[headerUser].([]any); ok && len(list)%2 == 0 {
		t.Headers = make(map[string]string, len(list)/2)
		for i := 0; i < len(list); i += 2 {
			name, _ := list[i].(string)
			t.Headers[name], _ = list[i+1].(string)
		}
	}
	if e := store.CheckID(t.ID); e != nil && err == nil {
		err = fmt.Errorf("%w: %w", errForeign, e)
	}
	return t, err
}

// adopt makes a task of a message that is not one of ours, so that it can be set
// aside among the dead, where somebody sees it.
func adopt(queue string, d *amqp.Delivery, why error, now time.Time) store.Task {
	t, _ := decode(queue, d)
	if store.CheckID(t.ID) != nil {
		t.ID = "foreign-" + strconv.FormatInt(now.UnixNano(), 36)
	}
	if t.Due.Before(store.MinTime) || t.Due.After(store.MaxTime) || t.Due.UnixMilli() == 0 {
		t.Due = now.Truncate(time.Millisecond)
	}
	t.Created = now.Truncate(time.Millisecond)
	t.LastError = store.CleanError(why.Error())
	return t
}
