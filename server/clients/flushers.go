package clients

import (
	"runtime"
	"sync"
)

// flushers write the outboxes that an applied batch has changed. touch and told collect them under the state
// lock; kick wakes the pool once the lock is free.
type flushers struct {
	mu     sync.Mutex
	cond   sync.Cond
	batch  []*conn // touched connections that kick has not released yet
	heard  []*conn // the same, touched by events
	lanes  [2]lane // one for replies and small batches of events, one for large batches of events
	turn   int     // the lane with which next begins
	idle   int
	pool   int
	closed bool
}

// lane is a queue of outboxes that wait for a write. The queue begins at head.
type lane struct {
	queue []*conn
	head  int
}

// herd is how many outboxes with events make a large batch, for example if many clients watch one node. A
// large batch has its own lane, so that replies do not wait for it, above all the reply to the client that
// made the change. The events of a small batch go with the replies, because the next owner of a lock waits
// for its event.
const herd = 32

// longestRun is how many outboxes a flusher takes at a time.
const longestRun = 8

func (f *flushers) start(wg *sync.WaitGroup) {
	f.cond.L = &f.mu
	f.pool = max(2, runtime.GOMAXPROCS(0))
	for range f.pool {
		wg.Go(f.run)
	}
}

func (f *flushers) stop() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cond.Broadcast()
}

// touch adds c to the batch. The caller makes sure that c is in the batch only once.
func (f *flushers) touch(c *conn) {
	f.mu.Lock()
	f.batch = append(f.batch, c)
	f.mu.Unlock()
}

// told adds connections with new events to the batch.
func (f *flushers) told(list []*conn) {
	f.mu.Lock()
	f.heard = append(f.heard, list...)
	f.mu.Unlock()
}

// kick releases the batch. No lock is held.
func (f *flushers) kick() {
	f.mu.Lock()
	n := len(f.batch) + len(f.heard)
	if n == 0 {
		f.mu.Unlock()
		return
	}
	if c := f.only(); c != nil && f.lanes[0].waiting() == 0 && c.quick() {
		// A single reply is the usual case on an idle server. Writing it here is faster than waking a
		// flusher.
		f.batch, f.heard = cleared(f.batch), cleared(f.heard)
		f.mu.Unlock()
		c.flushTouched()
		return
	}
	small, large := &f.lanes[0], &f.lanes[0]
	if len(f.heard) >= herd {
		large = &f.lanes[1]
	}
	large.queue = append(large.queue, f.heard...)
	small.queue = append(small.queue, f.batch...)
	f.batch, f.heard = cleared(f.batch), cleared(f.heard)
	wake := min(n, f.idle)
	f.mu.Unlock()
	for range wake {
		f.cond.Signal()
	}
}

// only returns the connection of a batch with one connection.
func (f *flushers) only() *conn {
	switch {
	case len(f.batch) == 1 && len(f.heard) == 0:
		return f.batch[0]
	case len(f.heard) == 1 && len(f.batch) == 0:
		return f.heard[0]
	}
	return nil
}

func (f *flushers) run() {
	var room [longestRun]*conn
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for f.waiting() == 0 {
			if f.closed {
				return
			}
			f.idle++
			f.cond.Wait()
			f.idle--
		}
		run := f.next(room[:0])
		f.mu.Unlock()
		for _, c := range run {
			c.flushTouched()
		}
		clear(run)
		f.mu.Lock()
	}
}

// waiting returns how many outboxes wait to be written. f is locked.
func (f *flushers) waiting() int { return f.lanes[0].waiting() + f.lanes[1].waiting() }

// next appends the next connections to run: some of one lane. The lanes take turns. f is locked.
func (f *flushers) next(run []*conn) []*conn {
	if f.lanes[f.turn].waiting() > 0 {
		f.turn = 1 - f.turn
	}
	l := &f.lanes[1-f.turn]
	for range min(longestRun, 1+(l.waiting()-1)/max(1, f.pool)) {
		run = append(run, l.next())
	}
	return run
}

func (l *lane) waiting() int { return len(l.queue) - l.head }

// next removes the connection that has waited longest from the lane.
func (l *lane) next() *conn {
	c := l.queue[l.head]
	l.queue[l.head] = nil
	l.head++
	if l.head > len(l.queue)/2 {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	return c
}

// keptRoom is the longest list whose memory cleared keeps.
const keptRoom = 16 << 10

// cleared empties a list, and keeps its memory if that is not large.
func cleared[T any](list []T) []T {
	if cap(list) > keptRoom {
		return nil
	}
	clear(list)
	return list[:0]
}
