package client

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// Work that is counted is waited for, also if more comes while a goroutine waits.
func TestTasksAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w tasks
		must.OK(t, w.wait(t.Context()))
		must.Equal(t, w.add(2), 2)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		must.Is(t, w.wait(ended), context.Canceled)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- w.wait(t.Context()) }()
		}
		synctest.Wait()
		must.Equal(t, w.add(-1), 1)
		must.Equal(t, w.add(1), 2)
		must.Equal(t, w.add(-1), 1)
		synctest.Wait()
		must.Equal(t, len(done), 0, "waits that are over")
		must.Equal(t, w.add(-1), 0)
		must.OK(t, <-done)
		must.OK(t, <-done)
		must.OK(t, w.wait(ended))
		must.Equal(t, w.add(1), 1)
		must.Equal(t, w.add(-1), 0)
	})
}

// An operator's log tells once why there is no connection: of all servers at once, of some after a moment.
func TestTroublesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := withoutServer()
		var log must.Text
		c.opt.log = slog.New(slog.NewTextHandler(&log, nil))
		tr := troubles{k: c.keeper, servers: 2, patience: time.Second, latest: map[string]error{},
			said: map[string]string{}}
		said := func(want ...string) {
			t.Helper()
			var got []string
			for line := range strings.Lines(log.String()) {
				for _, word := range []string{"one", "two", "three"} {
					if strings.Contains(line, "err="+word) {
						got = append(got, word)
					}
				}
			}
			must.List(t, got, want)
		}
		tr.add("a", errors.New("one"))
		time.Sleep(time.Second - 1)
		said()
		tr.add("a", errors.New("two"))
		time.Sleep(time.Second)
		said("two")
		tr.add("a", errors.New("two"))
		time.Sleep(time.Minute)
		said("two")
		tr.add("b", errors.New("three")) // now it is all of them
		said("two", "three")
		tr.over()
		tr.add("a", errors.New("one"))
		tr.over()
		time.Sleep(time.Minute)
		said("two", "three")
		tr.add("a", errors.New("two"))
		time.Sleep(time.Minute)
		said("two", "three", "two")
		c.endCalls(ErrClosed)
		tr.add("b", errors.New("one"))
		said("two", "three", "two")
	})
}

// present returns the present session of a client.
func present(t *testing.T, c *Client) *epoch {
	t.Helper()
	return must.Get(c.epoch(testCtx(t)))(t)
}

// Dial tells at once that the server refuses the identity.
func TestDialTellsOfARefusedIdentity(t *testing.T) {
	shared(t)
	_, err := Dial(testCtx(t), addr(t), WithAuth("nonsense", "x"))
	must.Is(t, err, ErrNoAuth)
	expect.Has(t, err.Error(), "client: connect to "+addr(t))
	for _, opt := range []Option{WithSessionTimeout(-1), WithMargin(-1)} {
		expect.Is(t, expect.Err(Dial(testCtx(t), addr(t), opt)), ErrInvalid)
	}
	expect.Is(t, expect.Err(Dial(testCtx(t), "a//x")), ErrInvalid)
}

// A heartbeat without an answer costs the connection, which answers pings but nothing else.
func TestHeartbeatWithoutAnAnswer(t *testing.T) {
	shared(t)
	c, p := proxied(t, WithSessionTimeout(2*time.Second), WithMargin(300*time.Millisecond))
	n := c.count.wire.Connections.Load()
	lost := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSync, Nth: 1, Do: faultproxy.Drop,
		Match: func(f faultproxy.Frame) bool { return f.Path == "/" }})
	soon(t, "a heartbeat", lost.Acted())
	eventually(t, "another connection", func() bool { return c.count.wire.Connections.Load() > n })
	before := c.count.heartbeats.Load()
	eventually(t, "another heartbeat", func() bool { return c.count.heartbeats.Load() > before })
}

// Close waits for the abandoned nodes, but not longer than they can be there.
func TestCloseWaitsForAbandonedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := heldWith(t, &options{})
		c := h.c
		must.OK(t, c.awaitReaper(t.Context(), h.e))
		c.reaper.left.add(1)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must.Is(t, c.awaitReaper(short, h.e), context.DeadlineExceeded)
		began := time.Now()
		time.AfterFunc(time.Hour, func() { c.reaper.left.add(-1) })
		must.OK(t, c.awaitReaper(t.Context(), h.e))
		must.Equal(t, time.Since(began), time.Hour)
		c.reaper.left.add(1)
		for name, x := range map[string]struct {
			attached, outlived, waits bool
		}{
			"attached": {true, false, true}, "attached and late": {true, true, true}, "away": {false, false, true},
			"away for long": {false, true, false},
		} {
			h.e.confirmed = c.opt.clock.Now()
			c.attached = x.attached
			if x.outlived {
				time.Sleep(24*time.Hour + 1)
			}
			short, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := c.awaitReaper(short, h.e)
			cancel()
			expect.Equal(t, err != nil, x.waits, "%s: %v", name, err)
		}
		c.reaper.left.add(-1)
	})
}
