package take

import (
	"context"

	"github.com/zlockd/zlockd/client/recipe/turns"
)

// contender is one attempt in one session, for recipes that need more than one list to decide: a lock with a
// policy, an upgrade, permits. A queue of numbered nodes needs fewer lists. It has its own loop, waiter.wait.
type contender[T any] interface {
	// next looks at the queue, and returns what the contender must do according to package turns.
	next(ctx context.Context) (turns.Step, error)
	// act carries out the decision, and waits if the decision says so. If it returns neither a result nor an
	// error, the contender looks again.
	act(ctx context.Context, step turns.Step) (*T, error)
}

// contend looks, decides and acts until the contender has its lock. An event alone grants nothing, because
// after it the contender looks again.
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
