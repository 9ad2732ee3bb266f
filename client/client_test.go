package client

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// present() returns the present session of a client.
func present(t *testing.T, c *Client) *session.Epoch {
	t.Helper()
	return must.Get(c.keeper.Await(testCtx(t)))(t)
}

// Dial tells at once that the server refuses the identity.
func TestDialTellsOfARefusedIdentity(t *testing.T) {
	t.Parallel()
	shared(t)
	_, err := Dial(testCtx(t), addr(t), WithAuth("nonsense", "x"))
	must.Is(t, err, ErrNoAuth)
	expect.Has(t, err.Error(), "client: connect to "+addr(t))
	for _, opt := range []Option{WithSessionTimeout(-1), WithMargin(-1)} {
		expect.Is(t, expect.Err(Dial(testCtx(t), addr(t), opt)), ErrInvalid)
	}
	expect.Is(t, expect.Err(Dial(testCtx(t), "a//x")), ErrInvalid)
}

// If a heartbeat gets no answer, the client drops the connection, although pings are still answered.
func TestHeartbeatWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t, WithSessionTimeout(2*time.Second), WithMargin(300*time.Millisecond))
	n := c.keeper.Connections()
	lost := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSync, Nth: 1, Do: faultproxy.Drop,
		Match: func(f faultproxy.Frame) bool { return f.Path == "/" }})
	soon(t, "a heartbeat", lost.Acted())
	eventually(t, "another connection", func() bool { return c.keeper.Connections() > n })
	before := c.keeper.Heartbeats()
	eventually(t, "another heartbeat", func() bool { return c.keeper.Heartbeats() > before })
}
