package admin

import (
	"cmp"
	"net/http"
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zlockd/zlockd/server/metrics"
)

// Exporter has what the metrics of a server and its process are made from.
type Exporter struct {
	Status       func(Need) *Status // a fresh value at each call
	LoginsFailed func() int64       // at the admin port, since the start
	NoJVM        bool               // leave out the jvm_* metrics
}

// Handler serves the metrics from a registry of its own.
func (e Exporter) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector{e},
	)
	if !e.NoJVM {
		registry.MustRegister(jvmCollector{})
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// collector makes metrics from a Status. Each value has two names: the name in ZooKeeper's own exporter, and
// the name in `mntr`, which other exporters pass on.
type collector struct{ Exporter }

// Describe declares nothing, because the set of metrics depends on the Status.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.Status(NeedMetrics | NeedDirs | NeedProcess)
	o := output{ch}
	o.native(s)
	o.prefixed(s)
	o.own(s)
	o.put("zlockd_admin_logins_failed_total", "Requests at the admin port with a wrong name or password.",
		prometheus.CounterValue, float64(c.LoginsFailed()))
}

type output struct{ ch chan<- prometheus.Metric }

func (o output) gauge(name, help string, v float64, labels ...Pair) {
	o.put(name, help, prometheus.GaugeValue, v, labels...)
}

func (o output) put(name, help string, kind prometheus.ValueType, v float64, labels ...Pair) {
	o.sample(name, help, labels, func(desc *prometheus.Desc, values []string) (prometheus.Metric, error) {
		return prometheus.NewConstMetric(desc, kind, v, values...)
	})
}

func (o output) sample(name, help string, labels []Pair,
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

func (o output) summary(name string, v metrics.Summary, advanced bool, labels ...Pair) {
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

// native writes the names of ZooKeeper's Prometheus provider.
func (o output) native(s *Status) {
	for _, g := range gauges(s) {
		o.gauge(g.name, cmp.Or(g.help, nativeHelp(g.name)), g.value)
	}
	for _, name := range counterNames {
		o.put(name, nativeHelp(name), prometheus.CounterValue, float64(s.Counters[name]))
	}
	for _, name := range basicNames {
		o.summary(name, s.Summaries[name], false)
	}
	for _, name := range advancedNames {
		o.summary(name, s.Summaries[name], true)
	}
	for family, keyed := range keyed(s) {
		for key, v := range keyed {
			o.summary(family, v, keyedNames[family], label("key", key))
		}
	}
}

// prefixed writes the names of mntr, with its text values as labels.
func (o output) prefixed(s *Status) {
	o.gauge("zk_up", "1 while clients are served.", Flag(s.Serving))
	o.gauge("zk_ruok", "1: the process answers.", 1)
	o.gauge("zk_server_leader", "1 on the leader.", Flag(s.leading()))

	plainOnly := *s
	plainOnly.Keyed, plainOnly.Extra = nil, nil // these have labels, or a family of their own
	each(&plainOnly, func(name, value string, text bool) {
		help := "As mntr's zk_" + name + "."
		switch {
		case !text:
			v, err := strconv.ParseFloat(value, 64)
			if err == nil {
				o.put("zk_"+name, help, prometheus.UntypedValue, v)
			}
		case name == "version":
			o.gauge("zk_version", help, 1, label("version", s.Version))
		default:
			o.gauge("zk_"+name, help, 1, label("state", value))
		}
	})
}

// own writes zlockd's own family.
func (o output) own(s *Status) {
	gauge := func(name, help string, v float64, labels ...Pair) { o.gauge("zlockd_"+name, help, v, labels...) }
	gauge("build_info", "Always 1; the labels describe the build.", 1, label("version", s.Version), label("goversion", runtime.Version()))
	gauge("serving", "1 while clients are served.", Flag(s.Serving))
	gauge("leader", "1 on the leader.", Flag(s.leading()))
	gauge("leader_id", "Id of the leader, 0 when unknown.", float64(s.Leader))
	gauge("zxid", "Newest zxid applied.", float64(s.Zxid))
	gauge("raft_term", "Raft term.", float64(s.Term))
	gauge("raft_last_index", "Newest entry in the log.", float64(s.Last))
	gauge("raft_commit_index", "Newest entry known to be committed.", float64(s.Commit))
	gauge("raft_applied_index", "Newest entry applied.", float64(s.Applied))
	gauge("snapshot_zxid", "Zxid of the newest snapshot.", float64(s.Snapshot.Zxid))
	gauge("faults", "Number of faults that /health reports.", float64(len(s.Faults)))
	gauge("notices", "Number of notices that /health reports.", float64(len(s.Notices)))
	for _, x := range s.Extra {
		if h := x.Histogram; h != nil {
			o.sample("zlockd_"+x.Name, x.Help, x.Labels,
				func(desc *prometheus.Desc, values []string) (prometheus.Metric, error) {
					return prometheus.NewConstHistogram(desc, h.Count, h.Sum, h.Buckets, values...)
				})
			continue
		}
		kind := prometheus.GaugeValue
		if strings.HasSuffix(x.Name, "_total") {
			kind = prometheus.CounterValue
		}
		o.put("zlockd_"+x.Name, x.Help, kind, x.Value, x.Labels...)
	}
}

func label(key, value string) Pair { return Pair{Key: key, Value: value} }
