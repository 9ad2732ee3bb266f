package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
)

// The examples of this file are the programs that users write first.

// A nightly job is started on every machine and must run on one.
func Example_nightlyJob() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)

	lease, err := c.Mutex("/programs/nightly").TryLock(ctx, client.WithReason("nightly report"))
	if errors.Is(err, client.ErrNotAcquired) {
		return // another machine runs the job
	}
	if err != nil {
		log.Fatal(err)
	}
	job := func(ctx context.Context) error { return ctx.Err() } // ctx ends if the lock is lost
	err = job(lease.Context())
	fmt.Println("job:", err, "unlock:", lease.Unlock(ctx))
	// Output: job: <nil> unlock: <nil>
}

// A leader works until another candidate asks it to give way. Then it gives up leadership.
func Example_leaderWithHandOver() {
	ctx := context.Background()
	a, b := dial(), dial()
	defer a.Close(ctx)
	defer b.Close(ctx)

	leads := make(chan string)
	lead := func(c *client.Client, name string) {
		lease, err := c.Election("/programs/leader").Campaign(ctx, []byte(name))
		if err != nil {
			log.Fatal(err)
		}
		leads <- name
		select {
		case <-lease.Lost(): // another candidate may lead: stop at once
		case <-lease.Asked(): // finish what is under way, then give way
			lease.Unlock(ctx)
		}
	}
	var both sync.WaitGroup
	both.Go(func() { lead(a, "a") })
	both.Go(func() { lead(b, "b") })
	askToGiveWay(a, "/programs/leader", leads, 2)
	both.Wait()
	// Unordered output:
	// a leads
	// b leads
}

// askToGiveWay asks leaders to leave, as an operator does, one after another. It waits until a candidate
// knows that it leads. If it asked earlier, the candidate would leave the queue.
func askToGiveWay(c *client.Client, path string, leads <-chan string, times int) {
	for range times {
		fmt.Println(<-leads, "leads")
		l, err := c.Election(path).Leader(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		c.Inspector().Revoke(context.Background(), path, l.Node, recipe.Revocation{By: "operator"})
	}
}

// However many workers there are, at most three of them use the resource at the same time.
func Example_workersBySemaphore() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)

	three := c.Semaphore("/programs/licences", 3)
	var inside atomic.Int32
	var workers sync.WaitGroup
	for range 10 {
		workers.Go(func() {
			err := three.Do(ctx, 1, func(ctx context.Context, _ *client.Lease) error {
				defer inside.Add(-1)
				if n := inside.Add(1); n > 3 {
					return fmt.Errorf("%d at a time", n)
				}
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	workers.Wait()
	fmt.Println("done")
	// Output: done
}

// table stands for a table of a database, with a column `fence`.
type table struct {
	mu    sync.Mutex
	value string
	fence fence.Token
}

// exec does what this statement does: UPDATE accounts SET value = ?, fence = ? WHERE id = 1 AND fence <= ?
func (t *table) exec(value string, token fence.Token) (rows int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fence > token {
		return 0
	}
	t.value, t.fence = value, token
	return 1
}

// The database refuses the write of a holder that has lost the lock without noticing it.
func Example_fencedUpdate() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	var db table

	var late fence.Token
	for i := range 2 {
		c.Mutex("/programs/account").Do(ctx, func(ctx context.Context, l *client.Lease) error {
			if i == 0 {
				late = l.Token() // the token of a holder that continues after it lost the lock
			}
			fmt.Println(db.exec(fmt.Sprint("holder ", i), l.Token()), "row")
			return nil
		})
	}
	fmt.Println(db.exec("too late", late), "rows:", db.value)
	// Output:
	// 1 row
	// 1 row
	// 0 rows: holder 1
}

// addOperatorCalls adds the calls that operators make about other clients' locks.
func addOperatorCalls() {
	programOps["Inspector.Inspect"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		_, _ = w.c.Inspector().Inspect(ctx, w.path("mutex", "rw", "sem", "elect").path)
	}
	programOps["Inspector.Revoke"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		p := w.path("mutex", "rw", "sem", "elect").path
		if q, err := w.c.Inspector().Inspect(ctx, p); err == nil && len(q.Holders) > 0 {
			_ = w.c.Inspector().Revoke(ctx, p, q.Holders[0].Node, recipe.Revocation{By: "random"})
		}
	}
	programOps["Inspector.BreakExpired"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		p := w.path("mutex", "rw").path
		if q, err := w.c.Inspector().Inspect(ctx, p); err == nil && len(q.Holders) > 0 {
			_ = w.c.Inspector().BreakExpired(ctx, p, q.Holders[0].Node, fence.Token(q.Holders[0].Token))
		}
	}
	programOps["Inspector.WaitGraph"] = func(w *worker) {
		ctx, cancel := w.moment()
		defer cancel()
		_, _ = w.c.Inspector().WaitGraph(ctx, "/")
	}
	otherCalls["Inspector.Walk"] = "see Inspector.WaitGraph"
	otherCalls["Inspector.Passing"] = "see Inspector.WaitGraph; zlock ls uses it"
	otherCalls["Inspector.Break"] = "the test removes nodes itself, so that it knows"
	otherCalls["Inspector.Contender"] = "reads one contender"
}
