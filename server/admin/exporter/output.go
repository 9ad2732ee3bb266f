package exporter

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
)

// output sends metrics to Prometheus.
type output struct{ ch chan<- prometheus.Metric }

func (o output) gauge(name, help string, v float64, labels ...report.Pair) {
	o.put(name, help, prometheus.GaugeValue, v, labels...)
}

func (o output) put(name, help string, kind prometheus.ValueType, v float64, labels ...report.Pair) {
	o.sample(name, help, labels, func(desc *prometheus.Desc, values []string) (prometheus.Metric, error) {
		return prometheus.NewConstMetric(desc, kind, v, values...)
	})
}

func (o output) sample(name, help string, labels []report.Pair,
	value func(*prometheus.Desc, []string) (prometheus.Metric, error)) {
	keys, values := make([]string, len(labels)), make([]string, len(labels))
	for i, l := range labels {
		keys[i], values[i] = l.Key, strings.ToValidUTF8(l.Value, "\uFFFD")
	}
	desc := prometheus.NewDesc(name, help, keys, nil)
	m, err := value(desc, values)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	o.ch <- m
}

func (o output) summary(name string, v metrics.Summary, advanced bool, labels ...report.Pair) {
	quantiles := map[float64]float64{0.5: v.P50}
	if advanced {
		quantiles[0.9], quantiles[0.99] = v.P90, v.P99
	}
	o.sample(name, nativeHelp(name), labels,
		func(desc *prometheus.Desc, values []string) (prometheus.Metric, error) {
			return prometheus.NewConstSummary(desc, uint64(v.Count), v.Sum, quantiles, values...)
		})
}

func nativeHelp(name string) string { return "ZooKeeper's " + name + "." }

func label(key, value string) report.Pair { return report.Pair{Key: key, Value: value} }
