package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/duetime/duetime/store"
)

// measures collects what the store tells of itself, as duetime_store_….
type measures struct{ of store.Measurer }

// Describe tells nothing, which makes the collector an unchecked one: the store
// decides what there is.
func (measures) Describe(chan<- *prometheus.Desc) {}

func (m measures) Collect(ch chan<- prometheus.Metric) {
	for _, v := range m.of.Measures() {
		kind := prometheus.GaugeValue
		if v.Counter {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("duetime_store_"+v.Name, v.Help, nil, nil), kind, v.Value)
	}
}
