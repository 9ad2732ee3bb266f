package client

import (
	"context"
	"errors"
	"testing"
)

// A client that lives for years locks and unlocks all the time: what it knows of
// its holds must not grow.
func TestHoldsAreForgottenWithTheirEnd(t *testing.T) {
	c, d := dial(t), dir(t)
	holds := func() int {
		c.mu.Lock()
		e := c.ep
		c.mu.Unlock()
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.holds)
	}
	l := lock(t, c.Mutex(d).Lock)
	if n := holds(); n != 1 {
		t.Errorf("%d holds of one lock", n)
	}
	unlock(t, l)
	eventually(t, "the hold to be forgotten", func() bool { return holds() == 0 })
}

// Close cleans up for as long as it may; whoever works under a lease must not
// wait for that.
func TestCloseEndsLeasesBeforeItCleansUp(t *testing.T) {
	addr(t)
	leakCheck(t)
	c := dialTo(t, addr(t), quick()...)
	l := lock(t, c.Mutex(dir(t)).Lock)
	c.reaper.left.add(1) // a node that cannot be removed
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(ctx) }()
	soon(t, "the loss", l.Lost())
	select {
	case err := <-closed:
		t.Errorf("Close has returned %v", err)
	default:
	}
	cancel()
	if err := soon(t, "Close", closed); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
