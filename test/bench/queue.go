package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// handoff measures how a contended lock moves on: from the moment when the holder sends its
// delete until the next contender knows that it holds. The contender finds out as the recipes
// do: by the event, then by the list with its own node first.
func handoff(waiters int, good float64) point {
	return point{
		name: fmt.Sprintf("handoff:%d", waiters), good: good, good3: good,
		help: fmt.Sprintf("a lock with %d waiters is passed on: holder's delete to next holder's certainty",
			waiters),
		run: func(c *config, s *side) (sample, error) { return runHandoff(c, s, waiters) },
	}
}

// contender is one session in the queue of a lock.
type contender struct {
	c    *wire.Pipe
	dir  string
	mine string // name of its node, without the directory
}

// enqueue creates the contender's node.
func (w *contender) enqueue() error {
	w.c.Create(w.dir+"/lock-", nil, jute.FlagEphemeralSequential)
	r, err := w.c.Do()
	if err == nil {
		w.mine = strings.Clone(r.Text()[len(w.dir)+1:])
	}
	return err
}

// await blocks until the contender's node is the first.
func (w *contender) await() error {
	for {
		w.c.Children(w.dir, false)
		r, err := w.c.Do()
		if err != nil {
			return err
		}
		before := predecessor(r.Body, w.mine)
		if before == "" {
			return nil
		}
		w.c.Exists(w.dir+"/"+before, true)
		if _, err := w.c.Do(); err == jute.NoNode {
			continue // deleted between the list and the watch
		} else if err != nil {
			return err
		}
		for {
			r, err := w.c.Next()
			if err != nil {
				return err
			}
			if r.Event != nil && r.Event.Type == jute.EventDeleted {
				break
			}
		}
	}
}

// predecessor returns the greatest name below mine in a getChildren reply.
func predecessor(body []byte, mine string) string {
	d := jute.NewDecoder(body)
	best := ""
	for range max(0, d.Count(4)) {
		if n, _ := d.String(); n < mine && n > best {
			best = n
		}
	}
	return strings.Clone(best)
}

func runHandoff(cfg *config, s *side, waiters int) (out sample, err error) {
	root := cfg.unique("handoff")
	conns, err := s.dialMany(waiters + 1)
	if err != nil {
		return out, err
	}
	defer closeAll(conns)
	if err := makeNodes(conns[0], []string{root}); err != nil {
		return out, err
	}
	var (
		mu       sync.Mutex
		lat      hist
		released atomic.Int64 // when the last holder sent its delete, ns since start
		start    = time.Now()
		begin    = start.Add(cfg.warm)
		end      = begin.Add(cfg.duration)
		before   usage
		took     sync.Once
	)
	err = parallel(len(conns), len(conns), func(i int) error {
		w := &contender{c: conns[i], dir: root}
		w.c.SetDeadline(end.Add(time.Minute))
		w.c.Sync(root)
		if _, err := w.c.Do(); err != nil {
			return err
		}
		for time.Now().Before(end) {
			if err := w.enqueue(); err != nil {
				return err
			}
			if err := w.await(); err != nil {
				return err
			}
			now := time.Now()
			if now.After(begin) && now.Before(end) {
				took.Do(func() { before = takeUsage(s.pids()) })
				mu.Lock()
				if at := released.Load(); at > 0 {
					lat.add(now.Sub(start) - time.Duration(at))
				}
				mu.Unlock()
			}
			released.Store(int64(time.Since(start)))
			w.c.Delete(root + "/" + w.mine)
			if _, err := w.c.Do(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	if lat.n == 0 {
		return out, errors.Join(fmt.Errorf("no hand-off in %v", cfg.duration), removeTree(conns[0], root))
	}
	out.server, out.client = before.perOp(lat.n)
	out.tails = lat.tails()
	out.metrics = []metric{
		{unit: "ms", value: ms(lat.quantile(0.5)), lower: true},
		{name: "rate", unit: "/s", value: float64(lat.n) / cfg.duration.Seconds()},
	}
	return out, removeTree(conns[0], root)
}

// herd measures a lock whose waiters all watch the directory: one release
// wakes all, and each lists the directory and watches it again.
func herd(waiters int, good float64) point {
	return point{
		name: fmt.Sprintf("herd:%d", waiters), good: good, good3: good,
		help: fmt.Sprintf("%d waiters watch one directory; a release until all have listed it again", waiters),
		run:  func(c *config, s *side) (sample, error) { return runHerd(c, s, waiters) },
	}
}

func runHerd(cfg *config, s *side, waiters int) (out sample, err error) {
	root := cfg.unique("herd")
	conns, err := s.dialMany(waiters)
	if err != nil {
		return out, err
	}
	defer closeAll(conns)
	admin, err := s.dial()
	if err != nil {
		return out, err
	}
	defer admin.Close()
	names := []string{root}
	for i := range waiters {
		names = append(names, fmt.Sprintf("%s/lock-%010d", root, i))
	}
	if err := makeNodes(admin, names); err != nil {
		return out, err
	}
	// Every waiter answers each event by a list with a new watch, and reports.
	woken := make(chan error, waiters)
	for _, c := range conns {
		c.Sync(root)
		if _, err := c.Do(); err != nil {
			return out, err
		}
		c.Children(root, true)
		if _, err := c.Do(); err != nil {
			return out, err
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for _, c := range conns {
		c.SetDeadline(time.Now().Add(cfg.warm + cfg.duration + time.Minute))
		wg.Go(func() {
			for {
				r, err := c.Next()
				if err == nil && r.Event == nil {
					continue // a late ping or the like
				}
				// Read stop before the report: the test would wait without end for a session woken once
				// more than it looks.
				last := stop.Load()
				if err == nil && !last {
					c.Children(root, true)
					_, err = c.Do()
				}
				woken <- err
				if err != nil || last {
					return
				}
			}
		})
	}
	change := func(request func()) (time.Duration, error) {
		start := time.Now()
		request()
		if _, err := admin.Do(); err != nil {
			return 0, err
		}
		for range waiters {
			if err := <-woken; err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
	first := names[1]
	var times hist
	var before usage
	end := time.Now().Add(cfg.warm + cfg.duration)
	begin := time.Now().Add(cfg.warm)
	for time.Now().Before(end) || times.n == 0 {
		d, err := change(func() { admin.Delete(first) })
		if err != nil {
			return out, err
		}
		if time.Now().After(begin) {
			if times.n == 0 {
				before = takeUsage(s.pids())
			}
			times.add(d)
		}
		if _, err := change(func() { admin.Create(first, nil, 0) }); err != nil {
			return out, err
		}
	}
	// CPU is that of a release and of the create that follows it.
	out.server, out.client = before.perOp(times.n)
	stop.Store(true)
	if _, err := change(func() { admin.Delete(first) }); err != nil {
		return out, err
	}
	wg.Wait()
	out.tails = times.tails()
	out.metrics = []metric{{unit: "ms", value: ms(out.tails[0]), lower: true}}
	return out, removeTree(admin, root)
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
