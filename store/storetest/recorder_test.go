package storetest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/duetime/duetime/store/storetest"
)

// recorder is a testing.TB that keeps failures to itself, so that a test can say
// that the suite fails. It stands for one case.
type recorder struct {
	testing.TB // for what is not recorded

	mu       sync.Mutex
	failed   bool
	skipped  bool
	messages []string
	cleanups []func()
}

// play runs one case, and returns what it had to say if it failed.
func play(t testing.TB, c storetest.Case, h storetest.Harness) (failed bool, message string) {
	r := &recorder{TB: t}
	inside := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { // a mutant may make a case index out of range
				if p := recover(); p != nil {
					r.Errorf("panic: %v", p)
				}
			}()
			f()
		}()
		<-done
	}
	inside(func() { c.Run(r, h) })
	for len(r.cleanups) > 0 {
		f := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		inside(f)
	}
	if len(r.messages) > 0 {
		message = r.messages[0]
	}
	return r.failed, message
}

func (r *recorder) Helper() {}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) say(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, message)
}

func (r *recorder) Log(args ...any)                 {}
func (r *recorder) Logf(format string, args ...any) {}

func (r *recorder) Error(args ...any) {
	r.say(fmt.Sprint(args...))
	r.Fail()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.say(fmt.Sprintf(format, args...))
	r.Fail()
}

func (r *recorder) Fatal(args ...any) {
	r.say(fmt.Sprint(args...))
	r.FailNow()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.say(fmt.Sprintf(format, args...))
	r.FailNow()
}

func (r *recorder) SkipNow() {
	r.skipped = true
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any)                 { r.SkipNow() }
func (r *recorder) Skipf(format string, args ...any) { r.SkipNow() }
func (r *recorder) Skipped() bool                    { return r.skipped }
