package client

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A program that needs time to stop must not be overtaken by the next holder.
func TestLingeringNodeStaysUntilUnlock(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	l := lock(t, c.Mutex(d, WithLimit(Limit{Linger: true, Hold: 50 * time.Millisecond, Grace: 10 * time.Millisecond})).Lock)
	soon(t, "the lease is lost", l.Lost())
	next := start(testCtx(t), dial(t).Mutex(d).Lock)
	queued(t, o, d, 2)
	not(t, "the next holder is granted before Unlock", next.lease, 100*time.Millisecond)
	if err := l.Unlock(context.Background()); !errors.Is(err, ErrLost) {
		t.Fatalf("unlock: %v", err)
	}
	unlock(t, next.wait(t))
}
