package outbox

import (
	"runtime"
	"sync"

	"github.com/zlockd/zlockd/server/clients/ends"
)

// Flushers are a pool of goroutines that write outboxes. While a batch of log entries is applied, touch and
// Told collect the outboxes that it changes. Kick then passes them to the pool, after the state lock is free.
type Flushers struct {
	mu     sync.Mutex
	cond   sync.Cond
	batch  []*Outbox // outboxes that the present batch has changed; Kick has not passed them on yet
	heard  []*Outbox // outboxes that got events in the present batch
	lanes  [2]lane   // one for replies and small batches of events, one for large batches of events
	turn   int       // the lane from which next() takes first
	idle   int
	pool   int
	closed bool
}

// lane is a queue of outboxes that wait for a write. The first of them is queue[head].
type lane struct {
	queue []*Outbox
	head  int
}

// herd is how many outboxes with events make a batch large, as when many clients watch one node. The events
// of a large batch have a lane of their own, so that replies need not wait for them, above all the reply to
// the client that made the change. The events of a small batch share the lane of the replies, because one of
// them may tell the next holder of a lock that it has the lock.
const herd = 32

// longestRun is how many outboxes a flusher takes at a time.
const longestRun = 8

// Start starts the pool.
func (f *Flushers) Start(wg *sync.WaitGroup) {
	f.cond.L = &f.mu
	f.pool = max(2, runtime.GOMAXPROCS(0))
	for range f.pool {
		wg.Go(f.run)
	}
}

// Stop ends the pool as soon as nothing waits.
func (f *Flushers) Stop() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cond.Broadcast()
}

// touch puts o into the batch. The caller makes sure that the batch does not have o yet.
func (f *Flushers) touch(o *Outbox) {
	f.mu.Lock()
	f.batch = append(f.batch, o)
	f.mu.Unlock()
}

// Touch makes sure that a flusher comes: a goroutine other than the connection's own has changed the outbox.
// The outbox is locked.
func (o *Outbox) Touch() {
	if !o.touched {
		o.touched = true
		o.s.touch(o)
	}
}

// Kill closes the connection on behalf of the goroutine that applies the log, which must not touch a socket
// itself.
func (o *Outbox) Kill(why ends.Reason) {
	o.Lock()
	defer o.Unlock()
	o.Die(why)
	o.Touch()
}

// Told puts outboxes that have got events into the batch.
func (f *Flushers) Told(list []*Outbox) {
	f.mu.Lock()
	f.heard = append(f.heard, list...)
	f.mu.Unlock()
}

// Kick releases the batch to the flushers. The caller holds no lock.
func (f *Flushers) Kick() {
	f.mu.Lock()
	n := len(f.batch) + len(f.heard)
	if n == 0 {
		f.mu.Unlock()
		return
	}
	if o := f.only(); o != nil && f.lanes[0].waiting() == 0 && o.quick() {
		// On an idle server most batches have a single reply. Writing it here is faster than waking a flusher.
		f.batch, f.heard = Cleared(f.batch), Cleared(f.heard)
		f.mu.Unlock()
		o.flushTouched()
		return
	}
	small, large := &f.lanes[0], &f.lanes[0]
	if len(f.heard) >= herd {
		large = &f.lanes[1]
	}
	large.queue = append(large.queue, f.heard...)
	small.queue = append(small.queue, f.batch...)
	f.batch, f.heard = Cleared(f.batch), Cleared(f.heard)
	wake := min(n, f.idle)
	f.mu.Unlock()
	for range wake {
		f.cond.Signal()
	}
}

// only() returns the outbox of a batch that changed only one, and otherwise nil.
func (f *Flushers) only() *Outbox {
	switch {
	case len(f.batch) == 1 && len(f.heard) == 0:
		return f.batch[0]
	case len(f.heard) == 1 && len(f.batch) == 0:
		return f.heard[0]
	}
	return nil
}

func (f *Flushers) run() {
	var room [longestRun]*Outbox
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
		for _, o := range run {
			o.flushTouched()
		}
		clear(run)
		f.mu.Lock()
	}
}

// waiting() returns how many outboxes wait to be written. f is locked.
func (f *Flushers) waiting() int { return f.lanes[0].waiting() + f.lanes[1].waiting() }

// next() takes the outboxes that a flusher will write next, and appends them to `run`. All come from one
// lane; the next call takes from the other lane, if anything waits there. f is locked.
func (f *Flushers) next(run []*Outbox) []*Outbox {
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

// next() removes the outbox that has waited longest from the lane, so that no outbox waits forever.
func (l *lane) next() *Outbox {
	o := l.queue[l.head]
	l.queue[l.head] = nil
	l.head++
	if l.head > len(l.queue)/2 {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	return o
}

// keptRoom is the capacity of the longest list that Cleared keeps.
const keptRoom = 16 << 10

// Cleared empties a list. It keeps the list's memory, unless that is large.
func Cleared[T any](list []T) []T {
	if cap(list) > keptRoom {
		return nil
	}
	clear(list)
	return list[:0]
}
