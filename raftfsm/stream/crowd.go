package stream

import "context"

// Crowd lets the goroutine that batches requests wait for those that are just about to come.
//
// A goroutine that is woken runs next. When the requests of many clients arrive together, the
// connection that is read first wakes the batcher before the second is read: an entry of one
// request goes to the disk, and all the others wait for its sync and then for their own. So the
// batcher first lets every goroutine run that is ready on its processor, if lately more than one
// request came at a time. It does not wait for a timer.
//
// runtime.Gosched does not help. It puts its caller where an idle processor looks first, and that
// processor then spins beside the goroutines that should run first. Instead there are two helpers.
// The first wakes the caller, which would then run next, and at once wakes the second, which takes
// that place: a goroutine that loses the place goes to the end of the processor's queue. If nothing
// else is ready, that costs about a microsecond.
//
// A Crowd belongs to one goroutine.
type Crowd struct {
	lately           int // requests that came at a time
	ask, turn, place chan struct{}
}

// NewCrowd starts the helpers, which end with ctx.
func NewCrowd(ctx context.Context) *Crowd {
	c := &Crowd{ask: make(chan struct{}), turn: make(chan struct{}, 1), place: make(chan struct{}, 1)}
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

// Came notes how many requests came at a time. The number goes down by half at
// the most: while a crowd waits for its replies, few requests come.
func (c *Crowd) Came(requests int) { c.lately = max(requests, c.lately/2) }

// Gather returns when the goroutines that were ready have run, or at once if requests come one by
// one or ctx has ended.
func (c *Crowd) Gather(ctx context.Context) {
	if c.lately <= 1 {
		return
	}
	select {
	case c.ask <- struct{}{}:
		<-c.turn
	case <-ctx.Done():
	}
}
