package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// readsBusy measures reads at followers during writes.
func readsBusy(readers int, good3 float64) point {
	return point{
		name: fmt.Sprintf("reads-busy@%d", readers), good3: good3, only: 3,
		help: fmt.Sprintf("%d connections read at followers while 16 others write everywhere", readers),
		run:  func(c *config, s *side) (sample, error) { return runReadsBusy(c, s, readers) },
	}
}

func runReadsBusy(cfg *config, s *side, readers int) (out sample, err error) {
	const writers = 16
	var followers []string
	for _, a := range s.addrs() {
		if cluster.Mode(a) == "follower" {
			followers = append(followers, a)
		}
	}
	if len(followers) == 0 {
		return out, errors.New("no follower")
	}
	root := cfg.unique("busy")
	err = s.stage(root, writers, func(conns []*wire.Pipe) error {
		more, err := dialAll(followers, readers, sessionTimeout)
		if err != nil {
			return err
		}
		defer closeAll(more)
		conns = append(conns, more...)
		paths := nodes(root, len(conns))
		if err := makeNodes(conns[0], paths); err != nil {
			return err
		}
		work := make([]workload, len(conns))
		for i, c := range conns {
			c.Sync(root)
			if err := do(c); err != nil {
				return err
			}
			mine := paths[i : i+1]
			if work[i] = setWork(mine); i >= writers {
				work[i] = getWork(mine)
			}
		}
		out, err = runBoth(cfg, s, conns, work, writers)
		return err
	})
	return out, err
}

// runBoth measures two loads at once: the first `writers` connections write, and the others read.
func runBoth(cfg *config, s *side, conns []*wire.Pipe, work []workload, writers int) (out sample, err error) {
	var reads, writes *result
	both := func(d time.Duration) error {
		return parallel(2, 2, func(i int) (err error) {
			if i == 0 {
				writes, err = load(conns[:writers], work[:writers], 1, d)
			} else {
				reads, err = load(conns[writers:], work[writers:], 1, d)
			}
			return err
		})
	}
	if err := both(cfg.warm); err != nil {
		return out, err
	}
	before := takeUsage(s.pids())
	if err := both(cfg.duration); err != nil {
		return out, err
	}
	out.ops = reads.ops + writes.ops
	out.server, out.client = before.perOp(out.ops)
	out.tails = reads.lat.tails()
	out.metrics = []metric{{unit: "reads/s", value: reads.rate()}, {name: "writes", unit: "writes/s",
		value: writes.rate()}}
	return out, nil
}

// failover() measures how long writes at the surviving servers stop when the leader, or another voter,
// is killed.
func failover(name, victim string, good3 float64) point {
	return point{
		name: name, good3: good3, only: 3, alone: true,
		help: "kill -9 of " + victim + ": until the first write at a survivor, until every client there writes " +
			"again, clients of survivors that lost their connection",
		start: func(_ *config, s *side) (*cluster.Ensemble, error) { return s.fresh(nil) },
		run: func(c *config, s *side) (sample, error) {
			return runFailover(c, s.own, name == "failover")
		},
	}
}

// survivor is a client of a surviving server.
type survivor struct {
	addr    string
	c       *wire.Pipe
	path    string
	dropped bool
}

// write() sets the survivor's node once, and reconnects as often as necessary.
func (v *survivor) write(deadline time.Time) error {
	for {
		v.c.SetDeadline(deadline)
		v.c.Set(v.path, payload)
		_, err := v.c.Do()
		if err == nil {
			return nil
		}
		v.dropped = true
		for {
			if time.Now().After(deadline) {
				return fmt.Errorf("no write after the server's end: %w", err)
			}
			v.c.Drop()
			c, again := wire.AttachPipe(v.addr, v.c.Session, v.c.Zxid)
			if again == nil {
				v.c = c
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}

func runFailover(cfg *config, e *cluster.Ensemble, leads bool) (out sample, err error) {
	const perServer = 4
	victim, err := e.AwaitLeader()
	if err != nil {
		return out, err
	}
	if !leads { // kill another voter
		victim = e.Servers[victim.ID%cfg.nodes]
	}
	var clients []*survivor
	for _, s := range serving(e) {
		if s == victim {
			continue
		}
		for range perServer {
			c, err := wire.OpenPipe(s.Client, sessionTimeout)
			if err != nil {
				return out, err
			}
			v := &survivor{addr: s.Client, c: c, path: fmt.Sprintf("/failover-%d-%d", time.Now().UnixNano(),
				len(clients))}
			if err := makeNodes(c, []string{v.path}); err != nil {
				return out, err
			}
			clients = append(clients, v)
		}
	}
	var (
		dead  atomic.Int64 // when the victim was certainly gone, ns since `start`
		start = time.Now()
		wg    sync.WaitGroup
		after = make([]time.Duration, len(clients))
		errs  = make([]error, len(clients))
	)
	for i, v := range clients {
		wg.Go(func() {
			for {
				sent := time.Now()
				if errs[i] = v.write(sent.Add(30 * time.Second)); errs[i] != nil {
					return
				}
				// Only a write that was sent after the victim's end proves that service resumed.
				if at := dead.Load(); at > 0 && sent.Sub(start) > time.Duration(at) || v.dropped {
					after[i] = time.Since(start)
					return
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	at := time.Since(start)
	victim.Kill()
	dead.Store(int64(time.Since(start)))
	wg.Wait()
	lost := 0
	for i, v := range clients {
		if v.dropped {
			lost++
		}
		after[i] -= at
		defer v.c.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	slices.Sort(after)
	if err := victim.Spawn(); err != nil {
		return out, err
	}
	if err := victim.WaitReady(); err != nil {
		return out, err
	}
	time.Sleep(time.Second) // the next round starts from a calm ensemble
	out.metrics = []metric{
		{unit: "ms", value: ms(max(after[0], time.Microsecond)), lower: true},
		{name: "all", unit: "ms", value: ms(after[len(after)-1]), lower: true},
		{name: "dropped", unit: fmt.Sprintf("of %d", len(clients)), value: float64(lost), lower: true},
	}
	return out, nil
}
