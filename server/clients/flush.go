package clients

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
)

// flushers write the outboxes that an applied batch has touched. touch and told collect
// them under the state lock, kick sets the pool to work once the lock is free.
type flushers struct {
	mu     sync.Mutex
	cond   sync.Cond
	batch  []*conn // touched, not yet released
	heard  []*conn // the same, by events
	lanes  [2]lane // of outboxes with replies, or few events, and of those with events of large batches
	turn   int     // the lane that next looks at first
	idle   int
	pool   int
	closed bool
}

// lane is a queue of outboxes to be written, those from head on, in this order.
type lane struct {
	queue []*conn
	head  int
}

// herd is how many outboxes with events make a large batch, as when many clients watch one node. They have a
// lane of their own: no reply waits until all of them are written, least of all the one to the client that
// made the change. The events of a small batch go first: the next owner of a lock waits for its event.
const herd = 32

// longestRun is how many outboxes a flusher takes at a time.
const longestRun = 8

// quickSize is how many bytes are written without handing them to a flusher.
const quickSize = 4 << 10

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

// touch puts c into the batch. The caller makes sure that c is in it once.
func (f *flushers) touch(c *conn) {
	f.mu.Lock()
	f.batch = append(f.batch, c)
	f.mu.Unlock()
}

// told puts connections that have got events into the batch.
func (f *flushers) told(list []*conn) {
	f.mu.Lock()
	f.heard = append(f.heard, list...)
	f.mu.Unlock()
}

