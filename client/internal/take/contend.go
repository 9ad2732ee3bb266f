package take

import (
	"context"

	"github.com/zlockd/zlockd/client/recipe"
)

// contender is one attempt in one session, for recipes that need more than one list to decide: a lock with a
// policy, an upgrade, permits. A queue of numbered nodes needs fewer lists. It has its own loop, waiter.wait.
type contender[T any] interface {
	// next looks, and decides by package recipe what the contender does.
	next(ctx context.Context) (recipe.Step, error)
	// act carries the decision out, a wait included. With neither a result nor an error, the contender looks
	// again.
	act(ctx context.Context, step recipe.Step) (*T, error)
}

// contend looks, decides and acts until the contender has what it wants. An event alone grants nothing.
func contend[T any](ctx context.Context, c contender[T]) (*T, error) {
	for {
		step, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		if got, err := c.act(ctx, step); got != nil || err != nil {
			return got, err
		}
	}
}
