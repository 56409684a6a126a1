package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Distribution is how often something took how long: all repeats together.
type Distribution struct {
	Job    Job        `json:"job"`
	Name   string     `json:"name"`
	Label  string     `json:"label"`
	Count  int64      `json:"count"`
	Early  int64      `json:"early"` // below zero, which are not in the points
	Points []Quantile `json:"points"`
}

// Quantile says that so many percent were at most so late.
type Quantile struct {
	Percent float64 `json:"percent"`
	MS      float64 `json:"ms"`
}

var percents = []float64{0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100}

// Histogram counts lengths of time by the microsecond, with three figures that
// count, from any number of goroutines.
type Histogram struct {
	mu    sync.Mutex
	h     *hdrhistogram.Histogram
	early int64
}

// maxLateness is where lengths of time are cut.
const maxLateness = time.Hour

// NewHistogram makes an empty one.
func NewHistogram() *Histogram {
	return &Histogram{h: hdrhistogram.New(1, maxLateness.Microseconds(), 3)}
}

// Add counts one.
func (h *Histogram) Add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d < 0 {
		h.early++
		return
	}
	_ = h.h.RecordValue(min(d, maxLateness).Microseconds()) // within its bounds, so it can not fail
}

// Merge counts what another one has counted.
func (h *Histogram) Merge(other *Histogram) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.h.Merge(other.h)
	h.early += other.early
}

// Count is how many were counted, those below zero not included.
func (h *Histogram) Count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.h.TotalCount()
}

// At is the length of time in milliseconds that so many percent do not exceed.
func (h *Histogram) At(percent float64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.h.TotalCount() == 0 {
		return 0
	}
	return float64(h.h.ValueAtPercentile(percent)) / 1000
}

// Early is how many were below zero.
func (h *Histogram) Early() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.early
}

// Distribution is the whole of it.
func (h *Histogram) Distribution(job Job, name, label string) Distribution {
	d := Distribution{Job: job, Name: name, Label: label, Count: h.Count(), Early: h.Early(), Points: []Quantile{}}
	if d.Count == 0 {
		return d
	}
	for _, p := range percents {
		if p < 100 && float64(d.Count)*(100-p) < 99.9 {
			continue // not one in so many was measured
		}
		d.Points = append(d.Points, Quantile{p, h.At(p)})
	}
	return d
}
