package clients

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// As soon as a server has a replica and the replica serves, in either order, the server serves. Waiting
// callers then continue.
func TestServerServesItsReplica(t *testing.T) {
	for _, first := range []string{"the replica", "its service"} {
		s := idle(t, options.Options{})
		steps := []func(){func() { s.Use(still{state.New("test")}) }, func() { s.Serving(true) }}
		if first == "its service" {
			steps[0], steps[1] = steps[1], steps[0]
		}
		waits := make(chan error, 1)
		go func() { waits <- s.WaitServing(context.Background()) }()
		for i, step := range steps {
			expect.That(t, !s.conns.Entrance.Open(), "%s first: it serves before step %d", first, i)
			step()
		}
		expect.That(t, s.conns.Entrance.Open(), "%s first: it does not serve", first)
		select {
		case err := <-waits:
			must.OK(t, err)
		case <-time.After(time.Minute):
			t.Fatalf("%s first: a client that waits hears of nothing", first)
		}
	}
	s := idle(t, options.Options{})
	s.UseMeanwhile(still{state.New("test")})
	s.Serving(true)
	expect.That(t, !s.conns.Entrance.Open(), "it serves what it was given for the meantime")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	expect.Is(t, s.WaitServing(ctx), context.Canceled)
	s.CutOff()
	expect.Is(t, s.WaitServing(context.Background()), net.ErrClosed)
	s.ReadOnly(true)
	s.Serving(true)
	s.Use(still{state.New("test")})
	expect.That(t, !s.conns.Entrance.ReadOnly(), "a server that stops lets clients read")
	expect.That(t, !s.conns.Entrance.Open(), "a server that stops serves")
}

// Serve ends when its listener is closed. If the server stops, Serve closes the listener.
func TestAcceptEndsWithItsListener(t *testing.T) {
	s := idle(t, options.Options{})
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	ln.Close()
	expect.Is(t, <-served, net.ErrClosed)
	expect.Fails(t, s.ServeTLS(ln), "TLS without a configuration")
	s.CutOff()
	other := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	expect.OK(t, s.Serve(other), "a server that stops")
	_, err := other.Accept()
	expect.That(t, errors.Is(err, net.ErrClosed), "its listener is open: %v", err)
}
