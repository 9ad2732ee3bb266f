package client

import (
	"context"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// contender is one attempt in one session, for a recipe that must look at more than one list to decide: a
// lock with a policy, an upgrade, permits. A queue of numbered nodes needs fewer looks and has a loop of its
// own, waiter.wait.
type contender interface {
	// next looks, and decides by package recipe what the contender does.
	next(ctx context.Context) (recipe.Step, error)
	// act carries the decision out, a wait included. With neither a hold nor an error, the contender looks
	// again.
	act(ctx context.Context, step recipe.Step) (*hold, error)
}

// contend looks, decides and acts until the contender has what it wants. An event alone grants nothing.
func contend(ctx context.Context, c contender) (*hold, error) {
	for {
		step, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		if h, err := c.act(ctx, step); h != nil || err != nil {
			return h, err
		}
	}
}
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// firedOf returns the signal of a watch, nil if there is no watch.
func firedOf(w *zk.Watch) <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.Fired()
}
