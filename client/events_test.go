package client

import (
	"testing"
	"testing/synctest"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The state follows from what is known of the session.
func TestStates(t *testing.T) {
	alive, dead := &epoch{}, &epoch{overdue: true}
	for _, x := range []struct {
		before   State
		e        *epoch
		attached bool
		want     State
	}{
		{StateConnecting, nil, false, StateConnecting}, {StateConnecting, dead, true, StateConnecting},
		{StateConnecting, alive, true, StateReady}, {StateReady, alive, true, StateReady},
		{StateReady, alive, false, StateSuspended}, {StateReady, dead, true, StateLost},
		{StateReady, &epoch{over: overExpired}, true, StateLost}, {StateSuspended, dead, false, StateLost},
		{StateLost, alive, true, StateReady}, {StateClosed, alive, true, StateClosed},
	} {
		c := &keeper{state: x.before, ep: x.e, attached: x.attached}
		expect.Equal(t, c.stateNow(), x.want, "%v, %+v", x.before, x.e)
	}
	for s, want := range map[State]string{StateConnecting: "connecting", StateClosed: "closed",
		StateClosed + 1: "unknown"} {
		expect.Equal(t, s.String(), want)
	}
	for r, want := range map[LostReason]string{Expired: "session expired", Closed: "client closed",
		0: "reason 0", Closed + 1: "reason 8"} {
		expect.Equal(t, r.String(), want)
	}
}

// The function hears of each change of the state once.
func TestStateIsToldWhenItChanges(t *testing.T) {
	c, _, _ := withoutServer()
	var told []string
	c.events = func(ev Event) { told = append(told, ev.From.String()+" "+ev.To.String()) }
	for range 2 {
		changed := c.changed
		c.update(func() {})
		must.That(t, isClosed(changed), "the change wakes no goroutine")
	}
	c.detach()
	c.update(func() { c.attached = true })
	c.update(func() { c.state = StateClosed })
	stop := make(chan struct{})
	close(stop)
	c.notifier.run(stop)
	expect.List(t, told, []string{"connecting ready", "ready suspended", "suspended ready", "ready closed"})
}

// Events are told in their order, those that wait at the end as well. What is too much is counted.
func TestNotifierKeepsTheOrder(t *testing.T) {
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
	for k := EventState; k <= EventPermits; k++ {
		expect.That(t, k.String() != "", "event %d has no name", k)
	}
	expect.Equal(t, (EventPermits + 1).String(), "event 10")
}

// The connection serves other requests, and that of the next session comes after the end of the first.
func TestConn(t *testing.T) {
	shared(t)
	c, p := proxied(t)
	first := must.Get(c.Conn(testCtx(t)))(t)
	must.Get(first.Exists(testCtx(t), "/"))(t)
	expire(t, p)
	eventually(t, "the end of the session", func() bool { return isClosed(first.Over()) })
	next := must.Get(c.Conn(testCtx(t)))(t)
	expect.That(t, next != first, "the connection of the session that is over")
	must.Get(next.Exists(testCtx(t), "/"))(t)
	must.OK(t, c.Close(testCtx(t)))
	must.Is(t, errOf(c.Conn(testCtx(t))), ErrClosed)
}
