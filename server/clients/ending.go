package clients

import (
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
)

// close ends the connection now. It keeps the first reason.
func (c *conn) close(why ends.Reason) {
	c.out.mu.Lock()
	c.out.die(why)
	c.out.mu.Unlock()
	c.hangUp()
}

// kill closes the connection on behalf of the goroutine that applies the log, which must not touch a socket
// itself.
func (c *conn) kill(why ends.Reason) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.die(why)
	c.touch()
}

// retire ends a connection whose session has a newer connection, or has ended.
func (c *conn) retire(why ends.Reason) {
	c.pulse.retired.Store(true)
	c.kill(why)
}

// last appends b to the bytes that wait to be written, as the last bytes of the connection.
func (c *conn) last(b []byte, why ends.Reason) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.state != outboxOpen {
		return
	}
	if len(b) > 0 {
		c.out.append(b)
	}
	c.out.end(why)
}

// isOpen reports whether the connection has not begun to end.
func (c *conn) isOpen() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.state == outboxOpen
}

// touch marks the outbox as changed from outside the connection's goroutine.
// The outbox is locked.
func (c *conn) touch() {
	if !c.out.touched {
		c.out.touched = true
		c.srv.flush.touch(c)
	}
}

// hangUp closes the socket. The connection's goroutine notices and ends; a resting connection gets a
// goroutine for this.
func (c *conn) hangUp() {
	c.part(func() { c.nc.Close() })
	c.out.mu.Lock()
	c.out.rouse()
	c.out.mu.Unlock()
	c.srv.resting.Wake(c)
}

// part runs a step that ends the connection or its writing side. With TLS the step runs in a goroutine of its
// own: it writes a last record, which may block, and the caller serves other clients.
func (c *conn) part(step func()) {
	if c.secure {
		go step()
	} else {
		step()
	}
}

// linger closes the writing side after the last frame and gives the client a moment to read that frame. If
// requests wait unread, closing the socket at once could reset the connection and lose the frame.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		c.close(ends.Else)
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(lingerTime))
}
