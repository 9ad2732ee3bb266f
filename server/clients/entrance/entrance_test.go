package entrance

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

type replica struct{ Replica }

// Clients are served as soon as the replica serves and the server has called Use. All waiting callers then
// continue.
func TestAnEntranceOpensToAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e Entrance
		var first, second Replica = &replica{}, &replica{}
		expect.That(t, e.Replica() == nil, "an entrance without a state has one")
		e.UseMeanwhile(first)
		expect.That(t, e.Replica() == first, "the state to read meanwhile")

		results := make(chan error, 4)
		wait := func(n int) {
			for range n {
				go func() { results <- e.Wait(t.Context(), nil) }()
			}
			synctest.Wait()
		}
		wait(2)
		e.SetServing(true)
		synctest.Wait()
		expect.That(t, !e.Open(), "open for a state that is only for the meantime")
		e.Use(second)
		expect.That(t, e.Replica() == second, "the state that serves")
		for range 2 {
			must.OK(t, <-results)
		}
		must.OK(t, e.Wait(t.Context(), nil))

		e.SetServing(false)
		wait(2)
		expect.Equal(t, len(results), 0, "let in while the replica does not serve")
		e.SetServing(true)
		for range 2 {
			must.OK(t, <-results)
		}
	})
}

// A wait at an entrance ends when its context ends, and when the server stops.
func TestAWaitAtAnEntranceEnds(t *testing.T) {
	var e Entrance
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Is(t, e.Wait(ctx, nil), context.Canceled)
	stops := make(chan struct{})
	close(stops)
	expect.Is(t, e.Wait(t.Context(), stops), net.ErrClosed)
	expect.That(t, !e.ReadOnly(), "read-only from the start")
	e.SetReadOnly(true)
	expect.That(t, e.ReadOnly(), "not read-only")
}
