package clientgo

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// provider returns Prometheus children with upstream's buckets, as component-base does.
type provider struct{}

func (provider) NewDepthMetric(string) workqueue.GaugeMetric {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "depth"})
}

func (provider) NewAddsMetric(string) workqueue.CounterMetric {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "adds"})
}

func (provider) NewLatencyMetric(string) workqueue.HistogramMetric { return histogram("latency") }

func (provider) NewWorkDurationMetric(string) workqueue.HistogramMetric { return histogram("work") }

func (provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "unfinished"})
}

func (provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "longest"})
}

func (provider) NewRetriesMetric(string) workqueue.CounterMetric {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "retries"})
}

func histogram(name string) workqueue.HistogramMetric {
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 10)
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Buckets: buckets})
}
