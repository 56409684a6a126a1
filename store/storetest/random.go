package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/duetime/duetime/store"
)

const modelNeeds = cancel | reschedule | get | list | unique | settings | redrive | purge

var modelCases = []testCase{
	{"random operations, few tasks", modelNeeds, func(e *env) { playModel(e, 6, 1500) }},
	{"random operations, more tasks", modelNeeds, func(e *env) { playModel(e, 40, 1500) }},
	{"random operations, many queues", modelNeeds, func(e *env) { playModel(e, 3, 1000, "a", "b", "c", "d:e") }},
}

// player drives a store and the model with the same operations, and compares
// all that the store says.
type player struct {
	*env
	*rand.Rand
	m        *model
	queues   []string
	names    []string
	receipts []store.Receipt // all there ever were
	log      []string        // the last operations
	before   time.Time       // the store's clock before the operation
}

// playModel takes its seed from DUETIME_SEED and the number of operations from
// DUETIME_STEPS, where they are set.
func playModel(e *env, names, steps int, queues ...string) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DUETIME_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		e.must(err)
		seed = n
	}
	if s := os.Getenv("DUETIME_STEPS"); s != "" {
		n, err := strconv.Atoi(s)
		e.must(err)
		steps = n
	}
	p := &player{env: e, Rand: rand.New(rand.NewPCG(seed, seed)), m: newModel(), queues: append(queues, q)}
	for i := range names {
		p.names = append(p.names, fmt.Sprint("t", i))
	}
	e.Cleanup(func() {
		if e.Failed() {
			e.Logf("replay with DUETIME_SEED=%d; the last operations were:", seed)
			for _, line := range p.log[max(0, len(p.log)-12):] {
				e.Logf("  %s", line)
			}
		}
	})
	for _, queue := range p.queues {
		if p.IntN(2) == 0 {
			p.putSettings(queue, func(s *store.Settings) { s.MaxLost = 1 + p.IntN(3) })
		}
	}
	ops := []struct {
		weight int
		do     func()
	}{
		{30, p.schedule},
		{10, p.cancelSome},
		{10, p.moveSome},
		{30, p.claimSome},
		{30, p.settleSome},
		{4, p.getSome},
		{6, p.changeSettings},
		{2, p.redriveSome},
		{1, p.purgeSome},
		{25, p.passTime},
		{1, p.crash},
		{4, p.compare},
	}
	can, err := store.CanImport(e.ctx, e.st)
	e.must(err)
	if can {
		ops = append(ops, struct {
			weight int
			do     func()
		}{6, p.importSome})
	}
	total := 0
	for _, op := range ops {
		total += op.weight
	}
	for range steps {
		n := p.IntN(total)
		for _, op := range ops {
			if n -= op.weight; n < 0 {
				op.do()
				break
			}
		}
		if e.Failed() {
			e.FailNow()
		}
	}
	p.compare()
}

// exact says that the store's clock stands still, so that times can be foretold
// and played with. Otherwise all is due long ago or next year, and leases are
// long, so that nothing depends on the moment.
func (p *player) exact() bool { return p.in.Advance != nil }

func pick[T any](p *player, from ...T) T { return from[p.IntN(len(from))] }

func (p *player) queue() string { return pick(p, p.queues...) }
func (p *player) name() string  { return pick(p, p.names...) }

func (p *player) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%s  ", p.before.Format("15:04:05.000000"))+fmt.Sprintf(format, args...))
}

// start brings the model to the present.
func (p *player) start() {
	p.Helper()
	p.before = p.now()
	p.m.tick(p.before)
}

// when checks a time that the store computed as d from now.
func (p *player) when(what string, got time.Time, due time.Time, d time.Duration) {
	p.Helper()
	if due.IsZero() && d == 0 {
		p.dueNow(what, got, p.before, p.now())
	} else if due.IsZero() {
		p.between(what, got, p.before, p.now(), d)
	} else if !got.Equal(store.CeilMilli(due)) {
		p.Errorf("%s: %v, want %v", what, got, due)
	}
}

func (p *player) want(what string, got store.Result, want store.Outcome) {
	p.Helper()
	if got.Outcome != want {
		p.Fatalf("%s: %v (%v), the model says %v", what, got.Outcome, got.Err, want)
	}
}
