package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

type duration = time.Duration

// system is something that keeps tasks until they are due.
type system interface {
	// reset takes all tasks away.
	reset(ctx context.Context) error
	// put schedules the tasks with the numbers from from to to-1, in one call (or
	// what comes next to it), for one of the producers.
	put(ctx context.Context, producer, from, to int, due func(i int) time.Time) error
	// consume hands tasks out until stop is called. on is called for each in its
	// handler; acked, by systems that know, for each that is then done with.
	consume(ctx context.Context, on func(payload []byte), acked func()) (stop func(), err error)
	close()
}

// counter is a system that does not know of single acks, but how many tasks it has.
type counter interface {
	left(ctx context.Context) (int, error)
}

// weigher is a system that knows the memory that its tasks take, in bytes.
type weigher interface {
	memory(ctx context.Context) (int64, error)
}

// contestant is a system with its settings.
type contestant struct {
	name    string // such as "asynq"
	setting string // what it is set to, in words
	ours    bool
	fast    bool // settings are chosen for speed; otherwise they are the defaults
	jobs    []string
	open    func(ctx context.Context) (system, error)
}

func (c *contestant) title() string {
	if c.setting == "" {
		return c.name
	}
	return c.name + ", " + c.setting
}

const payloadBytes = 100

// payload has the task's number and its due time in it, so that whoever handles it
// can tell how late it is by the same clock, whatever the system keeps of it.
func payload(number int, due time.Time) []byte {
	b := make([]byte, 0, payloadBytes)
	b = fmt.Appendf(b, "%016x%016x", number, due.UnixNano())
	for i := number; len(b) < payloadBytes; i = i*1103515245 + 12345 {
		b = append(b, 'a'+byte(uint(i)>>16%26))
	}
	return b
}

func parsePayload(b []byte) (number int, due time.Time, err error) {
	if len(b) != payloadBytes {
		return 0, due, fmt.Errorf("a payload of %d bytes", len(b))
	}
	n, err := strconv.ParseInt(string(b[:16]), 16, 64)
	if err != nil {
		return 0, due, err
	}
	ns, err := strconv.ParseInt(string(b[16:32]), 16, 64)
	return int(n), time.Unix(0, ns), err
}

// id is 20 bytes long.
func id(number int) string { return fmt.Sprintf("task-%015d", number) }
