package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"time"

	"github.com/duetime/duetime/store"
)

// difference says in what two tasks differ; empty where they do not. No payload
// and an empty one are the same.
func difference(got, want store.Task) string {
	switch {
	case got.Queue != want.Queue || got.ID != want.ID:
		return fmt.Sprintf("is %q of %q, want %q of %q", got.ID, got.Queue, want.ID, want.Queue)
	case got.State != want.State:
		return fmt.Sprintf("is %v, want %v", got.State, want.State)
	case !bytes.Equal(got.Payload, want.Payload):
		return fmt.Sprintf("payload %.80q (%d bytes), want %.80q (%d bytes)", got.Payload, len(got.Payload), want.Payload, len(want.Payload))
	case !maps.Equal(got.Headers, want.Headers):
		return fmt.Sprintf("headers %.200q, want %.200q", got.Headers, want.Headers)
	case !got.Due.Equal(want.Due):
		return fmt.Sprintf("due %v, want %v", got.Due, want.Due)
	case !got.Created.Equal(want.Created):
		return fmt.Sprintf("created %v, want %v", got.Created, want.Created)
	case got.Generation != want.Generation:
		return fmt.Sprintf("generation %d, want %d", got.Generation, want.Generation)
	case got.Failures != want.Failures:
		return fmt.Sprintf("failures %d, want %d", got.Failures, want.Failures)
	case got.Lost != want.Lost:
		return fmt.Sprintf("lost %d, want %d", got.Lost, want.Lost)
	case got.MaxAttempts != want.MaxAttempts:
		return fmt.Sprintf("max attempts %d, want %d", got.MaxAttempts, want.MaxAttempts)
	case got.LastError != want.LastError:
		return fmt.Sprintf("last error %.80q, want %.80q", got.LastError, want.LastError)
	case got.Worker != want.Worker:
		return fmt.Sprintf("worker %q, want %q", got.Worker, want.Worker)
	case !got.LeaseUntil.Equal(want.LeaseUntil):
		return fmt.Sprintf("lease until %v, want %v", got.LeaseUntil, want.LeaseUntil)
	}
	return ""
}

// badTime says what is wrong with the form of a time that a store returned.
func badTime(t time.Time) string {
	switch {
	case t.IsZero():
		return "is not set"
	case t.Location() != time.UTC:
		return fmt.Sprintf("is %v, not in UTC", t)
	case t.Nanosecond()%1e6 != 0:
		return fmt.Sprintf("is %v, finer than a millisecond", t)
	}
	return ""
}
