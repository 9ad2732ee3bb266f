package proc

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Writers are clients that create sequential nodes one after another and record the answers.
type Writers struct {
	t    testing.TB
	dir  string
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	acked   map[string]int
	unknown int
	all     []*Writer
}

// Writer is one client, bound to one server.
type Writer struct {
	Server *cluster.Server

	mu         sync.Mutex
	Answers    []time.Time // when the client's writes were answered
	Slowest    time.Duration
	Disconnect int
	Expired    int
	Ends       []string // how its connections ended: when, after what wait, why
}

// StartWriters starts n clients on each server.
func StartWriters(t testing.TB, c *cluster.Ensemble, n int, timeout time.Duration) *Writers {
	w := &Writers{t: t, dir: fmt.Sprintf("/writers-%d", time.Now().UnixNano()), stop: make(chan struct{}),
		acked: map[string]int{}}
	nc, err := c.Servers[0].Open()
	if err == nil {
		_, err = nc.Create(w.dir, nil, jute.FlagPersistent)
		nc.CloseSession()
	}
	must.OK(t, err)
	for _, s := range c.Servers {
		for range n {
			one := &Writer{Server: s}
			w.all = append(w.all, one)
			w.wg.Go(func() { w.run(one, timeout) })
		}
	}
	return w
}

// Of returns the clients of one server.
func (w *Writers) Of(s *cluster.Server) (list []*Writer) {
	for _, one := range w.all {
		if one.Server == s {
			list = append(list, one)
		}
	}
	return list
}

// FirstAfter returns the time of the first answer that a client got after a given time. It ignores the
// clients of one server.
func (w *Writers) FirstAfter(at time.Time, except *cluster.Server) (first time.Time, ok bool) {
	for _, one := range w.all {
		if one.Server == except {
			continue
		}
		one.mu.Lock()
		for i := len(one.Answers) - 1; i >= 0 && one.Answers[i].After(at); i-- {
			if !ok || one.Answers[i].Before(first) {
				first, ok = one.Answers[i], true
			}
		}
		one.mu.Unlock()
	}
	return first, ok
}

func (w *Writers) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

func (w *Writers) run(o *Writer, timeout time.Duration) {
	var session wire.Session
	var zxid int64
	for !w.stopped() {
		var c *wire.Conn
		nc, err := o.Server.Dial(time.Second)
		if err == nil {
			c = wire.New(nc)
			request := wire.NewSession(int32(timeout.Milliseconds()))
			if session.ID != 0 {
				request = wire.Attach(session, zxid)
			}
			err = c.Connect(request)
		}
		if errors.Is(err, wire.ErrRefused) {
			o.mu.Lock()
			o.Expired++
			o.Ends = append(o.Ends, time.Now().UTC().Format("15:04:05.000")+": the session has ended")
			o.mu.Unlock()
			session = wire.Session{}
		}
		if err != nil {
			if c != nil {
				c.Close()
			}
			time.Sleep(5 * time.Millisecond)
			continue
		}
		session = c.Session
		c.Timeout = min(timeout, 10*time.Second)
		lost := w.write(c, o)
		zxid = c.Zxid
		c.Close()
		if lost != nil {
			o.mu.Lock()
			o.Disconnect++
			o.Ends = append(o.Ends, lost.Error())
			o.mu.Unlock()
		}
	}
}

// write() writes until the connection is lost or the test ends.
func (w *Writers) write(c *wire.Conn, o *Writer) (lost error) {
	for !w.stopped() {
		began := time.Now()
		path, err := c.Create(w.dir+"/n-", nil, jute.FlagPersistentSequential)
		w.mu.Lock()
		var code jute.ErrCode
		switch {
		case err == nil:
			w.acked[path]++
		case errors.As(err, &code):
			w.t.Errorf("create at server %d: %v", o.Server.ID, err)
		default:
			w.unknown++
		}
		w.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%s, %v after the request: %w", time.Now().UTC().Format("15:04:05.000"),
				time.Since(began).Round(time.Millisecond), err)
		}
		o.mu.Lock()
		o.Answers = append(o.Answers, time.Now())
		o.Slowest = max(o.Slowest, time.Since(began))
		o.mu.Unlock()
	}
	return nil
}

// slowest() returns the longest wait for the answer to a write since the last call of slowest(). It first
// waits for the answers to the writes that are under way.
func (w *Writers) slowest() (most time.Duration) {
	w.t.Helper()
	at := time.Now()
	for _, o := range w.all {
		must.Await(w.t, "a write of each client", time.Minute, func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.Answers) > 0 && o.Answers[len(o.Answers)-1].After(at)
		})
		o.mu.Lock()
		most, o.Slowest = max(most, o.Slowest), 0
		o.mu.Unlock()
	}
	return most
}

// Check stops the clients and compares the nodes of each server with the answers that the clients got.
func (w *Writers) Check(c *cluster.Ensemble) {
	w.t.Helper()
	close(w.stop)
	w.wg.Wait()
	for _, s := range c.Servers {
		// A server that had lost its leader may still send its clients away: try again.
		names, err := w.list(s)
		for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); names, err = w.list(s) {
			time.Sleep(50 * time.Millisecond)
		}
		must.OK(w.t, err, "server %d", s.ID)
		exists := map[string]bool{}
		for _, n := range names {
			exists[w.dir+"/"+n] = true
		}
		for path, times := range w.acked {
			expect.Equal(w.t, times, 1, "server %d: times", s.ID)
			expect.That(w.t, exists[path], "server %d: %s answered %d times, exists: %v", s.ID, path, times,
				exists[path])
		}
		if n := len(names); n > len(w.acked)+w.unknown {
			w.t.Errorf("server %d: %d nodes, but %d answered and %d unknown", s.ID, n, len(w.acked), w.unknown)
		}
	}
	w.t.Logf("%d writes answered, %d unknown", len(w.acked), w.unknown)
}

// list() returns the nodes that a server has after a sync.
func (w *Writers) list(s *cluster.Server) ([]string, error) {
	nc, err := s.Open()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if err := nc.Sync("/"); err != nil {
		return nil, err
	}
	names, _, err := nc.Children(w.dir, false)
	if err == nil {
		nc.CloseSession()
	}
	return names, err
}

// disturbances() counts the connections and sessions that the clients of some servers have lost.
func (w *Writers) disturbances(servers []*cluster.Server) (disconnects, expired int) {
	for _, s := range servers {
		for _, o := range w.Of(s) {
			o.mu.Lock()
			disconnects, expired = disconnects+o.Disconnect, expired+o.Expired
			o.mu.Unlock()
		}
	}
	return disconnects, expired
}

// awaitWrite waits until a client has an answer to a write after the time `at`, and returns how long after
// `at` that was. It ignores the clients of the server `except`.
func (w *Writers) awaitWrite(at time.Time, except *cluster.Server, limit time.Duration) time.Duration {
	w.t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if first, ok := w.FirstAfter(at, except); ok {
			return first.Sub(at)
		}
	}
	w.t.Fatalf("no write was answered for %v", limit)
	return 0
}
