package peer

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// admitAll is a host that lets everybody in.
type admitAll struct{ Host }

func (admitAll) Greeting(uint32) Greeting       { return Greeting{} }
func (admitAll) Admit(Purpose, *Greeting) error { return nil }
func (admitAll) Answer(context.Context, *Question) (Told, error) {
	return Told{}, nil
}
func (admitAll) Status(*Greeting) Status { return Status{ID: 1} }

// Strangers who connect and say nothing are a bounded number, and keep no
// server out.
func TestConnectionsWithoutAGreetingAreBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	o := Options{ID: 1, Addr: "127.0.0.1:0", Host: admitAll{}, Dial: dial, Logger: slog.New(slog.DiscardHandler),
		Listen: func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }}
	p := must.Get(Open(ctx, o))(t)
	p.Serve()
	defer func() { cancel(); p.Close() }()
	var silent []net.Conn
	for range 3 * maxNew {
		c := must.Get(net.Dial("tcp", p.Addr()))(t)
		defer c.Close()
		silent = append(silent, c)
	}
	if s, err := p.Ask(ctx, 1, p.Addr(), Question{}); err != nil || s.ID != 1 {
		t.Errorf("a server is kept out: %+v, %v", s, err)
	}
	p.mu.Lock()
	n := len(p.new)
	p.mu.Unlock()
	expect.That(t, n <= maxNew, "%d connections without a greeting", n)
	// Those who came first have given way.
	for _, c := range silent[:maxNew] {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		must.OK(t, expect.Err(io.ReadAll(c)), "not closed")
	}
}

// What was accepted while the port closes is not served.
func TestClosedPortTracksNothing(t *testing.T) {
	p := open(t, 1, &host{})
	p.Close()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	expect.That(t, !p.track(here), "a connection counts that came as the port was closed")
}

// Who has said whose they are no longer gives way to strangers.
func TestStrangersDoNotPushOutServers(t *testing.T) {
	h := &host{links: make(chan uint32, 1)}
	one, two := open(t, 1, h), open(t, 2, &host{})
	link := must.Get(two.Call(t.Context(), Link, 1, one.Addr()))(t)
	defer link.Close()
	<-h.links
	one.mu.Lock()
	defer one.mu.Unlock()
	expect.That(t, len(one.new) == 0 && len(one.conns) == 1,
		"%d of %d connections are strangers'", len(one.new), len(one.conns))
}
