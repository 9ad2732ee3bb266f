package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// second() measures what a second cluster of three servers costs when both clusters run in this process.
func second() point {
	return point{
		name: "second", only: 1, alone: true,
		help: "two clusters of three servers in this process: what the first takes, and the second beside it",
		run: func(c *config, s *side) (sample, error) {
			if s.options.Kind != cluster.Zlockd || s.external != nil {
				return sample{}, errNotHere
			}
			return runSecond(c)
		},
	}
}

func runSecond(c *config) (out sample, err error) {
	var conns []*wire.Pipe
	var work []workload
	defer func() { closeAll(conns) }()
	add := func(name, unit string, v float64) {
		out.metrics = append(out.metrics, metric{name: name, unit: unit, value: v, lower: true})
	}
	for i, name := range []string{"first", "second"} {
		memory, busy := atRest(c)
		addr, closed, err := embed(c)
		if err != nil {
			return out, err
		}
		defer closed()
		more, used := atRest(c)
		add(name+", memory", "MB", more-memory)
		add(name+", idle", "% of a core", used-busy)
		conn, err := wire.OpenPipe(addr, sessionTimeout)
		if err != nil {
			return out, err
		}
		conns, work = append(conns, conn), append(work, setWork([]string{"/second"}))
		if err := makeNodes(conn, []string{"/second"}); err != nil {
			return out, err
		}
		for k := range i + 1 { // with two clusters, write to each while the other one is idle
			if _, err := load(conns[k:k+1], work[k:k+1], 1, c.warm); err != nil {
				return out, err
			}
			r, err := load(conns[k:k+1], work[k:k+1], 1, c.duration)
			if err != nil {
				return out, err
			}
			add(fmt.Sprintf("write to cluster %d of %d", k+1, i+1), "ms", ms(r.lat.quantile(0.5)))
		}
	}
	r, err := load(conns, work, 1, c.duration)
	if err == nil {
		add("write, both at once", "ms", ms(r.lat.quantile(0.5)))
	}
	return out, err
}

// atRest returns the MB of heap and stacks in this process, and the share of a core that it uses, in %.
func atRest(c *config) (memory, busy float64) {
	time.Sleep(c.warm)
	before := ownCPU()
	time.Sleep(c.duration)
	busy = 100 * float64(ownCPU()-before) / float64(c.duration)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / 1e6, busy
}

// embed() starts a durable cluster of three in this process and returns the address of a server.
func embed(c *config) (addr string, closed func(), err error) {
	const n = 3
	dir, err := os.MkdirTemp(c.dir, "zlockd-second-")
	if err != nil {
		return "", nil, err
	}
	ports, err := cluster.FreePorts(n)
	if err != nil {
		return "", nil, err
	}
	peers := map[uint32]string{}
	for i, p := range ports {
		peers[uint32(i+1)] = p
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list := make([]*server.Instance, n)
	err = parallel(n, n, func(i int) (err error) {
		list[i], err = server.Start(ctx, server.Options{ID: uint32(i + 1), ClientAddr: "127.0.0.1:0",
			Logger:  slog.New(slog.DiscardHandler),
			DataDir: fmt.Sprintf("%s/%d", dir, i+1), Peers: peers})
		if err != nil {
			return err
		}
		return list[i].Ready(ctx)
	})
	closed = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		parallel(n, n, func(i int) error {
			if list[i] != nil {
				list[i].Close(ctx)
			}
			return nil
		})
		os.RemoveAll(dir)
	}
	if err != nil {
		closed()
		return "", nil, errors.Join(errors.New("the cluster did not form"), err)
	}
	return list[0].ClientAddr(), closed, nil
}
