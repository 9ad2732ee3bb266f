package sim

import (
	"errors"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// steadyTimeout is the session timeout of the steady clients: enough to notice
// a stopped server and to try two others that do not answer either.
const steadyTimeout = 20 * time.Second

// steady is a client that never stops trying and never writes. Its session
// lives by what the servers tell the leader of it, and must not end.
type steady struct {
	c     *cluster
	host  string
	reads bool // it reads every second; else it only pings
	at    uint32

	session wire.Session
	zxid    int64
	served  int
}

// run keeps the session alive until stop is closed.
func (s *steady) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		s.at = s.at%3 + 1
		nc, err := s.c.dialTo(s.host, s.at)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		s.use(wire.New(nc), stop)
		nc.Close()
		time.Sleep(20 * time.Millisecond)
	}
}

// use goes on with the session on a connection, until that ends.
func (s *steady) use(w *wire.Conn, stop <-chan struct{}) {
	w.Timeout, w.Zxid = steadyTimeout/6, s.zxid
	request := wire.NewSession(int32(steadyTimeout.Milliseconds()))
	if s.session.ID != 0 {
		request = wire.Attach(s.session, s.zxid)
	}
	if err := w.Connect(request); err != nil {
		if errors.Is(err, wire.ErrRefused) {
			s.c.t.Errorf("G10: session %#x of %s, which never was silent, was told that it has expired", s.session.ID,
				s.host)
			s.session = wire.Session{}
		}
		return
	}
	s.session = w.Session
	w.Timeout = steadyTimeout / 3
	for {
		wait, op, body := steadyTimeout/3, jute.OpPing, wire.Body(nil)
		if s.reads {
			wait, op, body = time.Second, jute.OpExists, wire.PathWatch(Root, false)
		}
		select {
		case <-stop:
			return
		case <-time.After(wait):
		}
		if _, err := w.Call(op, body); err != nil {
			return
		}
		s.served++
		s.zxid = max(s.zxid, w.Zxid)
	}
}
