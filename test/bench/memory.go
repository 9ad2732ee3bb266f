package main

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// restTime is the time for a server to come to rest before its memory is read.
const restTime = 3 * time.Second

// residentOf returns the resident memory of all servers at rest.
func residentOf(e *cluster.Ensemble) float64 {
	time.Sleep(restTime)
	var sum int64
	for _, s := range e.Servers {
		sum += measure.Resident(s.Pid())
	}
	return float64(sum)
}

// memoryPoint measures what a load adds to the resident memory of a fresh
// server: bytes per unit.
func memoryPoint(name, unit, help string, good float64, count int,
	fill func(addrs []string) (closeAll func(), err error)) point {
	return point{
		name: name, good: good, alone: true, once: true, help: help,
		run: func(c *config, s *side) (out sample, err error) {
			e, err := s.fresh(func(o *cluster.Options) {
				c.makeRoom(o)
				manyConnections(o, c.sessions)
			})
			if err != nil {
				return out, err
			}
			defer e.Close()
			base := residentOf(e)
			done, err := fill(addrsOf(e))
			if err != nil {
				return out, err
			}
			defer done()
			full := residentOf(e)
			each := (full - base) / float64(count) / float64(len(e.Servers))
			out.metrics = []metric{
				{unit: "B/" + unit, value: each, lower: true},
				{name: "resident", unit: "MB", value: full / 1e6, lower: true},
			}
			return out, nil
		},
	}
}

// makeRoom lets a server have a large state.
func (c *config) makeRoom(o *cluster.Options) {
	if o.Kind == cluster.ZooKeeper {
		o.JVM = append(o.JVM, c.bigHeap)
	}
}

// idleMemory measures a server without clients.
func idleMemory() point {
	return point{
		name: "memory", good: 3, alone: true, help: "resident memory of a fresh server",
		run: func(c *config, s *side) (out sample, err error) {
			e, err := s.fresh(nil)
			if err != nil {
				return out, err
			}
			defer e.Close()
			out.metrics = []metric{{unit: "MB", value: residentOf(e) / float64(len(e.Servers)) / 1e6, lower: true}}
			return out, nil
		},
	}
}

// sessionMemory measures idle sessions with their connections.
func sessionMemory(n int) point {
	return memoryPoint(fmt.Sprintf("sessions:%d", n), "session",
		"resident memory that an idle connected session adds", 1, n,
		func(addrs []string) (func(), error) {
			conns, err := dialAll(addrs, n, sessionTimeout)
			return func() { dropAll(conns) }, err
		})
}

// watchMemory measures one-shot watches on missing paths, the most expensive kind. A waiter that watches a
// lock before its node exists sets such a watch.
func watchMemory(n int) point {
	const conns = 100
	return memoryPoint(fmt.Sprintf("watches:%d", n), "watch",
		fmt.Sprintf("resident memory that an exists watch adds, %d sessions with %d each", conns, n/conns), 2, n,
		func(addrs []string) (func(), error) {
			list, err := dialAll(addrs, conns, sessionTimeout)
			if err != nil {
				return nil, err
			}
			return func() { dropAll(list) }, parallel(4, conns, func(i int) error {
				return bulk(list[i], n/conns, func(k int) {
					list[i].Exists(fmt.Sprintf("/watched/by-%d/node-%07d", i, k), true)
				}, jute.NoNode)
			})
		})
}

// znodeMemory measures persistent nodes of 100 bytes.
func znodeMemory(n int) point {
	return memoryPoint(fmt.Sprintf("znodes:%d", n), "znode",
		"resident memory that a node of 100 bytes adds, 1,000 in a directory", 2, n,
		func(addrs []string) (func(), error) { return func() {}, fill(addrs[0], payload, n) })
}

// fill() creates n nodes with data, a thousand to a directory.
func fill(addr string, data []byte, n int) error {
	const perDir = 1000
	dirs := (n + perDir - 1) / perDir
	if err := withConn(addr, func(c *wire.Pipe) error {
		paths := []string{"/fill"}
		for i := range dirs {
			paths = append(paths, fillDir(i))
		}
		return makeNodes(c, paths)
	}); err != nil {
		return err
	}
	return parallel(8, dirs, func(i int) error {
		return withConn(addr, func(c *wire.Pipe) error {
			k := min(perDir, n-i*perDir)
			return bulk(c, k, func(j int) { c.Create(fillPath(i*perDir+j), data, 0) }, jute.OK)
		})
	})
}

func fillDir(i int) string { return fmt.Sprintf("/fill/d%05d", i) }

func fillPath(i int) string { return fmt.Sprintf("/fill/d%05d/node-%07d", i/1000, i) }

func withConn(addr string, f func(*wire.Pipe) error) error {
	c, err := wire.OpenPipe(addr, sessionTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}