// quick reports whether a visit to c takes no longer than one short system call: then the
// goroutine that applies the log may make it.
func (c *conn) quick() bool {
	if c.raw == nil {
		return false
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.state == outboxOpen && c.out.size() <= quickSize
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
		// A single reply, the usual case on an idle server: to wake a flusher would
		// take longer than to write it.
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

// only returns the connection of a batch of one.
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

// next appends the next connections to run: a part of those in one of the lanes, which take turns. f is
// locked.
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

// next takes the connection that has waited longest out of the lane: however many new ones come,
// each gets its turn.
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

// touch marks the outbox as changed from outside the connection's goroutine.
// The outbox is locked.
func (c *conn) touch() {
	if !c.out.touched {
		c.out.touched = true
		c.srv.flush.touch(c)
	}
}

// flushTouched is a flusher's visit: it closes, wakes or writes, and never
// waits for the client.
func (c *conn) flushTouched() {
	o := &c.out
	o.mu.Lock()
	o.touched, o.told = false, false
	switch {
	case o.state == outboxDead:
		o.mu.Unlock()
		c.hangUp()
		return
	case o.waiting && o.pendingLen() <= o.waitFor && o.state == outboxOpen:
		c.out.rouse() // it goes on with the next requests, and flushes then
		o.mu.Unlock()
		return
	}
	c.startFlush()
}

// startFlush writes the outbox without waiting for the client: if it must wait, a new goroutine does.
// The outbox is locked, and unlocked on return.
func (c *conn) startFlush() {
	o := &c.out
	if o.flushing || o.state == outboxDead {
		o.mu.Unlock()
		return
	}
	o.flushing = true
	o.mu.Unlock()
	if !c.write(false) {
		c.srv.wg.Go(func() { c.write(true) })
	}
}

// flush writes the outbox from the connection's own goroutine. If another flush is under way, it
// waits only while that flush has a lot left to do.
func (c *conn) flush() {
	o := &c.out
	o.mu.Lock()
	for o.flushing && o.size() >= flushSize && o.state == outboxOpen {
		o.sleep(-1)
	}
	if o.flushing || o.empty() && o.state == outboxOpen || o.state == outboxDead {
		o.mu.Unlock()
		return
	}
	o.flushing, o.own = true, true
	o.mu.Unlock()
	c.write(true)
}

// unread reports whether the connection's goroutine waits for the flush under way, and so reads nothing.
func (c *conn) unread() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.own || c.out.waiting
}

// write empties the outbox into the connection and ends the flush. If it may
// not block and would have to, it returns false, leaves the flush under way and
// must be called again.
func (c *conn) write(mayBlock bool) bool {
	o := &c.out
	for {
		o.mu.Lock()
		b := c.flight.unsent
		if len(b) == 0 {
			o.give(c.flight.sent)
			c.flight.sent, o.writing, o.stuck = piece{}, 0, 0
			c.hold(false)
			if o.empty() || o.state == outboxDead {
				c.flushed()
				return true
			}
			var frames int
			c.flight.sent, frames = o.take()
			b = c.flight.sent.b
			o.writing = len(b)
			o.stat.Wrote(frames, len(b), &c.srv.metrics)
		}
		o.mu.Unlock()
		c.flight.unsent = b
		err := c.writeNow()
		if err == nil && len(c.flight.unsent) > 0 {
			if !mayBlock {
				return false
			}
			err = c.writeAll()
		}
		if err != nil {
			c.flight.unsent = nil
			c.close(ends.OfWrite(err))
		}
	}
}

// flushed ends a flush. The outbox is locked, and unlocked on return.
func (c *conn) flushed() {
	o := &c.out
	o.flushing, o.own = false, false
	ending := o.state == outboxEnding
	shut := o.shut // a late outcome may have touched it again
	o.shut = ending
	c.out.rouse()
	o.mu.Unlock()
	if ending && !shut {
		c.part(c.linger)
	}
	if ending {
		c.srv.resting.wake(c)
	}
}

// writeNow writes what the connection takes of unsent without waiting: nothing, unless it is plain TCP.
func (c *conn) writeNow() (err error) {
	if c.raw == nil {
		return nil
	}
	closed := c.raw.Write(func(fd uintptr) bool {
		for {
			n, failed := writeOnce(fd, c.flight.unsent)
			switch {
			case n > 0:
				c.flight.unsent = c.flight.unsent[n:]
			case errors.Is(failed, syscall.EINTR):
				continue
			case failed != nil && !errors.Is(failed, syscall.EAGAIN):
				err = os.NewSyscallError("write", failed)
			}
			return true // it never asks to wait
		}
	})
	return cmp.Or(closed, err)
}

// Sizes of the pieces in which writeAll writes to a slow client. A TLS connection cannot go on
// after a deadline that passed in the middle of a piece, so there the client must take a whole
// piece in time.
const (
	writePiece    = 64 << 10
	writePieceTLS = 16 << 10

	writeStep = memoryGrace / 4 // for a piece in clear text, of which any part may be written

	unreadStep = time.Second // a client that takes something behind that is alive
)

// writeAll writes what is unsent, waiting for the client as long as it takes something. While the server
// reads nothing of a client, each piece that the client takes shows that it is alive.
func (c *conn) writeAll() error {
	defer c.nc.SetWriteDeadline(time.Time{})
	piece, step := writePiece, writeStep
	if c.secure {
		piece, step = writePieceTLS, stallTime
	}
	large := len(c.flight.unsent) > flushSize
	began := c.srv.now()
	for last := began; len(c.flight.unsent) > 0; {
		c.nc.SetWriteDeadline(time.Now().Add(step))
		n, err := c.nc.Write(c.flight.unsent[:min(len(c.flight.unsent), piece)])
		c.flight.unsent = c.flight.unsent[n:]
		now := c.srv.now()
		if n > 0 && large {
			c.srv.memory.moved(c, n)
		}
		if n > 0 {
			last = now
			c.out.mu.Lock()
			c.out.stuck = 0
			c.out.mu.Unlock()
		}
		if n > 0 && now-began >= unreadStep && c.unread() { // there was no room until the client took something
			c.alive(now)
		}
		if err != nil && (c.secure || now-last >= stallTime || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err
		}
	}
	return nil
}

// hangUp closes the socket. The connection's goroutine notices and ends; one that rests gets a
// goroutine.
func (c *conn) hangUp() {
	c.part(func() { c.nc.Close() })
	c.out.mu.Lock()
	c.out.rouse()
	c.out.mu.Unlock()
	c.srv.resting.wake(c)
}

// part runs a step that ends the connection or its writing side. With TLS the step writes a last record, and
// the client may leave no room for it: the caller, which serves other clients, does not wait.
func (c *conn) part(step func()) {
	if c.secure {
		go step()
	} else {
		step()
	}
}

// linger ends the writing side after the last frame and gives the client a
// moment to read it. Closing at once could reset the connection, because
// requests may be waiting unread, and take the frame with it.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		c.close(ends.Else)
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(lingerTime))
}
