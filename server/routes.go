package server

import (
	"net/http"

	"github.com/duetime/duetime/internal/wire"
)

// route is one call: what it does, and what the documents say of it.
type route struct {
	method, path string
	name         string // its operation id
	tag          string
	summary      string
	about        string
	query        []queryParam
	header       []queryParam
	request      any // of the body's type; nil: none
	alsoTakes    []string
	emptyBody    bool  // the body may be left out
	stream       bool  // the answer is a stream of events
	batch        bool  // takes many items, so that its body may be larger
	status       []int // of good answers; nil: 200
	answer       any   // of the answer's type
	fails        []int // beside 400 and 503
	handle       handleCall
}

type queryParam struct {
	name, about string
	kind        string // string, integer, boolean
	enum        []string
	required    bool
}

// limit is how large a body may be. Twice the payload leaves room for base64, or
// for white space.
func (rt *route) limit(s *Server) int64 {
	if rt.batch {
		return s.opts.MaxBatchBody
	}
	return 2*int64(s.store.Capabilities().MaxPayload) + 64<<10
}

var (
	payloadParam = queryParam{
		name: "payload", kind: "string", enum: []string{"json", "base64", "none"},
		about: "How to show payloads: as JSON where they are JSON (json), always as base64, so that every byte comes back (base64), or not at all, headers neither (none).",
	}
	idParam    = queryParam{name: "id", kind: "string", required: true, about: "The task's id."}
	forceParam = queryParam{name: "force", kind: "boolean", about: "Cancel it even while it runs: its worker's receipt becomes stale."}
)

const (
	tagTasks  = "Tasks"
	tagWork   = "Work"
	tagQueues = "Queues"
	tagBatch  = "Batches over queues"
	tagServer = "Server"
)

const ndjson = "application/x-ndjson"

