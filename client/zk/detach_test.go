package zk_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// closing is a connection that knows whether it was closed.
type closing struct {
	net.Conn
	closed atomic.Bool
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// TestConnectionOutOfOrderIsClosed loses an answer. The server has nothing
// against that connection, so only the client can end it.
func TestConnectionOutOfOrderIsClosed(t *testing.T) {
	goleakAtEnd(t)
	p := must.Get(faultproxy.New(zlocktest.Config{}.Start(t).Addr))(t)
	t.Cleanup(p.Close)
	var last *closing // of the goroutine that dials
	c := dial(t, p.Addr(), zk.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		expect.That(t, last == nil || last.closed.Load(),
			"another connection is made while the broken one is open")
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		last = &closing{Conn: conn}
		return last, nil
	}})
	ctx := within(t)
	node(t, c, "/r", "x")
	rule := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSetData, Nth: 1, Do: faultproxy.Drop})
	set := make(chan error, 1)
	go func() {
		_, err := c.Set(ctx, "/r", []byte("y"), -1)
		set <- err
	}()
	soon(t, "the drop", rule.Acted())
	must.Get(c.Get(ctx, "/r"))(t)
	is(t, soon(t, "the write", set), zk.ErrConnectionLost)
}

// heldUp is a context whose Done says that it was called, and answers when told.
type heldUp struct {
	context.Context
	called chan<- struct{}
	until  <-chan struct{}
}

func (h heldUp) Done() <-chan struct{} {
	h.called <- struct{}{}
	<-h.until
	return h.Context.Done()
}

// TestClosedSessionIsNotAskedFor lets the server end session and connection before
// Close goes on. A server logs who asks for a session that is over.
func TestClosedSessionIsNotAskedFor(t *testing.T) {
	s := zlocktest.Config{}.Start(t)
	var dials atomic.Int32
	again := make(chan struct{}, 1)
	c := dial(t, s.Addr, zk.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 2 {
			again <- struct{}{}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	ctx := within(t)
	called, until := make(chan struct{}, 1), make(chan struct{})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- c.Close(heldUp{ctx, called, until}) }()
	<-called
	go func() { second <- c.Close(ctx) }() // returns when nothing of the connection runs any more
	select {
	case <-again:
	case <-second:
	}
	expect.Equal(t, dials.Load(), 1, "connections are made, the last for a session that was closed")
	close(until)
	must.OK(t, soon(t, "Close", first))
}
