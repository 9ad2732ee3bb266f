package raftfsm

import "context"

// crowd lets whoever makes batches of requests wait for those that are just
// about to come.
//
// Whoever wakes a goroutine has it run next. When the requests of many clients
// arrive together, the connection that is read first so wakes the batcher before
// the second is read: an entry of one request goes to the disk, and all the
// others wait for its sync and then for their own. So the batcher first lets
// everything run that is ready on its processor, if what came lately was more than
// one request at a time. Nobody's time is waited for.
//
// runtime.Gosched is of no use for that. It puts its caller where an idle
// processor looks first, and that one then spins there beside the goroutines that are
// to come first. Instead there are two helpers. The first wakes the caller,
// which is then to run next, and at once wakes the second, which takes that place
// from it: a goroutine that loses the place goes to the end of the
// processor's queue. Where nothing else is ready that costs about a microsecond.
//
// It belongs to one goroutine.
type crowd struct {
	lately           int // requests that came at a time
	ask, turn, place chan struct{}
}

// newCrowd starts the helpers, which end with ctx.
func newCrowd(ctx context.Context) *crowd {
	c := &crowd{ask: make(chan struct{}), turn: make(chan struct{}, 1), place: make(chan struct{}, 1)}
	go func() {
		for {
			select {
			case <-c.ask:
			case <-ctx.Done():
				return
			}
			c.turn <- struct{}{}
			select {
			case c.place <- struct{}{}:
			default:
			}
		}
	}()
	go func() {
		for {
			select {
			case <-c.place:
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

// came notes how many requests came at a time. The number goes down by half at
// the most: while a crowd waits for its replies, few requests come.
func (c *crowd) came(requests int) { c.lately = max(requests, c.lately/2) }

// gather returns when what was ready to run has run, or at once, if requests
// come one by one or ctx has ended.
func (c *crowd) gather(ctx context.Context) {
	if c.lately <= 1 {
		return
	}
	select {
	case c.ask <- struct{}{}:
		<-c.turn
	case <-ctx.Done():
	}
}
