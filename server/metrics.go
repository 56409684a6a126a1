package server

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/duetime/duetime/store"
)

const (
	// maxQueueLabels bounds the series: queues past it are counted as "other".
	maxQueueLabels = 1000
	// A scrape asks the store for the counts of queues at most this often, and
	// for at most this long.
	statsEvery   = time.Second
	statsTimeout = 5 * time.Second
)

type metrics struct {
	registry *prometheus.Registry

	scheduledTotal *prometheus.CounterVec // queue, outcome
	handedOut      *prometheus.CounterVec // queue
	settledTotal   *prometheus.CounterVec // queue, outcome
	expired        *prometheus.CounterVec // queue
	lateness       *prometheus.HistogramVec
	waiting        prometheus.Gauge
	gone           prometheus.Counter
	requests       *prometheus.CounterVec // call, status

	mu     sync.Mutex
	queues map[string]struct{}
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), queues: map[string]struct{}{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "duetime", Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	m.scheduledTotal = counter("scheduled_total", "Tasks given to this server, by what became of them.", "queue", "outcome")
	m.handedOut = counter("handed_out_total", "Tasks handed out by this server.", "queue")
	m.settledTotal = counter("settled_total", "Leases settled at this server, by what became of the task.", "queue", "outcome")
	m.expired = counter("leases_expired_total", "Leases handed out by this server that ran out.", "queue")
	m.requests = counter("http_requests_total", "Requests answered.", "call", "status")
	m.lateness = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "duetime", Name: "lateness_seconds",
		Help: "From a task's due time to its hand-out, by the store's clock, where no lease was lost before.",
		Buckets: []float64{
			0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600,
		},
	}, []string{"queue"})
	m.waiting = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "duetime", Name: "waiting_claims", Help: "Claims that wait for a task now."})
	m.gone = prometheus.NewCounter(prometheus.CounterOpts{Namespace: "duetime", Name: "released_for_gone_clients_total", Help: "Tasks given back because their client had gone."})
	m.registry.MustRegister(m.lateness, m.waiting, m.gone, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// queue is the label of a queue.
func (m *metrics) queue(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.queues[name]; !ok {
		if len(m.queues) >= maxQueueLabels {
			return "other"
		}
		m.queues[name] = struct{}{}
	}
	return name
}

func (m *metrics) scheduled(queue string, o store.Outcome, n int) {
	if o == store.Refused {
		queue = "" // it may be one that can not exist
	} else {
		queue = m.queue(queue)
	}
	m.scheduledTotal.WithLabelValues(queue, o.String()).Add(float64(n))
}

// handedOut counts tasks that are about to be sent.
func (s *Server) handedOut(leases []store.Lease) {
	s.leases.out(leases)
	for i := range leases {
		l := &leases[i]
		queue := s.metrics.queue(l.Queue)
		s.metrics.handedOut.WithLabelValues(queue).Inc()
		if l.Lost == 0 {
			s.metrics.lateness.WithLabelValues(queue).Observe(l.ClaimedAt.Sub(l.Due).Seconds())
		}
	}
}

// settled counts what became of leases.
func (s *Server) settled(settlements []store.Settlement, results []store.Result) {
	s.leases.settled(settlements, results)
	for i := range results {
		queue := ""
		if parts, err := settlements[i].Receipt.Parse(); err == nil && results[i].Outcome != store.Stale {
			queue = s.metrics.queue(parts.Queue)
		}
		s.metrics.settledTotal.WithLabelValues(queue, results[i].Outcome.String()).Inc()
	}
}

// sweepLeases counts the leases that ran out.
func (s *Server) sweepLeases() {
	for queue, n := range s.leases.sweep(s.now()) {
		s.metrics.expired.WithLabelValues(s.metrics.queue(queue)).Add(float64(n))
	}
}

// depth collects the counts of queues at each scrape.
type depth struct {
	s *Server

	mu   sync.Mutex
	at   time.Time
	last []queueStats
	all  bool // last has all queues
}

type queueStats struct {
	queue string
	stats store.Stats
}

var (
	tasksDesc   = prometheus.NewDesc("duetime_tasks", "Tasks in the store, by state.", []string{"queue", "state"}, nil)
	oldestDesc  = prometheus.NewDesc("duetime_oldest_due_age_seconds", "How long the queue's oldest ready task has been due; 0 where none is.", []string{"queue"}, nil)
	partialDesc = prometheus.NewDesc("duetime_queues_not_counted", "1 where duetime_tasks lacks queues: there are too many, or the store did not answer in time.", nil, nil)
)

func (d *depth) Describe(ch chan<- *prometheus.Desc) {
	ch <- tasksDesc
	ch <- oldestDesc
	ch <- partialDesc
}

func (d *depth) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.at.IsZero() || now.Sub(d.at) >= statsEvery {
		d.last, d.all = d.read()
		d.at = now
	}
	now := d.s.now()
	for _, q := range d.last {
		gauge(tasksDesc, float64(q.stats.Scheduled), q.queue, "scheduled")
		gauge(tasksDesc, float64(q.stats.Ready), q.queue, "ready")
		gauge(tasksDesc, float64(q.stats.Leased), q.queue, "leased")
		gauge(tasksDesc, float64(q.stats.Dead), q.queue, "dead")
		age := 0.0
		if !q.stats.OldestDue.IsZero() {
			age = max(0, now.Sub(q.stats.OldestDue).Seconds())
		}
		gauge(oldestDesc, age, q.queue)
	}
	missing := 1.0
	if d.all {
		missing = 0
	}
	gauge(partialDesc, missing)
}

func (d *depth) read() (list []queueStats, all bool) {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	names, err := d.s.store.Queues(ctx)
	if err != nil {
		d.s.repeats.say(slog.LevelWarn, "metrics: queues can not be listed", "", "error", err)
		return nil, false
	}
	all = len(names) <= maxQueueLabels
	for _, name := range names[:min(len(names), maxQueueLabels)] {
		stats, err := d.s.store.Stats(ctx, name)
		if err != nil {
			d.s.repeats.say(slog.LevelWarn, "metrics: a queue can not be counted", "", "queue", name, "error", err)
			return list, false
		}
		list = append(list, queueStats{name, stats})
	}
	return list, all
}

func (s *Server) metricsHandler() http.Handler {
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 2 * statsTimeout})
}
