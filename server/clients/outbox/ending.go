package outbox

import (
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
)

// Close ends the connection now. If the connection already ends, the earlier reason stays.
func (o *Outbox) Close(why ends.Reason) {
	o.Lock()
	o.Die(why)
	o.Unlock()
	o.hangUp()
}

// Last appends b to the bytes that wait to be written, as the last bytes of the connection.
func (o *Outbox) Last(b []byte, why ends.Reason) {
	o.Lock()
	defer o.Unlock()
	if o.state != open {
		return
	}
	if len(b) > 0 {
		o.Append(b)
	}
	o.End(why)
}

// IsOpen reports whether the connection has not begun to end.
func (o *Outbox) IsOpen() bool {
	o.Lock()
	defer o.Unlock()
	return o.state == open
}

// hangUp closes the socket, and the connection's goroutine then ends. A resting connection gets a goroutine
// for its end.
func (o *Outbox) hangUp() {
	o.part(func() { o.NC.Close() })
	o.Lock()
	o.rouse()
	o.Unlock()
	o.owner.Wake()
}

// part() runs a step that closes the connection or its writing side. With TLS the step writes a last record
// and may block on the client, so it runs in a goroutine of its own.
func (o *Outbox) part(step func()) {
	if o.Secure {
		go step()
	} else {
		step()
	}
}

// linger closes the writing side after the last frame and gives the client a moment to read that frame. If
// requests wait unread, closing the socket at once could reset the connection and lose the frame.
func (o *Outbox) linger() {
	half, ok := o.NC.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		o.Close(ends.Else)
		return
	}
	o.NC.SetReadDeadline(time.Now().Add(LingerTime))
}

// LingerTime is how long a client has to read the last frame.
const LingerTime = time.Second

// Open reports whether the connection has not begun to end. The outbox is locked.
func (o *Outbox) Open() bool { return o.state == open }

// Why returns why the connection ends.
func (o *Outbox) Why() ends.Reason {
	o.Lock()
	defer o.Unlock()
	return o.why
}

// SetReadDeadline sets the read deadline, unless the connection is ending: the end has a deadline of its own.
func (o *Outbox) SetReadDeadline(at time.Time) {
	o.Lock()
	defer o.Unlock()
	if o.state == open {
		o.NC.SetReadDeadline(at)
	}
}

// Shrink gives up the buffers of an outbox in which nothing waits.
func (o *Outbox) Shrink() {
	o.Lock()
	defer o.Unlock()
	if o.state == open && !o.flushing && o.Size() == 0 && o.Pending() == 0 {
		o.buf, o.spare, o.pend, o.pendHead, o.wake = nil, nil, nil, 0, nil
	}
}

// Hears notes that the outbox has got events, and reports whether the caller must pass the outbox to a
// flusher.
func (o *Outbox) Hears() bool {
	due := !o.touched && !o.told
	o.told = o.told || due
	return due
}

// Busy reports whether a flush is under way, and whether the connection's goroutine waits for it. The outbox
// is locked.
func (o *Outbox) Busy() (flushing, waiting bool) { return o.flushing, o.waiting }
