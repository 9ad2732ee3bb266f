package main

import (
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/test/wire"
)

// dial() opens a session at the next server in turn.
func (s *side) dial() (*wire.Pipe, error) {
	list := s.addrs()
	return wire.OpenPipe(list[int(s.next.Add(1))%len(list)], sessionTimeout)
}

// dialAll opens n sessions, spread over the servers.
func dialAll(addrs []string, n int, timeout time.Duration) ([]*wire.Pipe, error) {
	conns := make([]*wire.Pipe, n)
	err := parallel(16, n, func(i int) (err error) {
		conns[i], err = wire.OpenPipe(addrs[i%len(addrs)], timeout)
		return err
	})
	if err != nil {
		closeAll(conns)
		return nil, err
	}
	return conns, nil
}

// closeAll ends sessions.
func closeAll(conns []*wire.Pipe) {
	parallel(16, len(conns), func(i int) error {
		if conns[i] != nil {
			conns[i].Close()
		}
		return nil
	})
}

// dropAll drops the sessions without closing them. Their servers end with the point.
func dropAll(conns []*wire.Pipe) {
	for _, c := range conns {
		c.Drop()
	}
}

// do() sends the one request that was appended last, and waits for its answer.
func do(c *wire.Pipe) error {
	_, err := c.Do()
	return err
}

// stage() makes a node and calls f with n sessions that see it. Then it removes the node and its children.
func (s *side) stage(root string, n int, f func(conns []*wire.Pipe) error) error {
	list := s.addrs()
	first := int(s.next.Add(1)) % len(list)
	conns, err := dialAll(slices.Concat(list[first:], list[:first]), n, sessionTimeout)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	if err := makeNodes(conns[0], []string{root}); err != nil {
		return err
	}
	if err := parallel(16, n, func(i int) error {
		conns[i].Sync(root) // a follower may lag behind, and not have the node yet
		return do(conns[i])
	}); err != nil {
		return err
	}
	if err := f(conns); err != nil {
		return err
	}
	return removeTree(conns[0], root)
}

// window is the measured time of a point, after the warm-up, with the operations in it.
type window struct {
	begin, end time.Time
	pids       []int

	mu     sync.Mutex
	lat    hist
	before usage // taken at the first operation that counts
	last   time.Time
}

func (c *config) window(s *side) *window {
	begin := time.Now().Add(c.warm)
	return &window{begin: begin, end: begin.Add(c.duration), pids: s.pids()}
}

// open() reports whether the point must begin more operations. It must until the measured time is over, and
// at least until one operation counts.
func (w *window) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.end) || w.lat.n == 0
}

// add() counts an operation that ends now, if it belongs to the measured time.
func (w *window) add(from time.Time) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case from.Before(w.begin) || now.After(w.end) && w.lat.n > 0:
		return
	case w.lat.n == 0:
		w.before = takeUsage(w.pids)
	}
	w.lat.add(now.Sub(from))
	w.last = now
}

// sample() returns the latencies, and the processor time of each operation.
func (w *window) sample() (out sample) {
	out.ops = w.lat.n
	out.server, out.client = w.before.perOp(w.lat.n)
	out.tails = w.lat.tails()
	return out
}

// rate() returns the operations per second.
func (w *window) rate() float64 {
	return float64(w.lat.n) / max(w.end.Sub(w.begin), w.last.Sub(w.begin)).Seconds()
}
