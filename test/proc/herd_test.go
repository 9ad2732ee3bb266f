package proc

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/wire"
)

// Herd is many sessions that do nothing but ping, a third of their timeout
// apart, each from one goroutine with a few bytes of buffer. A session whose
// connection ends goes to another server at once, as the stock clients do.
type Herd struct {
	t       testing.TB
	c       *cluster.Ensemble
	timeout time.Duration
	stop    chan struct{}
	wg      sync.WaitGroup
	sheep   []*sheep

	Expired     atomic.Int64 // sessions that a server declared ended
	Disconnects atomic.Int64
	SlowPings   atomic.Int64 // not answered within a third of the timeout
}

// sheep is one session of a Herd.
type sheep struct {
	h       *Herd
	at      int // index of its server
	session wire.Session
	zxid    int64

	mu       sync.Mutex
	attached bool
	conn     net.Conn
	wish     int // 1 + index of the server to go to next, or 0
	homes    []move
}

// move is one attachment of a session.
type move struct {
	from, to *cluster.Server
	lost, at time.Time // connection lost, attached again
	why      error
}

// StartHerd opens n sessions spread over the servers.
func StartHerd(t testing.TB, c *cluster.Ensemble, n int, timeout time.Duration) *Herd {
	t.Helper()
	h := &Herd{t: t, c: c, timeout: timeout, stop: make(chan struct{})}
	var opened sync.WaitGroup
	gate := make(chan struct{}, 64) // handshakes at a time
	for i := range n {
		s := &sheep{h: h, at: i % len(c.Servers)}
		h.sheep = append(h.sheep, s)
		opened.Add(1)
		h.wg.Go(func() { s.live(gate, opened.Done) })
	}
	opened.Wait()
	t.Cleanup(h.Stop)
	return h
}

// Stop ends the clients without closing their sessions.
func (h *Herd) Stop() {
	select {
	case <-h.stop:
	default:
		close(h.stop)
	}
	for _, one := range h.sheep {
		one.mu.Lock()
		if one.conn != nil {
			one.conn.Close()
		}
		one.mu.Unlock()
	}
	h.wg.Wait()
}

func (h *Herd) stopped() bool {
	select {
	case <-h.stop:
		return true
	default:
		return false
	}
}

// On counts the sessions attached to a server.
func (h *Herd) On(s *cluster.Server) (n int) {
	for _, one := range h.sheep {
		one.mu.Lock()
		if one.attached && h.c.Servers[one.at] == s {
			n++
		}
		one.mu.Unlock()
	}
	return n
}

// Spread moves sessions, by cutting their connections, until every server has its part again.
func (h *Herd) Spread() {
	part := len(h.sheep) / len(h.c.Servers)
	on := map[int]int{}
	var poor []int
	for i, s := range h.c.Servers {
		if on[i] = h.On(s); on[i] < part {
			poor = append(poor, i)
		}
	}
	for _, one := range h.sheep {
		one.mu.Lock()
		for len(poor) > 0 && on[poor[0]] >= part {
			poor = poor[1:]
		}
		if len(poor) > 0 && one.attached && on[one.at] > part {
			on[one.at]--
			on[poor[0]]++
			one.wish = poor[0] + 1
			one.conn.Close()
		}
		one.mu.Unlock()
	}
	for h.Attached() < len(h.sheep) {
		time.Sleep(5 * time.Millisecond)
	}
}

// Attached counts the sessions that have a connection.
func (h *Herd) Attached() (n int) {
	for _, one := range h.sheep {
		one.mu.Lock()
		if one.attached {
			n++
		}
		one.mu.Unlock()
	}
	return n
}

// Moves returns every attachment after a lost connection since a moment.
func (h *Herd) Moves(since time.Time) (list []move) {
	for _, one := range h.sheep {
		one.mu.Lock()
		for _, m := range one.homes {
			if m.lost.After(since) {
				list = append(list, m)
			}
		}
		one.mu.Unlock()
	}
	return list
}

func (s *sheep) live(gate chan struct{}, opened func()) {
	first := true
	var lost time.Time
	var why error
	from := s.at
	for !s.h.stopped() {
		server := s.h.c.Servers[s.at]
		if first {
			gate <- struct{}{}
		}
		c, err := s.connect(server)
		if first {
			<-gate
		}
		if err != nil {
			if errors.Is(err, wire.ErrRefused) {
				s.h.Expired.Add(1)
				s.session = wire.Session{}
			}
			s.at = (s.at + 1) % len(s.h.c.Servers)
			time.Sleep(time.Duration(20+rand.IntN(80)) * time.Millisecond)
			continue
		}
		s.mu.Lock()
		s.attached, s.conn = true, c
		if !first {
			s.homes = append(s.homes, move{s.h.c.Servers[from], server, lost, time.Now(), why})
		}
		s.mu.Unlock()
		if first {
			opened()
			first = false
		}
		why = s.ping(c)
		c.Close()
		lost, from = time.Now(), s.at
		s.mu.Lock()
		s.attached = false
		if s.wish > 0 {
			s.at, s.wish = s.wish-1, 0
		} else {
			s.at = (s.at + 1 + rand.IntN(len(s.h.c.Servers)-1)) % len(s.h.c.Servers)
			if !s.h.stopped() {
				s.h.Disconnects.Add(1)
			}
		}
		s.mu.Unlock()
	}
	if first {
		opened()
	}
}

func (s *sheep) connect(server *cluster.Server) (net.Conn, error) {
	nc, err := server.Dial(2 * time.Second)
	if err != nil {
		return nil, err
	}
	c := wire.New(nc)
	c.Timeout = s.h.timeout
	request := wire.NewSession(int32(s.h.timeout.Milliseconds()))
	if s.session.ID != 0 {
		request = wire.Attach(s.session, s.zxid)
	}
	if err := c.Connect(request); err != nil {
		nc.Close()
		return nil, err
	}
	nc.SetDeadline(time.Time{})
	s.session = c.Session
	return nc, nil
}

var pingFrame = wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)

var errNoPong = errors.New("ping not answered")

// ping pings until the connection ends. It always waits in a read, so that the
// end of the connection is noticed at once.
func (s *sheep) ping(c net.Conn) error {
	third := s.h.timeout / 3
	next := time.Now().Add(time.Duration(rand.Int64N(int64(third))))
	var sent time.Time // of the ping that waits for its answer
	var reply [20]byte // length, xid, zxid, code
	have := 0
	for {
		until := next
		if !sent.IsZero() {
			until = sent.Add(2 * third) // then a stock client gives the connection up
		}
		c.SetReadDeadline(until)
		n, err := c.Read(reply[have:])
		have += n
		if have == len(reply) {
			have = 0
			if time.Since(sent) > third {
				s.h.SlowPings.Add(1)
			}
			sent = time.Time{}
		}
		var slow net.Error
		switch {
		case s.h.stopped():
			return nil
		case err == nil:
		case !errors.As(err, &slow) || !slow.Timeout():
			return err
		case !sent.IsZero():
			return errNoPong
		default:
			sent = time.Now()
			next = sent.Add(third)
			if _, err := c.Write(pingFrame); err != nil {
				return err
			}
		}
	}
}
