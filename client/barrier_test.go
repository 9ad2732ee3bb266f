package client

import (
	"context"
	"testing"

	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// A wait for a closed barrier that is given up does not pass for an open barrier, nor does one whose barrier
// is closed again.
func TestWaitForABarrierIsGivenUp(t *testing.T) {
	shared(t)
	c, p := proxied(t)
	d := dir(t)
	b := c.Barrier(d)
	must.OK(t, b.Close(testCtx(t)))
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	waits := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpGetData, Under: d})
	done := make(chan error, 1)
	go func() { done <- b.Wait(ctx) }()
	eventually(t, "the wait", func() bool { return waits.Seen() > 0 })
	cancel()
	must.Is(t, soon(t, "the wait to end", done), context.Canceled)
	must.OK(t, b.Open(testCtx(t)))
	must.OK(t, b.Open(testCtx(t)))
	must.OK(t, b.Wait(testCtx(t)))
	must.OK(t, b.Close(testCtx(t)))
	must.OK(t, b.Close(testCtx(t)))
	go func() { done <- b.Wait(testCtx(t)) }()
	eventually(t, "the wait", func() bool { return waits.Seen() > 2 })
	must.OK(t, dial(t).Barrier(d).Open(testCtx(t)))
	must.OK(t, soon(t, "the wait to end", done))
}
