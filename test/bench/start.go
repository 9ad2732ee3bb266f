package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// firstCreate waits until the server at `addr` answers a create. It tries again a millisecond after each
// refusal. A starting server may accept a connection without answering it, so firstCreate also tries again in
// parallel when an attempt hangs.
func firstCreate(addr string, patience time.Duration) error {
	const hung = 50 * time.Millisecond
	var (
		deadline = time.Now().Add(patience)
		results  = make(chan error, 1000)
		last     error
		pending  int
	)
	for {
		if pending < cap(results) {
			pending++
			go func() { results <- createOnce(addr, deadline) }()
		}
		select {
		case last = <-results:
			if pending--; last == nil {
				return nil
			}
			time.Sleep(time.Millisecond)
		case <-time.After(hung):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no create answered: %v", last)
		}
	}
}

func createOnce(addr string, deadline time.Time) error {
	c, err := wire.OpenPipe(addr, sessionTimeout)
	if err != nil {
		return err
	}
	defer c.Drop() // closing the session would cost a further write
	c.SetDeadline(deadline)
	c.Create("/first-", nil, 3)
	_, err = c.Do()
	return err
}

// startTime starts prepared servers and waits for the first create at each.
func startTime(e *cluster.Ensemble) (time.Duration, error) {
	from := time.Now()
	for _, s := range e.Servers {
		if err := s.Spawn(); err != nil {
			return 0, err
		}
	}
	for _, s := range e.Servers {
		if err := firstCreate(s.Client, 10*time.Minute); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, s.Log(40))
		}
	}
	return time.Since(from), nil
}

func startPoint(name, help string, good float64, change func(*cluster.Options)) point {
	return point{
		name: name, good: good, good3: min(good, 2.5), alone: true, help: help,
		run: func(c *config, s *side) (out sample, err error) {
			if change != nil && s.options.Kind != cluster.Zlockd {
				return out, errNotHere
			}
			e, err := s.prepare(change)
			if err != nil {
				return out, err
			}
			defer e.Close()
			d, err := startTime(e)
			out.metrics = []metric{{unit: "ms", value: ms(d), lower: true}}
			return out, err
		},
	}
}

// startup() measures the time from the start of a process on an empty data directory to its first create.
func startup() point {
	return startPoint("startup", "process start on an empty directory to the first answered create", 8, nil)
}

// startupDev measures zlockd in memory.
func startupDev() point {
	p := startPoint("startup-dev", "the same in memory, zlockd --dev; below 50 ms", 0, func(o *cluster.Options) {
		o.Dev = true
	})
	p.only = 1
	return p
}

