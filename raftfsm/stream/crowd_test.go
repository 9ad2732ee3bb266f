package stream

import (
	"context"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// The batcher waits for more requests if several requests came together recently.
func TestCrowdIsRemembered(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := NewCrowd(ctx)
	for i, x := range []struct{ came, lately int }{{1, 1}, {0, 0}, {9, 9}, {2, 4}, {0, 2}, {0, 1}, {5, 5}, {5,
		5}} {
		c.Came(x.came)
		expect.Equal(t, c.lately, x.lately, "step %d", i)
		c.Gather(ctx) // returns, although few requests have come
	}
	cancel()
	c.Gather(ctx)
	idle := &Crowd{ask: make(chan struct{}), turn: make(chan struct{})} // a Crowd whose helper does not run
	idle.Came(1)
	idle.Gather(t.Context()) // returns at once
	idle.Came(2)
	asked := make(chan struct{})
	go func() { <-idle.ask; close(asked); idle.turn <- struct{}{} }()
	idle.Gather(t.Context())
	<-asked
}
