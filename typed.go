package duetime

import (
	"context"
	"encoding/json"
	"fmt"
)

// Codec turns values into payloads and back. It must be safe for use by many
// goroutines at once.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// JSON is the codec that is used where none is given.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Queue is a queue whose payloads are values of type T: it makes sure that what is
// scheduled and what handles it agree. It holds no connection; keep it in a
// variable of your package.
//
//	var timeouts = duetime.QueueOf[Order]("order-timeout", nil)
type Queue[T any] struct {
	name  string
	codec Codec
}

// QueueOf names a typed queue. Where codec is nil, payloads are JSON.
func QueueOf[T any](name string, codec Codec) Queue[T] {
	if codec == nil {
		codec = JSON
	}
	return Queue[T]{name: name, codec: codec}
}

// Name is the queue's name.
func (q Queue[T]) Name() string { return q.name }

// Schedule is [Client.Schedule] with value as the payload, in place of
// task.Payload. A value that can not be encoded is refused with the codec's error.
func (q Queue[T]) Schedule(ctx context.Context, c *Client, value T, task NewTask) (Scheduled, error) {
	payload, err := q.codec.Marshal(value)
	if err != nil {
		return Scheduled{ID: task.ID}, opError("schedule", q.name, task.ID, fmt.Errorf("encode the payload: %w", err))
	}
	task.Payload = payload
	return c.Schedule(ctx, q.name, task)
}

// Handle is [Worker.Handle] for values. A payload that can not be decoded counts
// as a failure like any other: it is tried again, since the next worker may be of
// a release that can read it.
func (q Queue[T]) Handle(w *Worker, handler func(ctx context.Context, t *Task, value T) error) {
	w.Handle(q.name, q.Handler(handler))
}

// Handler makes a plain handler of one for values, for [Worker.HandleWith].
func (q Queue[T]) Handler(handler func(ctx context.Context, t *Task, value T) error) Handler {
	return func(ctx context.Context, t *Task) error {
		var value T
		if err := q.codec.Unmarshal(t.Payload, &value); err != nil {
			return fmt.Errorf("decode the payload: %w", err)
		}
		return handler(ctx, t, value)
	}
}
