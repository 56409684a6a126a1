package batch

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/duetime/duetime/store"
)

// group collects the calls of one kind. One is in flight at a time: with a store
// whose calls wait for each other, as syncs of a disk do, two halved the batches
// and cost 40 % of the throughput of 64 callers; where they do not wait it gained
// 25 % (BenchmarkSlowStore, with a call that takes 0.3 ms). A store of that kind
// says so (store.Overlapper), and what there is to do is shared among that many
// flights.
type group[Q, R any] struct {
	call func(context.Context, []Q) ([]R, error)
	size func(*Q) int // bytes that an item weighs; nil: nothing
	keep func(*Q)     // makes an item independent of its caller's memory; nil: it is

	width int // flights at a time; 0: one

	mu     sync.Mutex
	flying int            // flights
	items  int            // in flight and waiting
	queue  []*batch[Q, R] // waiting, oldest first; only the last may still grow
}

// worthwhile is how many items must wait before a flight begins while there is
// another: fewer go with the next one.
const worthwhile = 16

const (
	// many is from how many callers on, and worthRegrouping from how long a call on, it is
	// seen to it that they come together again.
	many            = 8
	worthRegrouping = 250 * time.Microsecond
	// standstill is how many times in a row nobody has to have come.
	standstill = 20
)

// batch is a call to be. Its fields but results and err, which are set before
// done is closed, are under the group's mutex.
type batch[Q, R any] struct {
	ctx     context.Context // the first caller's, without its end
	cancel  context.CancelFunc
	parts   []*part[Q] // nil once the call is being made
	callers int        // who wait for it
	items   int
	bytes   int
	done    chan struct{}
	results []R
	err     error
}

// part is one caller's share of a batch.
type part[Q any] struct {
	items []Q // nil once the caller has gone
	from  int // where its results are
	one   [1]Q
}

func (g *group[Q, R]) do(ctx context.Context, items []Q) ([]R, error) {
	if len(items) >= large || len(items) == 0 {
		return g.call(ctx, items)
	}
	bytes := 0
	if g.size != nil {
		for i := range items {
			bytes += g.size(&items[i])
		}
	}
	if bytes >= maxBytes {
		return g.call(ctx, items)
	}
	g.mu.Lock()
	g.items += len(items)
	if g.flying == 0 {
		g.flying = 1
		g.mu.Unlock()
		defer g.landed(len(items)) // also when the store panics, or everybody behind would hang
		return g.call(ctx, items)
	}
	b, p := g.join(ctx, items, bytes)
	if g.flying < g.width && g.queue[0].items >= worthwhile {
		g.flying++
		go g.fly()
	}
	g.mu.Unlock()

	select {
	case <-b.done:
	case <-ctx.Done():
		g.leave(b, p)
		return nil, ctx.Err()
	}
	if b.err != nil {
		return nil, b.err
	}
	n := len(items)
	return b.results[p.from : p.from+n : p.from+n], nil
}

// join adds items to the batch that is being collected. Called under the mutex.
func (g *group[Q, R]) join(ctx context.Context, items []Q, bytes int) (*batch[Q, R], *part[Q]) {
	var b *batch[Q, R]
	if n := len(g.queue); n > 0 {
		if last := g.queue[n-1]; last.items+len(items) <= g.share() && last.bytes+bytes <= maxBytes {
			b = last
		}
	}
	if b == nil {
		b = &batch[Q, R]{done: make(chan struct{})}
		b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
		g.queue = append(g.queue, b)
	}
	p := new(part[Q])
	if len(items) == 1 {
		p.one[0] = items[0]
		p.items = p.one[:]
	} else {
		p.items = append([]Q(nil), items...)
	}
	// A caller that can not leave early needs no copy of what items point to.
	if g.keep != nil && ctx.Done() != nil {
		for i := range p.items {
			g.keep(&p.items[i])
		}
	}
	b.parts = append(b.parts, p)
	b.callers++
	b.items += len(items)
	b.bytes += bytes
	return b, p
}

// share is how many items a batch may have.
func (g *group[Q, R]) share() int {
	if g.width <= 1 {
		return store.MaxBatch
	}
	return min(max(worthwhile, (g.items+g.width-1)/g.width), store.MaxBatch)
}

// leave takes a caller's items out of a batch that has not gone to the store yet.
// One that has goes on for the others; when all have left it is cancelled, or a
// store that has forgotten about it would hold up everybody for ever.
func (g *group[Q, R]) leave(b *batch[Q, R], p *part[Q]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.parts != nil {
		b.items -= len(p.items)
		g.items -= len(p.items)
		p.items = nil
	}
	if b.callers--; b.callers == 0 {
		b.cancel()
	}
}

// landed is called when a call came back. If others wait, a goroutine takes its
// place, so that a caller never has to wait for calls that are not its own.
func (g *group[Q, R]) landed(items int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.items -= items
	if len(g.queue) == 0 {
		g.flying--
		return
	}
	go g.fly()
}

// fly makes the waiting calls, one after the other, until none waits, or few and
// there is another flight.
func (g *group[Q, R]) fly() {
	landed := 0
	for {
		g.mu.Lock()
		g.items -= landed
		if len(g.queue) == 0 || g.flying > 1 && len(g.queue) == 1 && g.queue[0].items < worthwhile {
			g.flying--
			g.mu.Unlock()
			return
		}
		b := g.queue[0]
		g.queue[0] = nil
		g.queue = g.queue[1:]
		if len(g.queue) == 0 {
			g.queue = nil
		}
		items := make([]Q, 0, b.items)
		for _, p := range b.parts {
			p.from = len(items)
			items = append(items, p.items...)
		}
		b.parts = nil // nobody can leave any more
		callers := b.callers
		landed = len(items)
		g.mu.Unlock()

		start := time.Now()
		if len(items) > 0 {
			b.results, b.err = g.call(b.ctx, items)
			if b.err == nil && len(b.results) != len(items) {
				b.err = fmt.Errorf("the store gave %d results for %d items", len(b.results), len(items))
			}
		}
		close(b.done)
		b.cancel()
		g.regroup(callers, time.Since(start))
	}
}

// regroup lets those who were waiting for a batch go first: what they ask for next
// then goes with the next one instead of the one after it. With one flight that
// nearly doubles the batches where the same callers call again and again. They run
// on several processors, so that once around is not enough; but it is not waited
// for callers who do not come.
func (g *group[Q, R]) regroup(callers int, took time.Duration) {
	runtime.Gosched()
	if callers < many || took < worthRegrouping {
		return
	}
	last, still := -1, 0
	for still < standstill {
		g.mu.Lock()
		waiting, alone := 0, g.flying == 1
		for _, b := range g.queue {
			waiting += b.callers
		}
		g.mu.Unlock()
		if waiting >= callers || !alone {
			return
		}
		if waiting == last {
			still++
		} else {
			last, still = waiting, 0
		}
		runtime.Gosched()
	}
}
