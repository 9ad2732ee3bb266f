package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// metric is one figure of a sample.
type metric struct {
	name  string // added to the point's name; empty for its main figure
	unit  string
	value float64
	lower bool // whether less is better
}

// sample is the result of one round of a point on one side.
type sample struct {
	metrics []metric
	ops     int64   // number of measured operations; zero for a point without any
	tails   tails   // zero if no latency is measured
	server  float64 // CPU µs per operation, all servers; zero if unknown
	client  float64
	note    string // printed once below the table
}

// point is something to measure.
type point struct {
	name  string
	help  string
	good  float64 // the ratio to reach on one node, 0 if none is set
	good3 float64 // the ratio to reach on three nodes
	only  int     // number of servers that the point needs, 0 for any
	alone bool    // whether the point starts its own servers; then the shared servers stop
	once  bool    // whether the point takes too long for rounds: each side runs it once
	floor bool    // whether the floor can run the point, too
	// start() starts the side's own servers for all rounds of the point; nil: run() starts the servers it needs.
	start func(c *config, s *side) (*cluster.Ensemble, error)
	run   func(c *config, s *side) (sample, error)
	// at() runs a round in which operations begin at random times, `rate` of them a second; nil: the point has
	// no rate that could be chosen.
	at func(c *config, s *side, rate float64) (sample, error)
}

// goal() returns the ratio to reach with the given number of nodes.
func (p point) goal(nodes int) float64 {
	if nodes > 1 {
		return p.good3
	}
	return p.good
}

// matches() reports whether a selection names the point: in full, or by the part before @ or :.
func (p point) matches(selection string) bool {
	if selection == "" {
		return true
	}
	family := p.name[:strings.IndexAny(p.name+"@", "@:")]
	for s := range strings.SplitSeq(selection, ",") {
		if s == p.name || s == family {
			return true
		}
	}
	return false
}

// errNotHere says that this side cannot measure a point, for example because the benchmark cannot start its
// servers. The other side still measures the point.
var errNotHere = errors.New("not on this side")

// usage is the CPU time that the servers and this process have used until a moment. perOp() returns what they
// have used since.
type usage struct {
	pids   []int
	server time.Duration
	client time.Duration
}

func takeUsage(pids []int) usage {
	return usage{pids: pids, server: measure.CPU(pids...), client: ownCPU()}
}

// perOp returns the CPU µs per operation of servers and client.
func (u usage) perOp(ops int64) (server, client float64) {
	now := takeUsage(u.pids)
	n := max(float64(ops), 1)
	return float64(now.server-u.server) / 1e3 / n, float64(now.client-u.client) / 1e3 / n
}

// alone() returns the metric `leader`: the CPU time per operation of the processes in u, in µs. If there are
// none, it returns no metric.
func (u usage) alone(ops int64) []metric {
	if len(u.pids) == 0 {
		return nil
	}
	server, _ := u.perOp(ops)
	return []metric{{name: "leader", unit: "CPU µs/op", value: server, lower: true}}
}

// builder makes the workload of a connection; `dir` is a directory that only this connection uses.
type builder func(c *wire.Pipe, dir string, depth int) (w workload, cleanup func() error, err error)

// shape is how a workload is measured. Without a rate, `conns` × `depth` operations are always in flight. At
// a rate, `conns` connections begin operations at random times.
type shape struct {
	name         string
	conns, depth int
	build        builder
}

// throughput() returns a point that keeps `conns` × `depth` operations in flight.
func throughput(name string, conns, depth int, good, good3 float64, help string, build builder) point {
	f := shape{name, conns, depth, build}
	p := point{name: fmt.Sprintf("%s@%d", name, conns), help: help, good: good, good3: good3}
	if depth > 1 {
		p.name += fmt.Sprintf("x%d", depth)
	}
	// The floor answers reads at once, before earlier writes. So it cannot run a point that has reads and
	// writes in flight on one connection.
	p.floor = name != "mixed" && (depth == 1 || name != "lock")
	p.run = func(c *config, s *side) (sample, error) { return f.measure(c, s, 0) }
	p.at = f.measure
	return p
}

// measure() runs one round at a rate. If the rate is 0, operations run as fast as the side can.
func (f shape) measure(c *config, s *side, rate float64) (out sample, err error) {
	root := c.unique(f.name)
	err = s.stage(root, 1+f.conns, func(conns []*wire.Pipe) (err error) {
		out, err = f.run(c, s, root, conns[1:], rate) // the first connection makes and removes the root
		return err
	})
	return out, err
}

func (f shape) run(c *config, s *side, root string, conns []*wire.Pipe, rate float64) (out sample, err error) {
	n, slots := len(conns), f.depth
	if rate > 0 {
		slots = openSlots
	}
	work := make([]workload, n)
	cleanups := make([]func() error, n)
	if err := parallel(16, n, func(i int) (err error) {
		dir := fmt.Sprintf("%s/%d", root, i)
		if err := makeNodes(conns[i], []string{dir}); err != nil {
			return err
		}
		work[i], cleanups[i], err = f.build(conns[i], dir, slots)
		return err
	}); err != nil {
		return out, err
	}
	run := func(d time.Duration) (*result, error) {
		if rate > 0 {
			return openLoad(conns, work, rate, d)
		}
		return load(conns, work, f.depth, d)
	}
	if _, err := run(c.warm); err != nil {
		return out, err
	}
	before, leader := takeUsage(s.pids()), takeUsage(s.leader())
	r, err := run(c.duration)
	if err != nil {
		return out, err
	}
	out.ops = r.ops
	out.server, out.client = before.perOp(r.ops)
	out.tails = r.lat.tails()
	out.metrics = append([]metric{{unit: "/s", value: r.rate()}}, leader.alone(r.ops)...)
	return out, parallel(16, n, func(i int) error {
		if err := cleanups[i](); err != nil {
			return err
		}
		return removeTree(conns[i], fmt.Sprintf("%s/%d", root, i))
	})
}

func noCleanup() error { return nil }

// onNodes makes a builder for workloads on nodes that only their connection uses, one node for each slot.
func onNodes(work func(paths []string) workload) builder {
	return func(c *wire.Pipe, dir string, depth int) (workload, func() error, error) {
		paths := nodes(dir, depth)
		return work(paths), noCleanup, makeNodes(c, paths)
	}
}

func buildCreate(c *wire.Pipe, dir string, _ int) (workload, func() error, error) {
	w := &createWork{dir: dir}
	return w, func() error { return w.remove(c) }, nil
}

func buildLock(c *wire.Pipe, dir string, depth int) (workload, func() error, error) {
	return onNodes(newLockWork)(c, dir, depth)
}
