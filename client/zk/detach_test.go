package zk_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/faultproxy"
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
	p := must[*faultproxy.Proxy](t)(faultproxy.New(zlocktest.Config{}.Start(t).Addr))
	t.Cleanup(p.Close)
	var last *closing // of the goroutine that dials
	c := dial(t, p.Addr(), zk.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if last != nil && !last.closed.Load() {
			t.Error("another connection is made while the broken one is open")
		}
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
	must[zk.Node](t)(c.Get(ctx, "/r"))
	is(t, soon(t, "the write", set), zk.ErrConnectionLost)
}
