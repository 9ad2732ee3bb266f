package client

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// bubbleClock is the clock of a bubble of virtual time, and of a test that takes no time.
type bubbleClock struct{ origin time.Time }

func (c bubbleClock) Now() session.Reading {
	d := time.Since(c.origin)
	return session.Reading{Mono: d, Boot: d, Wall: time.Now()}
}

// stubbed returns a client with a session that no server knows, for which the client has the connection.
func stubbed(timeout time.Duration, conn *zk.Conn) (*Client, *session.Epoch) {
	c := newClient(options{Options: session.Options{Clock: bubbleClock{time.Now()}, Margin: 2 * time.Second,
		Log: slog.New(slog.DiscardHandler)}})
	var e *session.Epoch
	c.keeper, e = session.Stub(c.locks.Options, 7, timeout, conn)
	return c, e
}

// withoutServer returns a client without a server, and a session of it that began now with a timeout of ten
// seconds and a margin of two.
func withoutServer() (*Client, *session.Epoch) { return stubbed(10*time.Second, nil) }

// unreachable returns a client whose server does not answer, and a session of it of a day.
func unreachable(t *testing.T) (*Client, *session.Epoch) {
	conn := must.Get(zk.Open("a", zk.Options{AttemptLimit: 1000 * time.Hour,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}))(t)
	c, e := stubbed(24*time.Hour, conn)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ended)
	})
	return c, e
}

// A waiter looks at its own node later the farther it is from its turn, and within the session's timeout.
func TestWhenAWaiterLooksAtItsOwnNode(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[int]time.Duration{0: 100, 1: 100, 2: 120, 11: 300, 496: 10_000,
		1000: 10_000} {
		expect.Equal(t, ownWatchIn(10*time.Second, ahead), want*time.Millisecond, "with %d ahead", ahead)
	}
}

// A hold ends once with its session, for the first reason.
func TestHoldEndsWithItsSession(t *testing.T) {
	t.Parallel()
	c, e := withoutServer()
	h := newHold(&attempt{c: c, path: "/a", cfg: &options{}, leave: func() {}}, e, fence.Exclusive, 5,
		heldNode{path: "/a/n"})
	must.That(t, e.Add(h), "the hold is not added")
	l := must.Get(h.addLease(t.Context(), fence.Exclusive))(t)
	must.OK(t, l.Err())
	must.That(t, l.Valid(), "not valid")
	e.End(session.Expired)
	e.End(session.Closed)
	lostFor(t, l.Err(), Expired)
	must.Equal(t, e.Dependents(), 0, "holds")
}

// A write confirms the session, as a heartbeat does.
func TestWriteConfirmsTheSession(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	unlock(t, lock(t, c.Mutex(d).Lock)) // makes the directory
	before := c.keeper.Now().Wall
	unlock(t, lock(t, c.Mutex(d).Lock))
	s := c.Session()
	must.That(t, !s.ValidUntil.Before(before.Add(usable(s))), "not confirmed since")
}

// usable returns how long a session counts as alive after it was confirmed: the clocks of client and server
// may differ in speed by one part in 200.
func usable(s Session) time.Duration { return time.Duration(float64(s.Timeout)*0.995) - s.Margin }
