package clients

import (
	"cmp"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
)

// quick reports whether flushing c takes at most one short system call, so that the goroutine that applies
// the log may do it.
func (c *conn) quick() bool {
	if c.raw == nil {
		return false
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.state == outboxOpen && c.out.size() <= quickSize
}

// flushTouched is the work of a flusher for one connection: it closes the connection, wakes its goroutine, or
// writes its outbox. It never waits for the client.
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
		c.out.rouse() // the goroutine handles the next requests, and flushes after them
		o.mu.Unlock()
		return
	}
	c.startFlush()
}

// startFlush writes the outbox without waiting for the client. If it would have to wait, a new goroutine does
// the rest. The caller has locked the outbox; startFlush unlocks it.
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

// flush writes the outbox from the connection's own goroutine. If another flush runs, it waits only while
// that flush still has much to write.
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

// unread reports whether the connection's goroutine waits for the running flush, and so does not read.
func (c *conn) unread() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.own || c.out.waiting
}

// write writes the whole outbox to the connection and ends the flush. If it would block but mayBlock is
// false, it returns false and the flush goes on; call it again.
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

// flushed ends a flush. The caller has locked the outbox; flushed unlocks it.
func (c *conn) flushed() {
	o := &c.out
	o.flushing, o.own = false, false
	ending := o.state == outboxEnding
	shut := o.shut // a late outcome may have set it again
	o.shut = ending
	c.out.rouse()
	o.mu.Unlock()
	if ending && !shut {
		c.part(c.linger)
	}
	if ending {
		c.srv.resting.Wake(c)
	}
}

// writeNow writes as much of unsent as the connection accepts without waiting. It writes nothing if the
// connection is not plain TCP.
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
			return true // true ends the call: never wait for the socket
		}
	})
	return cmp.Or(closed, err)
}

// Sizes of the pieces in which writeAll writes to a slow client. A TLS connection is broken after a deadline
// in the middle of a piece, so a TLS client must read a whole piece in time.
const (
	writePiece    = 64 << 10
	writePieceTLS = 16 << 10

	writeStep = budget.Grace / 4 // limit for a piece in clear text, which may be written in part

	unreadStep = time.Second // a client that reads after this time is alive
)

// writeAll writes the rest of unsent, and waits for the client while the client reads. While the server reads
// nothing from the client, each piece that the client accepts shows that it is alive.
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
			c.srv.memory.Moved(c, n)
		}
		if n > 0 {
			last = now
			c.out.mu.Lock()
			c.out.stuck = 0
			c.out.mu.Unlock()
		}
		if n > 0 && now-began >= unreadStep && c.unread() { // the client has read something
			c.alive(now)
		}
		if err != nil && (c.secure || now-last >= stallTime || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err
		}
	}
	return nil
}
