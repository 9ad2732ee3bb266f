package exporter

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zlockd/zlockd/server/machine"
	"github.com/zlockd/zlockd/server/report"
)

// jvmCollector describes this process by the metrics that ZooKeeper's exporter has for the Java virtual
// machine, because dashboards and alerts use these. Goroutines appear as threads, and Go's collections of
// garbage as Java's.
type jvmCollector struct{}

// jvmPools lists pools of memory: the name that the metrics show, the name in Go's runtime/metrics, and
// whether the pool is a part of the heap.
var jvmPools = []struct {
	name, metric string
	heap         bool
}{
	{"Heap objects", "/memory/classes/heap/objects:bytes", true},
	{"Heap unused", "/memory/classes/heap/unused:bytes", true},
	{"Heap free", "/memory/classes/heap/free:bytes", true},
	{"Stacks", "/memory/classes/heap/stacks:bytes", false},
	{"Metadata", "/memory/classes/metadata/other:bytes", false},
	{"Other", "/memory/classes/other:bytes", false},
}

// jvmStates maps states of goroutines, by their names in runtime/metrics, to states of Java's threads.
var jvmStates = []struct{ state, metric string }{
	{"RUNNABLE", "/sched/goroutines/runnable:goroutines"},
	{"RUNNING", "/sched/goroutines/running:goroutines"},
	{"WAITING", "/sched/goroutines/waiting:goroutines"},
	{"IN_SYSTEM_CALL", "/sched/goroutines/not-in-go:goroutines"},
}

// Describe declares no metric: Collect sends a description with each.
func (jvmCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (jvmCollector) Collect(ch chan<- prometheus.Metric) {
	o := output{ch}
	counter := func(name, help string, v float64, labels ...report.Pair) {
		o.put(name, help, prometheus.CounterValue, v, labels...)
	}

	goroutines := float64(runtime.NumGoroutine())
	o.gauge("jvm_threads_current", "Goroutines.", goroutines)
	o.gauge("jvm_threads_daemon", "Goroutines. They do not keep the process alive.", goroutines)
	// These have no meaning in Go, but dashboards and alerts use them.
	o.gauge("jvm_threads_deadlocked", "Always 0: deadlocks of goroutines are not counted.", 0)
	o.gauge("jvm_threads_deadlocked_monitor", "Always 0: deadlocks of goroutines are not counted.", 0)
	o.gauge("jvm_classes_loaded", "Always 0: a Go program has no classes.", 0)
	for _, s := range jvmStates {
		o.gauge("jvm_threads_state", "Goroutines in this state.", float64(machine.RuntimeValue(s.metric)),
			label("state", s.state))
	}
	counter("jvm_threads_started_total", "Goroutines begun since the start.",
		float64(machine.RuntimeValue("/sched/goroutines-created:goroutines")))
	o.gauge("jvm_info", "What runs this program.", 1, label("version", runtime.Version()), label("vendor", "Go"),
		label("runtime", "Go runtime"))

	limit := float64(machine.UsableMemory())
	if limit == 0 {
		limit = -1 // Java shows -1 if there is no limit
	}
	used, committed := map[bool]float64{}, map[bool]float64{}
	for _, p := range jvmPools {
		size := float64(machine.RuntimeValue(p.metric))
		committed[p.heap] += size
		if p.name != "Heap unused" && p.name != "Heap free" {
			used[p.heap] += size
		}
		pool := label("pool", p.name)
		o.gauge("jvm_memory_pool_bytes_used", "Bytes of a part of the process's memory.", size, pool)
		o.gauge("jvm_memory_pool_bytes_committed", "Bytes of a part of the process's memory.", size, pool)
		o.gauge("jvm_memory_pool_bytes_max", "The limit of the whole process.", limit, pool)
	}
	for heap, name := range map[bool]string{true: "heap", false: "nonheap"} {
		area := label("area", name)
		o.gauge("jvm_memory_bytes_used", "Bytes in use.", used[heap], area)
		o.gauge("jvm_memory_bytes_committed", "Bytes held.", committed[heap], area)
		o.gauge("jvm_memory_bytes_max", "Bytes that the process may use.", limit, area)
	}

	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	kind := label("gc", "Go")
	counter("jvm_gc_collection_seconds_count", "Collections.", float64(gc.NumGC), kind)
	counter("jvm_gc_collection_seconds_sum", "Seconds for which collections stopped the process.",
		gc.PauseTotal.Seconds(), kind)
}
