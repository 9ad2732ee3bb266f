package outbox

import (
	"cmp"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
)

// quick() reports whether flushing takes at most one short system call, so that the goroutine that applies
// the log may do it.
func (o *Outbox) quick() bool {
	if o.Raw == nil {
		return false
	}
	o.Lock()
	defer o.Unlock()
	return o.state == open && o.Size() <= quickSize
}

// flushTouched is the work of a flusher for one connection: it closes the connection, wakes its goroutine, or
// writes its outbox. It never waits for the client.
func (o *Outbox) flushTouched() {
	o.Lock()
	o.touched, o.told = false, false
	switch {
	case o.state == dead:
		o.Unlock()
		o.hangUp()
		return
	case o.waiting && o.Pending() <= int(o.waitFor) && o.state == open:
		o.rouse() // no flush here: the goroutine handles further requests, and then flushes all replies at once
		o.Unlock()
		return
	}
	o.StartFlush()
}

// StartFlush writes the outbox without waiting for the client. If it would have to wait, a new goroutine
// writes the remaining frames. The caller has locked the outbox; StartFlush unlocks it.
func (o *Outbox) StartFlush() {
	if o.flushing || o.state == dead {
		o.Unlock()
		return
	}
	o.flushing = true
	o.Unlock()
	if !o.write(false) {
		o.s.Go(func() { o.write(true) })
	}
}

// Flush writes the outbox from the connection's own goroutine. If another goroutine already flushes it, Flush
// leaves the writing to that one. While the outbox is large, it waits for that flush first.
func (o *Outbox) Flush() {
	o.Lock()
	for o.flushing && o.Size() >= FlushSize && o.state == open {
		o.sleep(-1)
	}
	if o.flushing || o.empty() && o.state == open || o.state == dead {
		o.Unlock()
		return
	}
	o.flushing, o.own = true, true
	o.Unlock()
	o.write(true)
}

// unread() reports whether the connection's goroutine waits for the running flush, and so does not read from
// the client.
func (o *Outbox) unread() bool {
	o.Lock()
	defer o.Unlock()
	return o.own || o.waiting
}

// write() writes the whole outbox to the connection and ends the flush. If it would block and mayBlock is
// false, it returns false; the flush is not over, and the caller must call write() again.
func (o *Outbox) write(mayBlock bool) bool {
	for {
		o.Lock()
		b := o.unsent
		if len(b) == 0 {
			o.give(o.sent)
			o.sent, o.writing, o.stuck = piece{}, 0, 0
			o.Hold(false)
			if o.empty() || o.state == dead {
				o.flushed()
				return true
			}
			var frames int
			o.sent, frames = o.take()
			b = o.sent.b
			o.writing = len(b)
			o.Stat.Wrote(frames, len(b), o.s.Metrics)
		}
		o.Unlock()
		o.unsent = b
		err := o.writeNow()
		if err == nil && len(o.unsent) > 0 {
			if !mayBlock {
				return false
			}
			err = o.writeAll()
		}
		if err != nil {
			o.unsent = nil
			o.Close(ends.OfWrite(err))
		}
	}
}

// flushed() ends a flush. The caller has locked the outbox; flushed() unlocks it.
func (o *Outbox) flushed() {
	o.flushing, o.own = false, false
	ending := o.state == ending
	shut := o.shut // true: linger has run before, and this flush wrote an outcome that came after it
	o.shut = ending
	o.rouse()
	o.Unlock()
	if ending && !shut {
		o.part(o.linger)
	}
	if ending {
		o.owner.Wake()
	}
}

// writeNow writes as much of `unsent` as the connection accepts without waiting. It writes nothing if the
// connection is not plain TCP.
func (o *Outbox) writeNow() (err error) {
	if o.Raw == nil {
		return nil
	}
	closed := o.Raw.Write(func(fd uintptr) bool {
		for {
			n, failed := writeOnce(fd, o.unsent)
			switch {
			case n > 0:
				o.unsent = o.unsent[n:]
			case errors.Is(failed, syscall.EINTR):
				continue
			case failed != nil && !errors.Is(failed, syscall.EAGAIN):
				err = os.NewSyscallError("write", failed)
			}
			return true // true ends the call, so that it never waits for the socket
		}
	})
	return cmp.Or(closed, err)
}

// Sizes of the pieces in which writeAll writes to a slow client. Each piece of a TLS connection must be read
// before its deadline, because a record that is written only in part breaks the connection. So it is smaller.
const (
	writePiece    = 64 << 10
	writePieceTLS = 16 << 10

	writeStep = budget.Grace / 4 // time limit for a piece without TLS; when it is over, the rest is tried again

	unreadStep = time.Second // how long a write must last before its progress counts as a sign of life
)

// writeAll writes the rest of `unsent`, and waits as long as the client reads. If the server has stopped
// reading from this client, the client's reading is its sign of life.
func (o *Outbox) writeAll() error {
	defer o.NC.SetWriteDeadline(time.Time{})
	piece, step := writePiece, writeStep
	if o.Secure {
		piece, step = writePieceTLS, StallTime
	}
	large := len(o.unsent) > FlushSize
	began := o.s.Now()
	for last := began; len(o.unsent) > 0; {
		o.NC.SetWriteDeadline(time.Now().Add(step))
		n, err := o.NC.Write(o.unsent[:min(len(o.unsent), piece)])
		o.unsent = o.unsent[n:]
		now := o.s.Now()
		if n > 0 && large {
			o.s.Memory.Moved(o.owner, n)
		}
		if n > 0 {
			last = now
			o.Lock()
			o.stuck = 0
			o.Unlock()
		}
		if n > 0 && now-began >= unreadStep && o.unread() { // the client must have read, as it made room
			o.owner.Alive()
		}
		if err != nil && (o.Secure || now-last >= StallTime || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err
		}
	}
	return nil
}

// StallTime is how long a client may accept no byte, or may leave a frame incomplete.
const StallTime = 30 * time.Second

// FlushLarge flushes the outbox if it has grown large. It is called between requests that have already
// arrived, when a small outbox can wait.
func (o *Outbox) FlushLarge() {
	o.Lock()
	large := o.Size() >= FlushSize
	o.Unlock()
	if large {
		o.Flush()
	}
}

// Await returns at once if at most `limit` of the connection's requests are pending. Otherwise it waits until
// at most `left` requests are pending. It returns false when the connection has ended.
func (o *Outbox) Await(limit, left int) bool {
	o.Lock()
	if o.Pending() > limit && o.state == open {
		if limit > 0 {
			o.s.Metrics.Throttled.Add(1)
		}
		o.Unlock()
		o.Flush()
		o.Lock()
		for o.Pending() > left && o.state == open {
			o.sleep(left)
		}
	}
	open := o.state == open
	o.Unlock()
	return open
}

// Drain writes the last frames of an outbox that ends, and reports whether they are written.
func (o *Outbox) Drain() bool {
	o.Lock()
	defer o.Unlock()
	for o.state == ending && !o.shut {
		if o.flushing {
			o.sleep(-1)
			continue
		}
		o.flushing = true
		o.Unlock()
		o.write(true)
		o.Lock()
	}
	return o.state == ending
}
