package client

import (
	"testing"
	"testing/synctest"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The client reports events in order, also the events that still wait when it is closed. It counts the events
// that it drops.
func TestNotifierKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := notifier{calls: make(chan notice, 3)}
		var told []int
		say := func(ev Event) { told = append(told, ev.Pending) }
		for i := range 5 {
			n.add(Event{Pending: i}, nil, say)
		}
		must.Equal(t, n.dropped.Load(), 2, "dropped")
		stop, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			n.run(stop)
		}()
		synctest.Wait()
		expect.List(t, told, []int{0, 1, 2})
		n.add(Event{}, func(ev Event) {
			expect.Equal(t, ev.Dropped, 2, "dropped, as told")
			close(stop)
		})
		n.add(Event{Pending: 7}, say)
		n.add(Event{Pending: 8}, say)
		<-over
		expect.List(t, told, []int{0, 1, 2, 7, 8})
	})
}

func TestKindsOfEventsHaveNames(t *testing.T) {
	t.Parallel()
	for k := EventState; k <= EventPermits; k++ {
		expect.That(t, k.String() != "", "event %d has no name", k)
	}
	expect.Equal(t, (EventPermits + 1).String(), "event 10")
}

// The connection that Conn returns serves any request. After the end of the session, Conn returns the
// connection of the next session.
func TestConn(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	first := must.Get(c.Conn(testCtx(t)))(t)
	must.Get(first.Exists(testCtx(t), "/"))(t)
	expire(t, p)
	eventually(t, "the end of the session", func() bool { return session.IsClosed(first.Over()) })
	next := must.Get(c.Conn(testCtx(t)))(t)
	expect.That(t, next != first, "the connection of the session that is over")
	must.Get(next.Exists(testCtx(t), "/"))(t)
	must.OK(t, c.Close(testCtx(t)))
	must.Is(t, errOf(c.Conn(testCtx(t))), ErrClosed)
}
