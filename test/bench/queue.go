package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// handoff() measures the time from the holder's delete until the next contender knows that it holds the lock.
// The contender learns this as in the recipes: after the event it lists the directory, and its own node
// is the first.
func handoff(waiters int, good float64) point {
	return point{
		name: fmt.Sprintf("handoff:%d", waiters), good: good, good3: good, floor: true,
		help: fmt.Sprintf("a lock with %d waiters is passed on: holder's delete to next holder's certainty",
			waiters),
		run: func(c *config, s *side) (sample, error) { return runHandoff(c, s, waiters) },
	}
}

// contender is one session in the queue of a lock.
type contender struct {
	c    *wire.Pipe
	dir  string
	mine string // name of the contender's node, without the directory
}

// enqueue() creates the contender's node.
func (w *contender) enqueue() error {
	w.c.Create(w.dir+"/lock-", nil, jute.FlagEphemeralSequential)
	r, err := w.c.Do()
	if err == nil {
		w.mine = strings.Clone(r.Text()[len(w.dir)+1:])
	}
	return err
}

// await() blocks until the contender's node is the first.
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
			continue // the node before this one is gone: list again
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

// predecessor() returns the greatest name below the name `mine` in a getChildren reply.
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
	err = s.stage(root, waiters+1, func(conns []*wire.Pipe) error {
		var released atomic.Pointer[time.Time] // when the last holder sent its delete
		w := cfg.window(s)
		if err := parallel(len(conns), len(conns), func(i int) error {
			c := &contender{c: conns[i], dir: root}
			c.c.SetDeadline(w.end.Add(time.Minute))
			for w.open() {
				if err := c.enqueue(); err != nil {
					return err
				}
				if err := c.await(); err != nil {
					return err
				}
				if at := released.Load(); at != nil {
					w.add(*at)
				}
				now := time.Now()
				released.Store(&now)
				c.c.Delete(root + "/" + c.mine)
				if err := do(c.c); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		out = w.sample()
		out.metrics = []metric{{unit: "ms", value: ms(out.tails[0]), lower: true},
			{name: "rate", unit: "/s", value: w.rate()}}
		return nil
	})
	return out, err
}

// herd() measures a lock whose waiters all watch the directory: one release wakes all of them, and each lists
// and watches the directory again.
func herd(waiters int, good float64) point {
	return point{
		name: fmt.Sprintf("herd:%d", waiters), good: good, good3: good,
		help: fmt.Sprintf("%d waiters watch one directory; a release until all have listed it again", waiters),
		run:  func(c *config, s *side) (sample, error) { return runHerd(c, s, waiters) },
	}
}

func runHerd(cfg *config, s *side, waiters int) (out sample, err error) {
	root := cfg.unique("herd")
	err = s.stage(root, waiters+1, func(conns []*wire.Pipe) (err error) {
		out, err = runHerdOn(cfg, s, root, conns[0], conns[1:])
		return err
	})
	return out, err
}

func runHerdOn(cfg *config, s *side, root string, admin *wire.Pipe, conns []*wire.Pipe) (
	out sample, err error,
) {
	var names []string
	for i := range conns {
		names = append(names, fmt.Sprintf("%s/lock-%010d", root, i))
	}
	if err := makeNodes(admin, names); err != nil {
		return out, err
	}
	w := cfg.window(s)
	// After each event, every waiter lists the directory with a new watch, and reports that.
	woken := make(chan error, len(conns))
	for _, c := range conns {
		c.SetDeadline(w.end.Add(time.Minute))
		c.Sync(root)
		if err := do(c); err != nil {
			return out, err
		}
		c.Children(root, true)
		if err := do(c); err != nil {
			return out, err
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			for {
				r, err := c.Next()
				if err == nil && r.Event == nil {
					continue // not an event, but for example the answer to a ping
				}
				// When the test has got all reports of a round, it may set `stop`, and then waits for one
				// more report of each waiter. So read `stop` before the report: the waiter must not end a
				// round too early.
				last := stop.Load()
				if err == nil && !last {
					c.Children(root, true)
					err = do(c)
				}
				woken <- err
				if err != nil || last {
					return
				}
			}
		})
	}
	change := func() error {
		if err := do(admin); err != nil {
			return err
		}
		for range conns {
			if err := <-woken; err != nil {
				return err
			}
		}
		return nil
	}
	for w.open() {
		start := time.Now()
		admin.Delete(names[0])
		if err := change(); err != nil {
			return out, err
		}
		w.add(start)
		admin.Create(names[0], nil, 0)
		if err := change(); err != nil {
			return out, err
		}
	}
	out = w.sample() // the processor time is that of a release and of the create that follows it
	out.ops *= int64(len(conns))
	stop.Store(true)
	admin.Delete(names[0])
	if err := change(); err != nil {
		return out, err
	}
	wg.Wait()
	out.metrics = []metric{{unit: "ms", value: ms(out.tails[0]), lower: true}}
	return out, nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
