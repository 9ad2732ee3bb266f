package main

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
)

// A server with a large state gives back unused memory some time after its last work. Its memory counts as
// settled when it has not shrunk for settleTime. settled() waits for that, but not longer than settleMost.
const (
	settleTime = 45 * time.Second
	settleMost = 5 * time.Minute
)

// settled() waits until a process has settled, and returns its resident memory.
func settled(pid int) (least int64) {
	begin := time.Now()
	for at := begin; time.Since(at) < settleTime && time.Since(begin) < settleMost; time.Sleep(time.Second) {
		if now := measure.Resident(pid); least == 0 || now < least*99/100 {
			least, at = now, time.Now()
		}
	}
	return least
}

// large() measures all properties of one large state together, because filling takes long.
func large(n int) point {
	snaps, again := snapshots(n), restart(n)
	return point{
		name: fmt.Sprintf("large:%d", n), alone: true, once: true,
		help: fmt.Sprintf("%d nodes of 100 bytes: memory at rest before and after a restart; %s; and %s", n,
			snaps.help, again.help),
		run: func(c *config, s *side) (sample, error) { return runLarge(c, s, n) },
	}
}

func runLarge(c *config, s *side, n int) (out sample, err error) {
	from := time.Now()
	e, err := bigServer(c, s, n, snapshotsEvery(n))
	if err != nil {
		return out, err
	}
	defer e.Close()
	filled := time.Since(from)
	rest := func(name string) {
		each := float64(settled(e.Servers[0].Pid())) / float64(n)
		out.metrics = append(out.metrics, metric{name: name, unit: "B/node", value: each, lower: true})
	}
	rest("resident")
	busy, err := runSnapshots(c, e, n)
	if err != nil {
		return out, err
	}
	busy.metrics = append(out.metrics, busy.metrics...)
	out = busy
	out.note = fmt.Sprintf("filled in %v; %s", filled.Round(time.Second), busy.note)
	for _, v := range e.Servers {
		v.Kill()
	}
	d, err := startTime(e)
	if err != nil {
		return out, err
	}
	cpu := measure.CPU(e.Servers[0].Pid())
	out.metrics = append(out.metrics, metric{name: "restart", unit: "s", value: d.Seconds(), lower: true},
		metric{name: "restart", unit: "s of processor", value: cpu.Seconds(), lower: true})
	rest("resident again")
	return out, nil
}

// snapshotsEvery makes a server with n nodes take a snapshot each n/10 entries. Both sides do so by default
// with a million nodes.
func snapshotsEvery(n int) func(*cluster.Options) {
	every := max(n/10, 1000)
	return func(o *cluster.Options) {
		o.Flags = append(o.Flags, "--snapshot-entries", fmt.Sprint(every))
		o.JVM = append(o.JVM, fmt.Sprintf("-Dzookeeper.snapCount=%d", every))
	}
}
