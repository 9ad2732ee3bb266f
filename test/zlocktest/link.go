package zlocktest

import (
	"errors"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Link is the path of some clients to the server. Cut interrupts it.
type Link struct {
	s *Server

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// Link returns a new path to the server. Nothing else uses this path.
func (s *Server) Link() *Link { return &Link{s: s} }

// Cut breaks the link's connections and lets no new ones through, until Mend is called. A client that stays
// cut off for its session's timeout loses its session.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// Mend lets connections through again.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

// Dial connects over this link, as Server.Dial does without a link.
func (l *Link) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return nil, errors.New("zlocktest: the link is cut")
	}
	c, err := l.s.Dial(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		c.Close()
		return nil, errors.New("zlocktest: the link is cut")
	}
	l.conns = append(l.conns, c)
	return c, nil
}

// Connect returns a client that uses this link, as Server.Connect does without a link.
func (l *Link) Connect() *zk.Conn {
	t := l.s.t
	t.Helper()
	c, events, err := zk.Connect([]string{l.s.Addr}, 10*time.Second,
		zk.WithDialer(l.Dial), zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false))
	if err != nil {
		t.Fatalf("zlocktest: connect: %v", err)
	}
	l.s.mu.Lock()
	l.s.clients = append(l.s.clients, c)
	l.s.mu.Unlock()
	limit := time.After(patience)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return c
			}
		case <-limit:
			t.Fatalf("zlocktest: no session after %v", patience)
		}
	}
}
