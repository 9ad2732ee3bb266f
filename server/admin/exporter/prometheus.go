package exporter

import (
	"cmp"
	"net/http"
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zlockd/zlockd/server/report"
)

// Source says where the metrics come from.
type Source struct {
	Status       func(report.Need) *report.Status // returns a fresh value at each call
	LoginsFailed func() int64                     // returns the number of failed logins at the admin port
	NoJVM        bool                             // leave out the jvm_* metrics
}

// Handler serves the metrics from a registry of its own.
func (e Source) Handler() http.Handler {
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

// collector makes metrics from a Status. It writes each value twice: under the name of ZooKeeper's own
// exporter, and under the name in `mntr`, because other exporters pass that on.
type collector struct{ Source }

// Describe declares no metric, because the set of metrics depends on the Status.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.Status(report.NeedMetrics | report.NeedDirs | report.NeedProcess)
	o := output{ch}
	o.native(s)
	o.prefixed(s)
	o.own(s)
	o.put("zlockd_admin_logins_failed_total", "Requests at the admin port with a wrong name or password.",
		prometheus.CounterValue, float64(c.LoginsFailed()))
}

// native writes the metrics under the names of ZooKeeper's Prometheus provider.
func (o output) native(s *report.Status) {
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

// prefixed writes the values of mntr under their names there. If a value is a text, it becomes a label.
func (o output) prefixed(s *report.Status) {
	o.gauge("zk_up", "1 while clients are served.", report.Flag(s.Serving))
	o.gauge("zk_ruok", "1: the process answers.", 1)
	o.gauge("zk_server_leader", "1 on the leader.", report.Flag(s.Leading()))

	plainOnly := *s
	plainOnly.Keyed, plainOnly.Extra = nil, nil // not here: native() writes Keyed, and own() writes Extra
	Lines(&plainOnly, func(name, value string, text bool) {
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

// own() writes zlockd's own metrics.
func (o output) own(s *report.Status) {
	gauge := func(name, help string, v float64, labels ...report.Pair) {
		o.gauge("zlockd_"+name, help, v, labels...)
	}
	gauge("build_info", "Always 1; the labels describe the build.", 1,
		label("version", s.Version), label("goversion", runtime.Version()))
	gauge("serving", "1 while clients are served.", report.Flag(s.Serving))
	gauge("leader", "1 on the leader.", report.Flag(s.Leading()))
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