// startupEmbedded measures zlockd inside this process, as tests use it.
func startupEmbedded() point {
	return point{
		name: "startup-embedded", only: 1, alone: true,
		help: "server.Start in this process to the first answered create; below 5 ms",
		run: func(c *config, s *side) (out sample, err error) {
			if s.options.Kind != cluster.Zlockd || s.external != nil {
				return out, errNotHere
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			from := time.Now()
			i, err := server.Start(ctx, server.Options{ClientAddr: "127.0.0.1:0",
				Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return out, err
			}
			err = firstCreate(i.ClientAddr(), 10*time.Second)
			out.metrics = []metric{{unit: "ms", value: ms(time.Since(from)), lower: true}}
			i.Close(ctx)
			return out, err
		},
	}
}

// bigServer starts fresh servers with room for n nodes, and creates the nodes.
func bigServer(c *config, s *side, n int, change func(*cluster.Options)) (*cluster.Ensemble, error) {
	e, err := s.fresh(func(o *cluster.Options) {
		c.makeRoom(o)
		if change != nil {
			change(o)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := fill(e.Servers[0].Client, payload, n); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// restart() measures a start with a large state, after a kill.
func restart(n int) point {
	return point{
		name: fmt.Sprintf("restart:%d", n), good: 3, alone: true,
		help:  fmt.Sprintf("kill -9 with %d nodes of 100 bytes, start to first answered create", n),
		start: func(c *config, s *side) (*cluster.Ensemble, error) { return bigServer(c, s, n, nil) },
		run: func(_ *config, s *side) (out sample, err error) {
			for _, v := range s.own.Servers {
				v.Kill()
			}
			// The disk cache is not emptied, because the measurement is about the server.
			d, err := startTime(s.own)
			if err != nil {
				return out, err
			}
			out.metrics = []metric{{unit: "s", value: d.Seconds(), lower: true}}
			return out, withConn(s.own.Servers[0].Client, func(c *wire.Pipe) error {
				c.Get(fillPath(n-1), false) // the last node must still be there
				_, err := c.Do()
				return err
			})
		},
	}
}

// snapshotConns is how many connections write while snapshots are taken.
const snapshotConns = 64

// snapshots() measures how snapshots of a large state affect writes.
func snapshots(n int) point {
	return point{
		name: fmt.Sprintf("snapshots:%d", n), alone: true, once: true,
		help: fmt.Sprintf("%d connections write at random over %d nodes while snapshots are taken every %d "+
			"requests: slowest write (to stay below 100 ms), slowest second as a part of the mean (to stay above 25 "+
			"%%); then at half of that rate, begun at random times", snapshotConns, n, max(n/10, 1000)),
		start: func(c *config, s *side) (*cluster.Ensemble, error) {
			return bigServer(c, s, n, snapshotsEvery(n))
		},
		run: func(c *config, s *side) (sample, error) { return runSnapshots(c, s.own, n) },
	}
}

func runSnapshots(cfg *config, e *cluster.Ensemble, n int) (out sample, err error) {
	conns, err := dialAll(addrsOf(e), snapshotConns, sessionTimeout)
	if err != nil {
		return out, err
	}
	defer closeAll(conns)
	work := make([]workload, snapshotConns)
	for i := range work {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		work[i] = one{func(c *wire.Pipe, _ int) { c.Set(fillPath(rnd.IntN(n)), payload) }}
	}
	if _, err := load(conns, work, 1, cfg.warm); err != nil {
		return out, err
	}
	before := takeUsage(e.Pids())
	d := max(10*cfg.duration, 3*time.Second)
	r, taken, err := whileSnapshots(e, func() (*result, error) { return load(conns, work, 1, d) })
	if err != nil {
		return out, err
	}
	slowest := r.seconds[0]
	for _, k := range r.seconds[:int(d/time.Second)] {
		slowest = min(slowest, k)
	}
	out.server, out.client = before.perOp(r.ops)
	out.tails = r.lat.tails()
	out.metrics = []metric{
		{unit: "/s", value: r.rate()},
		{name: "slowest write", unit: "ms", value: ms(r.lat.max), lower: true},
		{name: "slowest second", unit: "% of mean", value: 100 * float64(slowest) / r.rate()},
		{name: "standstill", unit: "ms", value: ms(r.pause), lower: true},
	}
	half, halfTaken, err := whileSnapshots(e, func() (*result, error) {
		return openLoad(conns, work, r.rate()/2, d)
	})
	if err != nil {
		return out, err
	}
	tails := half.lat.tails()
	for i, name := range []string{"p50", "p99", "p99.9"} {
		out.metrics = append(out.metrics, metric{name: "half load", unit: name + " ms", value: ms(tails[i]),
			lower: true})
	}
	out.metrics = append(out.metrics,
		metric{name: "slowest at half load", unit: "ms", value: ms(half.lat.max), lower: true})
	out.note = fmt.Sprintf("%d snapshots in %v; at half load %d in the same time", taken, d, halfTaken)
	return out, nil
}

// whileSnapshots calls run() again, up to five times, until snapshots are taken during the call. It returns
// the result of that call, and how many snapshots were taken.
func whileSnapshots(e *cluster.Ensemble, run func() (*result, error)) (r *result, taken int, err error) {
	for range 5 {
		seen, stop, counted := newestSnapshot(e), make(chan struct{}), make(chan int)
		go func() { counted <- countSnapshots(e, seen, stop) }()
		r, err = run()
		close(stop)
		if taken = <-counted; err != nil || taken > 0 {
			return r, taken, err
		}
	}
	return nil, 0, fmt.Errorf("no snapshot was taken, %d writes: run longer", r.ops)
}

// snapshotFiles lists the snapshots of both kinds of servers.
func snapshotFiles(e *cluster.Ensemble) (list []string) {
	for _, pattern := range []string{"data/version-2/snapshot.*", "data/snapshots/*"} {
		found, _ := filepath.Glob(filepath.Join(e.Servers[0].Dir, pattern))
		list = append(list, found...)
	}
	return list
}

func newestSnapshot(e *cluster.Ensemble) map[string]bool {
	seen := map[string]bool{}
	for _, f := range snapshotFiles(e) {
		seen[f] = true
	}
	return seen
}

// countSnapshots counts new snapshots until `stop` is closed. The server may remove old ones while it counts.
func countSnapshots(e *cluster.Ensemble, seen map[string]bool, stop <-chan struct{}) (n int) {
	for {
		for _, f := range snapshotFiles(e) {
			if filepath.Ext(f) == ".tmp" {
				continue
			}
			if _, err := os.Stat(f); err == nil && !seen[f] {
				seen[f] = true
				n++
			}
		}
		select {
		case <-stop:
			return n
		case <-time.After(100 * time.Millisecond):
		}
	}
}
