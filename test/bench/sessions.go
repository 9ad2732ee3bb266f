package main

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// answer() measures how long a writing client waits for its reply while other sessions watch.
func answer(watchers int, good float64) point {
	return point{
		name: fmt.Sprintf("answer:%d", watchers), good: good, good3: good,
		help: fmt.Sprintf("%d sessions watch one node; a write until its client has the reply", watchers),
		run:  func(c *config, s *side) (sample, error) { return runWatched(c, s, watchers, true) },
	}
}

// fanout() measures a write that many sessions watch.
func fanout(watchers int, good float64) point {
	return point{
		name: fmt.Sprintf("fanout:%d", watchers), good: good, good3: good, floor: true,
		help: fmt.Sprintf("%d sessions watch one node; a write until the last has its event", watchers),
		run:  func(c *config, s *side) (sample, error) { return runWatched(c, s, watchers, false) },
	}
}

// runWatched measures writes to a node that n sessions watch: until the reply, or until the last event.
func runWatched(cfg *config, s *side, n int, reply bool) (out sample, err error) {
	node := cfg.unique("watched")
	err = s.stage(node, n+1, func(conns []*wire.Pipe) error {
		admin, watchers := conns[0], conns[1:]
		var server, client, leader float64
		w := cfg.window(s)
		for w.open() {
			if err := parallel(16, n, func(i int) error {
				watchers[i].SetDeadline(time.Now().Add(30 * time.Second))
				watchers[i].Get(node, true)
				return do(watchers[i])
			}); err != nil {
				return err
			}
			before, lead := takeUsage(s.pids()), takeUsage(s.leader())
			start := time.Now()
			told := make(chan error, 1)
			go func() {
				told <- parallel(n, n, func(i int) error {
					_, err := watchers[i].Next()
					return err
				})
			}()
			admin.Set(node, payload)
			counted := w.lat.n
			if err := do(admin); err != nil {
				return err
			}
			if reply {
				w.add(start)
			}
			if err := <-told; err != nil {
				return err
			}
			if !reply {
				w.add(start)
			}
			if w.lat.n == counted {
				continue
			}
			sv, cl := before.perOp(1)
			server, client = server+sv, client+cl
			for _, m := range lead.alone(1) {
				leader += m.value
			}
		}
		ops := float64(w.lat.n)
		out = w.sample()
		out.ops *= int64(n)
		out.server, out.client = server/ops, client/ops // the requests that set watches are not included
		out.metrics = []metric{{unit: "ms", value: ms(out.tails[0]), lower: true}}
		if leader > 0 {
			out.metrics = append(out.metrics, metric{name: "leader", unit: "CPU µs/op", value: leader / ops,
				lower: true})
		}
		return nil
	})
	return out, err
}

// churn() measures sessions that come, create an ephemeral node and go.
func churn(clients int, good float64) point {
	return point{
		name: fmt.Sprintf("churn@%d", clients), good: good, good3: good,
		help: fmt.Sprintf("connect, create an ephemeral node, close; %d at a time", clients),
		run:  func(c *config, s *side) (sample, error) { return runChurn(c, s, clients) },
	}
}

func runChurn(cfg *config, s *side, clients int) (out sample, err error) {
	root := cfg.unique("churn")
	err = s.stage(root, 1, func([]*wire.Pipe) error {
		w := cfg.window(s)
		if err := parallel(clients, clients, func(int) error {
			for w.open() {
				from := time.Now()
				c, err := s.dial()
				if err != nil {
					return err
				}
				c.Create(root+"/e-", nil, jute.FlagEphemeralSequential)
				if err := do(c); err != nil {
					c.Drop()
					return err
				}
				if err := c.Close(); err != nil {
					return err
				}
				w.add(from)
			}
			return nil
		}); err != nil {
			return err
		}
		out = w.sample()
		out.metrics = []metric{{unit: "/s", value: w.rate()}}
		return nil
	})
	return out, err
}

// expiry() lets many sessions fall silent at once, and measures how late the servers end the last of them.
func expiry(sessions int, good float64) point {
	return point{
		name: fmt.Sprintf("expiry:%d", sessions), good: good, good3: good, alone: true,
		help: fmt.Sprintf("%d sessions with an ephemeral node each fall silent; last event beyond the timeout",
			sessions),
		run: func(c *config, s *side) (sample, error) { return runExpiry(c, s, sessions) },
	}
}

func runExpiry(cfg *config, s *side, sessions int) (out sample, err error) {
	const timeout = 5 * time.Second
	e, err := s.fresh(func(o *cluster.Options) { manyConnections(o, sessions) })
	if err != nil {
		return out, err
	}
	defer e.Close()
	addrs := addrsOf(e)
	admin, err := wire.OpenPipe(addrs[0], sessionTimeout)
	if err != nil {
		return out, err
	}
	defer admin.Close()
	if err := makeNodes(admin, []string{"/expiry"}); err != nil {
		return out, err
	}
	conns := make([]*wire.Pipe, sessions)
	var granted time.Duration
	ping := func(i int) error {
		conns[i].Ping()
		return conns[i].Flush()
	}
	made := time.Now()
	for from := 0; from < sessions; from += 500 { // in batches, with pings of the earlier sessions in between
		n := min(500, sessions-from)
		if err := parallel(16, n, func(k int) (err error) {
			i := from + k
			if conns[i], err = wire.OpenPipe(addrs[i%len(addrs)], timeout); err != nil {
				return err
			}
			conns[i].Create("/expiry/e-", nil, jute.FlagEphemeralSequential)
			_, err = conns[i].Do()
			return err
		}); err != nil {
			return out, err
		}
		if time.Since(made) > timeout/4 {
			made = time.Now()
			if err := parallel(16, from, ping); err != nil {
				return out, err
			}
		}
	}
	granted = time.Duration(conns[0].Session.Timeout) * time.Millisecond
	if err := parallel(16, sessions, ping); err != nil {
		return out, err
	}
	silent := time.Now()
	for _, c := range conns {
		c.Drop()
	}
	var first time.Duration
	admin.SetDeadline(time.Now().Add(2 * time.Minute))
	for {
		admin.Exists("/expiry", false)
		r, err := admin.Do()
		if err != nil {
			return out, err
		}
		d := jute.NewDecoder(r.Body)
		left := int(d.Stat().NumChildren)
		if left < sessions && first == 0 {
			first = time.Since(silent) - granted
		}
		if left == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	last := time.Since(silent) - granted
	out.metrics = []metric{
		{unit: "s late", value: last.Seconds(), lower: true},
		{name: "spread", unit: "s", value: (last - first).Seconds(), lower: true},
	}
	return out, nil
}

// manyConnections raises the limit of connections if a server has one.
func manyConnections(o *cluster.Options, n int) {
	o.Config = append(o.Config, fmt.Sprintf("maxCnxns=%d", n+1000))
}