func (s *Server) routes() []*route {
	const (
		notFound, leased, tooLarge, media = http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType
		precondition, full                = http.StatusPreconditionFailed, http.StatusInsufficientStorage
	)
	list := []*route{
		{
			method: "POST", path: "/v1/queues/{queue}/tasks", name: "schedule", tag: tagTasks, summary: "Schedule a task",
			about:   "Safe to repeat: with the id that a live task has, nothing changes, and the answer is 200 with outcome exists and the task that is there; 201 where the task is new.",
			query:   []queryParam{payloadParam},
			request: wire.NewTask{}, status: []int{http.StatusCreated, http.StatusOK}, answer: wire.Task{},
			fails: []int{tooLarge, media, full}, handle: schedule,
		},
		{
			method: "POST", path: "/v1/queues/{queue}/tasks/batch", name: "scheduleMany", tag: tagTasks, summary: "Schedule up to 10,000 tasks",
			about:   "As JSON, or as NDJSON, one task a line. A task that is wrong is refused in its outcome, and the others are scheduled; a body that can not be read is refused whole.",
			query:   []queryParam{payloadParam},
			request: wire.ScheduleBatch{}, alsoTakes: []string{ndjson, "application/ndjson"}, batch: true, answer: wire.Outcomes{},
			fails: []int{tooLarge, media, full}, handle: scheduleQueueBatch,
		},
		{
			method: "GET", path: "/v1/queues/{queue}/tasks", name: "list", tag: tagTasks, summary: "List tasks by due time",
			query: []queryParam{
				{name: "state", kind: "string", enum: []string{"scheduled", "ready", "leased", "dead"}, about: "All states, one after the other (leased, ready, scheduled, dead), where it is not given."},
				{name: "cursor", kind: "string", about: "The next_cursor of the page before."},
				{name: "limit", kind: "integer", about: "1 to 1000; 100 where it is not given."},
				{name: "payload", kind: "string", enum: payloadParam.enum, about: payloadParam.about + " Here none is the default."},
			},
			answer: wire.TaskPage{}, fails: []int{http.StatusNotImplemented}, handle: listTasks,
		},
	}
	for _, one := range []struct {
		path, suffix, note string
		query              []queryParam
	}{
		{path: "/v1/queues/{queue}/tasks/{id}", note: "The id is escaped as in any path: a slash is %2F."},
		{
			path: "/v1/queues/{queue}/task", suffix: "ByQuery", query: []queryParam{idParam},
			note: "The same with the id in the query, for ids that do not go well into a path: . and .. above all, which many clients take away.",
		},
	} {
		with := func(more ...queryParam) []queryParam { return append(append([]queryParam{}, one.query...), more...) }
		list = append(list,
			&route{
				method: "GET", path: one.path, name: "get" + one.suffix, tag: tagTasks, summary: "Look at a task", about: one.note,
				query: with(payloadParam), answer: wire.Task{}, fails: []int{notFound}, handle: getTask,
			},
			&route{
				method: "DELETE", path: one.path, name: "cancel" + one.suffix, tag: tagTasks, summary: "Cancel a task",
				about: one.note + " After 200 the task is never handed out again. A running one is 409.",
				query: with(forceParam), answer: wire.Cancelled{}, fails: []int{notFound, leased}, handle: cancelTask,
			},
			&route{
				method: "PATCH", path: one.path, name: "reschedule" + one.suffix, tag: tagTasks, summary: "Give a task another due time", about: one.note,
				query: with(), request: wire.RescheduleBody{}, alsoTakes: []string{"application/merge-patch+json"}, answer: wire.Rescheduled{},
				fails: []int{notFound, leased, tooLarge, media}, handle: rescheduleTask,
			},
		)
	}
	list = append(list, &route{
		method: "POST", path: "/v1/queues/{queue}/claim", name: "claim", tag: tagWork, summary: "Take due tasks to work on",
		about: "Oldest due first. With wait, the answer comes the moment a task is due. A client that goes away while it waits gets nothing: what was claimed for it is released. now and next are there without wait.",
		query: []queryParam{payloadParam}, request: wire.ClaimBody{}, emptyBody: true, answer: wire.ClaimResult{}, fails: []int{media}, handle: claim,
	})
	list = append(list, &route{
		method: "POST", path: "/v1/claims/end", name: "endClaims", tag: tagWork, summary: "End waiting claims",
		about:   "They are answered at once, with no tasks, or with those that were being handed out. For a worker that stops: if it just closed the connection, tasks on their way to it would wait for their leases to run out.",
		request: wire.EndClaims{}, batch: true, answer: wire.Ended{}, fails: []int{tooLarge, media}, handle: endClaims,
	}, &route{
		method: "GET", path: "/v1/queues/{queue}/wake", name: "wake", tag: tagWork, summary: "Be told when to claim",
		about:  "A stream of server-sent events: one when the stream begins, and one whenever something may have become due earlier than an answer's next said. An event may be lost or false. Most programs do not need it: a claim with wait is simpler.",
		stream: true, handle: wake,
	})
	for _, one := range []struct {
		name, summary, about string
		request              any
		handle               handleCall
	}{
		{"ack", "Done: the tasks are gone", "", wire.ReceiptsBody{}, ack},
		{"retry", "Failed: try again later", "Counts as a failure; past the limit the task is dead.", wire.RetryBody{}, retry},
		{"snooze", "Look again later", "Not a failure.", wire.SnoozeBody{}, snooze},
		{"release", "Give back: ready again at once", "Nothing is counted.", wire.ReceiptsBody{}, release},
		{"bury", "Give up: dead", "A person may look at it and redrive it.", wire.BuryBody{}, bury},
		{"extend", "Ask for more time", "The receipt stays valid.", wire.ExtendBody{}, extend},
	} {
		list = append(list, &route{
			method: "POST", path: "/v1/" + one.name, name: one.name, tag: tagWork, summary: one.summary, about: one.about,
			request: one.request, batch: true, answer: wire.SettleOutcomes{}, fails: []int{tooLarge, media}, handle: one.handle,
		})
	}
	ifMatch := []queryParam{{name: "If-Match", kind: "string", about: "The ETag of the settings that you have read; 412 where they were changed since."}}
	list = append(list,
		&route{method: "GET", path: "/v1/queues", name: "queues", tag: tagQueues, summary: "Names of all queues", answer: wire.QueueList{}, handle: listQueues},
		&route{
			method: "GET", path: "/v1/queues/{queue}", name: "queue", tag: tagQueues, summary: "Counts and settings of a queue",
			about: "A queue that does not exist has zeros and the default settings. The ETag is the version of the settings.", answer: wire.Queue{}, handle: getQueue,
		},
		&route{
			method: "PATCH", path: "/v1/queues/{queue}", name: "changeSettings", tag: tagQueues, summary: "Change settings",
			about:  "A merge patch (RFC 7396): what is not given stays, null brings the default back.",
			header: ifMatch, request: wire.SettingsPatch{}, alsoTakes: []string{"application/merge-patch+json"}, answer: wire.Settings{},
			fails: []int{precondition, tooLarge, media}, handle: patchQueue,
		},
		&route{
			method: "POST", path: "/v1/queues/{queue}/pause", name: "pause", tag: tagQueues, summary: "Hand nothing out", header: ifMatch,
			emptyBody: true, answer: wire.Settings{}, fails: []int{precondition}, handle: pauseQueue,
		},
		&route{
			method: "POST", path: "/v1/queues/{queue}/resume", name: "resume", tag: tagQueues, summary: "Hand out again", header: ifMatch,
			emptyBody: true, answer: wire.Settings{}, fails: []int{precondition}, handle: resumeQueue,
		},
		&route{
			method: "POST", path: "/v1/queues/{queue}/redrive", name: "redrive", tag: tagQueues, summary: "Bring dead tasks back",
			about: "No failures, nothing lost, due now. Ids of other tasks are passed over.", request: wire.RedriveBody{}, batch: true, answer: wire.Redriven{},
			fails: []int{tooLarge, media}, handle: redrive,
		},
		&route{
			method: "POST", path: "/v1/queues/{queue}/purge", name: "purge", tag: tagQueues, summary: "Remove tasks",
			about: "Those of one state, those with the given ids, or all. Receipts of leased ones become stale.", request: wire.PurgeBody{}, batch: true, answer: wire.Purged{},
			fails: []int{tooLarge, media}, handle: purge,
		},
	)
	for _, one := range []struct {
		name, summary   string
		request, answer any
		handle          handleCall
	}{
		{"schedule", "Schedule tasks", wire.ScheduleBatch{}, wire.Outcomes{}, scheduleBatch},
		{"import", "Take tasks in as they were elsewhere, counters and dead ones included", wire.ImportBatch{}, wire.Results{}, importBatch},
		{"get", "Look at tasks", wire.GetBatch{}, wire.Results{}, getBatch},
		{"cancel", "Cancel tasks", wire.CancelBatch{}, wire.Results{}, cancelBatch},
		{"reschedule", "Give tasks another due time", wire.RescheduleBatch{}, wire.Results{}, rescheduleBatch},
		{"settle", "Settle leases, each in its own way", wire.SettleBatch{}, wire.Results{}, settleBatch},
		{"claim", "Claim from several queues, or for several workers, without waiting", wire.ClaimBatch{}, wire.ClaimResults{}, claimBatch},
	} {
		list = append(list, &route{
			method: "POST", path: "/v1/batch/" + one.name, name: one.name + "Batch", tag: tagBatch, summary: one.summary,
			about: "Up to 10,000 items of any queues, carried out in order; what is wrong with one is its own result.",
			query: []queryParam{payloadParam}, request: one.request, batch: true, answer: one.answer, fails: []int{tooLarge, media}, handle: one.handle,
		})
	}
	return append(list,
		&route{method: "GET", path: "/v1/capabilities", name: "capabilities", tag: tagServer, summary: "What the server's store can do", answer: wire.Capabilities{}, handle: capabilities},
		&route{method: "GET", path: "/healthz", name: "healthz", tag: tagServer, summary: "The process is alive", handle: healthz},
		&route{
			method: "GET", path: "/readyz", name: "readyz", tag: tagServer, summary: "The store answers and waiting claims are served",
			about: "503 once either has failed for 5 seconds; the body says why.", answer: readiness{}, handle: readyz,
		},
		&route{method: "GET", path: "/metrics", name: "metrics", tag: tagServer, summary: "Metrics, for Prometheus", handle: s.passTo(s.metricsHandler())},
		&route{
			method: "GET", path: "/openapi.json", name: "openapi", tag: tagServer, summary: "This description, as OpenAPI 3.1",
			handle: func(c *call) error { return c.page("application/openapi+json", s.openapi) },
		},
		&route{
			method: "GET", path: "/docs", name: "docs", tag: tagServer, summary: "This description, for people",
			handle: func(c *call) error { return c.page("text/html; charset=utf-8", s.docs) },
		},
		&route{method: "GET", path: "/", name: "root", tag: "", handle: s.passTo(http.RedirectHandler("/docs", http.StatusFound))},
	)
}

// passTo lets a handler of another package answer.
func (s *Server) passTo(h http.Handler) handleCall {
	return func(c *call) error {
		h.ServeHTTP(c.w, c.r)
		return nil
	}
}
