package stream

import "context"

// Crowd makes the goroutine that batches requests wait for requests that are just about to arrive.
//
// Go runs a goroutine that was just woken before all others. When the requests of many clients arrive
// together, the first connection wakes the batcher before the second connection is read. Then an entry with
// one request goes to the disk. All other requests wait for the sync of that entry, and then for the sync of
// their own. So if several requests came together lately, the batcher first lets the other goroutines run
// that are ready on its processor. It uses no timer.
//
// runtime.Gosched does not help: it puts its caller into the global queue. An idle processor takes the caller
// from there at once, while the other goroutines still wait. Instead there are two helpers. The first helper
// wakes the caller, so the caller would be the next to run. Then the first helper wakes the second helper,
// which becomes the next to run instead. So the caller goes to the end of its processor's queue. If no other
// goroutine is ready, this costs about a microsecond.
//
// A Crowd belongs to one goroutine.
type Crowd struct {
	lately           int // how many requests came together recently
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

// Came notes how many requests came together. The remembered number falls by at most half each time, because
// few requests come while many clients wait for replies.
func (c *Crowd) Came(requests int) { c.lately = max(requests, c.lately/2) }

// Gather returns when the goroutines that were ready have run. It returns at once if requests come one by one
// or ctx has ended.
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
