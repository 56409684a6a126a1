package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/duetime/duetime/store"
)

var limitCases = []testCase{
	{"schedule refuses bad input and stores nothing", 0, func(e *env) {
		good := store.NewTask{Queue: "limits", ID: "1"}
		for what, c := range map[string]struct {
			field string
			spoil func(*store.NewTask)
		}{
			"no queue":                 {"queue", func(n *store.NewTask) { n.Queue = "" }},
			"queue too long":           {"queue", func(n *store.NewTask) { n.Queue = strings.Repeat("q", store.MaxQueueBytes+1) }},
			"queue with a space":       {"queue", func(n *store.NewTask) { n.Queue = "a b" }},
			"queue with a slash":       {"queue", func(n *store.NewTask) { n.Queue = "a/b" }},
			"queue with braces":        {"queue", func(n *store.NewTask) { n.Queue = "a{b}" }},
			"queue that is not ASCII":  {"queue", func(n *store.NewTask) { n.Queue = "qä" }},
			"queue begins with a dot":  {"queue", func(n *store.NewTask) { n.Queue = ".q" }},
			"queue begins with a dash": {"queue", func(n *store.NewTask) { n.Queue = "-q" }},
			"no id":                    {"id", func(n *store.NewTask) { n.ID = "" }},
			"id too long":              {"id", func(n *store.NewTask) { n.ID = strings.Repeat("i", store.MaxIDBytes+1) }},
			"id far too long":          {"id", func(n *store.NewTask) { n.ID = strings.Repeat("ä", 4096) }},
			"id with a NUL":            {"id", func(n *store.NewTask) { n.ID = "a\x00b" }},
			"id with a line end":       {"id", func(n *store.NewTask) { n.ID = "a\nb" }},
			"id with DEL":              {"id", func(n *store.NewTask) { n.ID = "a\x7f" }},
			"id with a C1 control":     {"id", func(n *store.NewTask) { n.ID = "a\u0085b" }},
			"id that is not UTF-8":     {"id", func(n *store.NewTask) { n.ID = "a\xff" }},
			"payload too long":         {"payload", func(n *store.NewTask) { n.Payload = make([]byte, e.caps.MaxPayload+1) }},
			"headers too long":         {"headers", func(n *store.NewTask) { n.Headers = map[string]string{"h": strings.Repeat("x", store.MaxHeaderBytes)} }},
			"header without a name":    {"headers", func(n *store.NewTask) { n.Headers = map[string]string{"": "x"} }},
			"header with a line end":   {"headers", func(n *store.NewTask) { n.Headers = map[string]string{"a": "x\r\nb: y"} }},
			"negative delay":           {"delay", func(n *store.NewTask) { n.Delay = -time.Millisecond }},
			"most negative delay":      {"delay", func(n *store.NewTask) { n.Delay = math.MinInt64 }},
			"due and delay":            {"delay", func(n *store.NewTask) { n.Due, n.Delay = time.Unix(1, 0), 1 }},
			"before 1970":              {"due_at", func(n *store.NewTask) { n.Due = time.Unix(0, -1) }},
			"in the year 1018":         {"due_at", func(n *store.NewTask) { n.Due = time.Date(1018, 6, 2, 0, 0, 0, 0, time.UTC) }},
			"in the year 10000":        {"due_at", func(n *store.NewTask) { n.Due = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
			"in the last nanosecond":   {"due_at", func(n *store.NewTask) { n.Due = store.MaxTime.Add(time.Millisecond - 1) }},
			"far beyond all years":     {"due_at", func(n *store.NewTask) { n.Due = time.Unix(math.MaxInt64/2, 0) }},
			"negative max attempts":    {"max_attempts", func(n *store.NewTask) { n.MaxAttempts = -1 }},
			"too many attempts":        {"max_attempts", func(n *store.NewTask) { n.MaxAttempts = store.MaxAttemptLimit + 1 }},
			"unknown conflict":         {"on_conflict", func(n *store.NewTask) { n.Conflict = 9 }},
		} {
			n := good
			c.spoil(&n)
			r := e.schedule(n)[0]
			if r.Outcome != store.Refused {
				e.Errorf("%s: %v, want refused", what, r.Outcome)
				continue
			}
			e.inputError(what, r.Err, c.field)
		}
		queues, err := e.st.Queues(e.ctx)
		e.must(err)
		if len(queues) != 0 {
			e.Errorf("refused tasks created queues %q", queues)
		}
		if s := e.stats("limits"); s != (store.Stats{}) {
			e.Errorf("refused tasks are counted: %+v", s)
		}
	}},
	{"the limits themselves are allowed", get, func(e *env) {
		past := e.past()
		headers := map[string]string{"a": "", "b": ""}
		headers["a"] = strings.Repeat("x", store.MaxHeaderBytes-2)
		payload := make([]byte, e.caps.MaxPayload)
		for i := range payload {
			payload[i] = byte(i * 7)
		}
		queue := strings.Repeat("q", store.MaxQueueBytes)
		for _, n := range []store.NewTask{
			{Queue: queue, ID: strings.Repeat("i", store.MaxIDBytes)},
			{Queue: queue, ID: strings.Repeat("€", store.MaxIDBytes/3)},
			{Queue: queue, ID: "payload", Payload: payload},
			{Queue: queue, ID: "headers", Headers: headers},
			{Queue: queue, ID: "attempts", MaxAttempts: store.MaxAttemptLimit},
		} {
			n.Due = past
			e.create(n)
			l := e.claimResult(queue, 1).Tasks
			e.sameIDs("claim", ids(l), []string{n.ID})
			if d := difference(l[0].Task, store.Task{
				Queue: queue, ID: n.ID, State: store.StateLeased, Payload: n.Payload, Headers: n.Headers, Due: past,
				Created: l[0].Created, MaxAttempts: n.MaxAttempts, Worker: "w", LeaseUntil: l[0].LeaseUntil,
			}); d != "" {
				e.Errorf("task %.20q: %s", n.ID, d)
			}
			e.ack(l[0])
		}
	}},
	{"cancel, reschedule and get refuse bad keys", cancel | reschedule | get, func(e *env) {
		for _, k := range []struct{ queue, id, field string }{
			{"", "1", "queue"}, {"a b", "1", "queue"}, {q, "", "id"}, {q, strings.Repeat("i", 256), "id"}, {q, "a\tb", "id"},
		} {
			c, err := e.st.Cancel(e.ctx, []store.CancelRequest{{Queue: k.queue, ID: k.id}})
			e.must(err)
			m, err := e.st.Reschedule(e.ctx, []store.RescheduleRequest{{Queue: k.queue, ID: k.id}})
			e.must(err)
			g, err := e.st.Get(e.ctx, []store.Key{{Queue: k.queue, ID: k.id}})
			e.must(err)
			for i, r := range []store.Result{c[0], m[0], g[0]} {
				what := [...]string{"cancel", "reschedule", "get"}[i]
				e.outcome(what, r, store.Refused)
				e.inputError(what, r.Err, k.field)
			}
		}
	}},
	{"reschedule refuses bad times and changes nothing", reschedule | get, func(e *env) {
		e.create(store.NewTask{ID: "1", Delay: time.Hour})
		before := e.task("1")
		for _, c := range []struct {
			field string
			r     store.RescheduleRequest
		}{
			{"delay", store.RescheduleRequest{Delay: -1}},
			{"delay", store.RescheduleRequest{Delay: 1, Due: time.Unix(1, 0)}},
			{"due_at", store.RescheduleRequest{Due: time.Unix(-1, 0)}},
			{"due_at", store.RescheduleRequest{Due: store.MaxTime.Add(1)}},
		} {
			c.r.Queue, c.r.ID = q, "1"
			r, err := e.st.Reschedule(e.ctx, []store.RescheduleRequest{c.r})
			e.must(err)
			e.outcome("reschedule", r[0], store.Refused)
			e.inputError("reschedule", r[0].Err, c.field)
		}
		e.same("after refusals", e.task("1"), before)
	}},
	{"claim refuses bad requests and serves the others", 0, func(e *env) {
		e.ready("1")
		bad := []struct {
			field string
			r     store.ClaimRequest
		}{
			{"queue", store.ClaimRequest{Queue: "", Max: 1}},
			{"queue", store.ClaimRequest{Queue: "a b", Max: 1}},
			{"max", store.ClaimRequest{Queue: q, Max: 0}},
			{"max", store.ClaimRequest{Queue: q, Max: -1}},
			{"max", store.ClaimRequest{Queue: q, Max: store.MaxBatch + 1}},
			{"lease", store.ClaimRequest{Queue: q, Max: 1, Lease: -1}},
			{"lease", store.ClaimRequest{Queue: q, Max: 1, Lease: time.Millisecond - 1}},
			{"lease", store.ClaimRequest{Queue: q, Max: 1, Lease: store.MaxLease + 1}},
			{"lease", store.ClaimRequest{Queue: q, Max: 1, Lease: time.Second, AtMostOnce: true}},
		}
		var requests []store.ClaimRequest
		for _, b := range bad {
			requests = append(requests, b.r)
		}
		requests = append(requests, store.ClaimRequest{Queue: q, Max: 1})
		r := e.claimRequests(requests...)
		for i, b := range bad {
			e.inputError(fmt.Sprintf("%+v", b.r), r[i].Err, b.field)
		}
		last := r[len(bad)]
		e.must(last.Err)
		e.sameIDs("the good request", ids(last.Tasks), []string{"1"})
	}},
	{"the shortest and the longest lease are allowed", 0, func(e *env) {
		e.ready("1", "2")
		e.leaseFor("1", store.MaxLease)
		e.leaseFor("2", store.MinLease)
	}},
	{"settle refuses bad input and the lease goes on", 0, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		cut := l.Receipt[:len(l.Receipt)-1]
		other := []byte(l.Receipt)
		other[len(other)/2] ^= 1
		bad := []struct {
			field string
			s     store.Settlement
		}{
			{"receipt", store.Settlement{Action: store.Ack}},
			{"receipt", store.Settlement{Receipt: "nonsense", Action: store.Ack}},
			{"receipt", store.Settlement{Receipt: cut, Action: store.Ack}},
			{"receipt", store.Settlement{Receipt: store.Receipt(other), Action: store.Ack}},
			{"receipt", store.Settlement{Receipt: store.Receipt(strings.Repeat("A", 5000)), Action: store.Ack}},
			{"action", store.Settlement{Receipt: l.Receipt}},
			{"action", store.Settlement{Receipt: l.Receipt, Action: 77}},
			{"delay", store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: -1}},
			{"delay", store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Second, Backoff: true}},
			{"delay", store.Settlement{Receipt: l.Receipt, Action: store.Snooze, Delay: -time.Hour}},
			{"lease", store.Settlement{Receipt: l.Receipt, Action: store.Extend, Lease: -1}},
			{"lease", store.Settlement{Receipt: l.Receipt, Action: store.Extend, Lease: store.MaxLease + 1}},
		}
		for _, b := range bad {
			r := e.settle(b.s)[0]
			e.outcome(fmt.Sprintf("settle %+v", b.s), r, store.Refused)
			e.inputError(fmt.Sprintf("settle %+v", b.s), r.Err, b.field)
		}
		e.counts(0, 0, 1, 0)
		e.ack(l)
	}},
	{"a batch that is too long is refused as a whole", 0, func(e *env) {
		e.ready("1")
		l := e.lease("1")
		n := store.MaxBatch + 1
		tasks := make([]store.NewTask, n)
		for i := range tasks {
			tasks[i] = store.NewTask{Queue: q, ID: fmt.Sprint("x", i)}
		}
		_, err := e.st.Schedule(e.ctx, tasks)
		e.inputError("schedule", err, "batch")
		settlements := make([]store.Settlement, n)
		for i := range settlements {
			settlements[i] = store.Settlement{Receipt: l.Receipt, Action: store.Ack}
		}
		_, err = e.st.Settle(e.ctx, settlements)
		e.inputError("settle", err, "batch")
		claims := make([]store.ClaimRequest, n)
		for i := range claims {
			claims[i] = store.ClaimRequest{Queue: q, Max: 1}
		}
		_, err = e.st.Claim(e.ctx, claims)
		e.inputError("claim", err, "batch")
		if e.caps.Cancel {
			_, err = e.st.Cancel(e.ctx, make([]store.CancelRequest, n))
			e.inputError("cancel", err, "batch")
		}
		if e.caps.Reschedule {
			_, err = e.st.Reschedule(e.ctx, make([]store.RescheduleRequest, n))
			e.inputError("reschedule", err, "batch")
		}
		if e.caps.Get {
			_, err = e.st.Get(e.ctx, make([]store.Key, n))
			e.inputError("get", err, "batch")
		}
		e.counts(0, 0, 1, 0)
		e.ack(l)
	}},
	{"list, stats, redrive and purge refuse bad input", list | redrive | purge, func(e *env) {
		for _, c := range []struct {
			field string
			r     store.ListRequest
		}{
			{"queue", store.ListRequest{Queue: "", State: store.StateReady}},
			{"state", store.ListRequest{Queue: q}},
			{"state", store.ListRequest{Queue: q, State: 9}},
			{"limit", store.ListRequest{Queue: q, State: store.StateReady, Limit: -1}},
			{"limit", store.ListRequest{Queue: q, State: store.StateReady, Limit: store.MaxList + 1}},
			{"cursor", store.ListRequest{Queue: q, State: store.StateReady, Cursor: "nonsense"}},
		} {
			_, err := e.st.List(e.ctx, c.r)
			e.inputError(fmt.Sprintf("list %+v", c.r), err, c.field)
		}
		_, err := e.st.Stats(e.ctx, "a b")
		e.inputError("stats", err, "queue")
		for _, c := range []struct {
			field string
			r     store.RedriveRequest
		}{
			{"queue", store.RedriveRequest{Queue: "", All: true}},
			{"ids", store.RedriveRequest{Queue: q}},
			{"ids", store.RedriveRequest{Queue: q, All: true, IDs: []string{"1"}}},
			{"id", store.RedriveRequest{Queue: q, IDs: []string{"1", ""}}},
			{"batch", store.RedriveRequest{Queue: q, IDs: make([]string, store.MaxBatch+1)}},
		} {
			_, err := e.st.Redrive(e.ctx, c.r)
			e.inputError(fmt.Sprintf("redrive %.100v", c.r), err, c.field)
		}
		_, err = e.st.Purge(e.ctx, "", store.StateDead)
		e.inputError("purge", err, "queue")
		_, err = e.st.Purge(e.ctx, q, 0)
		e.inputError("purge", err, "state")
	}},
	{"error texts are cleaned and cut, never refused", get, func(e *env) {
		for i, text := range []string{
			"plain", "", "\xC3\x28", "a\x00b\x1b[31mred", "😀 敏琳张", "line\nline\ttab",
			strings.Repeat("stack trace\n", 1<<20), strings.Repeat("€", store.MaxErrorBytes), strings.Repeat("\xff", 10000),
		} {
			id := fmt.Sprint(i)
			e.ready(id)
			l := e.lease(id)
			e.settled(store.Retrying, store.Settlement{Receipt: l.Receipt, Action: store.Retry, Delay: time.Hour, Error: text})
			t := e.task(id)
			if t.LastError != store.CleanError(text) || !utf8.ValidString(t.LastError) || len(t.LastError) > store.MaxErrorBytes {
				e.Errorf("error %.40q was kept as %.40q (%d bytes)", text, t.LastError, len(t.LastError))
			}
			if t.Failures != 1 {
				e.Errorf("after error %.40q: %d failures, want 1", text, t.Failures)
			}
			e.die("b"+id, text)
			if t := e.task("b" + id); t.LastError != store.CleanError(text) {
				e.Errorf("buried with error %.40q, kept %.40q", text, t.LastError)
			}
		}
	}},
	{"worker names are cleaned and cut, never refused", get, func(e *env) {
		for i, name := range []string{"", "host-7/3", "ä\xff\x00b", strings.Repeat("w", 4096)} {
			id := fmt.Sprint(i)
			e.ready(id)
			r := e.claimRequests(store.ClaimRequest{Queue: q, Max: 1, Worker: name})[0]
			e.must(r.Err)
			if got := e.state(id, store.StateLeased).Worker; got != store.CleanWorker(name) || r.Tasks[0].Worker != got {
				e.Errorf("worker %.40q was kept as %.40q", name, got)
			}
			e.ack(r.Tasks[0])
		}
	}},
	{"a context that has ended ends the call", 0, func(e *env) {
		ctx, stop := context.WithCancel(e.ctx)
		stop()
		if _, err := e.st.Schedule(ctx, []store.NewTask{{Queue: q, ID: "1"}}); !errors.Is(err, context.Canceled) {
			e.Errorf("schedule: error %v, want context.Canceled", err)
		}
		if _, err := e.st.Claim(ctx, []store.ClaimRequest{{Queue: q, Max: 1}}); !errors.Is(err, context.Canceled) {
			e.Errorf("claim: error %v, want context.Canceled", err)
		}
		e.ready("2")
		e.lease("2")
	}},
}
