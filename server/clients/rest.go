package clients

import (
	"errors"
	"os"

	"github.com/zlockd/zlockd/jute"
)

// A connection whose client only pings rests: of many thousands most do, most of the time. Where the
// system allows it, a resting connection has no goroutine (resting.go). Elsewhere it needs one with the
// smallest stack, which reads a few bytes at a time and answers pings. A goroutine that has once
// handled anything else has a larger stack for the rest of its life, so the first request wakes the
// connection: a new goroutine serves it. Only one of the two exists at a time; the go statement hands
// over what the connection's goroutine owns.

// woken is what a resting connection has read last: a ping, or what ended its rest.
type woken struct {
	buf [pingSize + 1]byte
	n   uint8
	err error
}

// pingSize is the length of a ping with its prefix.
const pingSize = 4 + headerSize

// mayRest reports whether the connection has nothing to do. TLS needs a large
// stack for a ping as well.
func (c *conn) mayRest() bool {
	return c.idle && c.in.len() == 0 && !c.within && c.inHeld == 0 && !c.secure
}

// giveBack frees what a resting connection does not need.
func (c *conn) giveBack() {
	c.in = nil
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if o := &c.out; o.state == outboxOpen && !o.flushing && o.size() == 0 && o.pendingLen() == 0 {
		o.buf, o.spare, o.pend, o.pendHead, o.wake = nil, nil, nil, 0, nil
	}
}

// lieDown lets the connection rest. The caller owns it no longer. Most new clients ask for something at
// once: until the first ping or request a goroutine costs less than to add the connection to a poller.
func (c *conn) lieDown() {
	if c.settled && c.srv.resting.park(c) {
		return
	}
	c.settled = true
	go c.rest()
}

// rest is the goroutine of a connection that rests. It keeps its stack small: it leaves requests
// other than pings, and every end, to serve.
func (c *conn) rest() {
	defer c.restPanicked()
	w := new(woken)
	for {
		n, err := c.nc.Read(w.buf[:])
		if n > 0 {
			c.received(n)
		}
		if err != nil || n != pingSize || !isPing(w.buf[:]) || !c.handle(w.buf[4:pingSize]) {
			w.n, w.err = uint8(n), err
			break
		}
		c.flush()
		if c.srv.resting.park(c) {
			return
		}
	}
	c.woken = w
	go c.serve()
}

// isPing reports whether what was read begins with a ping.
func isPing(b []byte) bool {
	return [4]byte(b[:4]) == [4]byte{0, 0, 0, headerSize} && [4]byte(b[8:12]) == [4]byte{
		0, 0, 0, byte(jute.OpPing)}
}

// restPanicked limits a panic to the end of this connection.
func (c *conn) restPanicked() {
	if p := recover(); p != nil {
		c.panicked(p)
		c.finish(endPanic)
		c.srv.wg.Done()
	}
}

// wakeUp takes over what a resting connection has received. It reports true when
// there is nothing to do after all.
func (c *conn) wakeUp() (why endReason, again bool) {
	w := c.woken
	c.woken, c.in = nil, new(input)
	n, err := int(w.n), w.err
	if n > 0 {
		c.in.room()
		c.in.w = copy(c.in.buf, w.buf[:n])
	}
	if err == nil {
		return endNone, false
	}
	// Pings do not move the deadline, which would take a system call: wakeUp checks it once it has
	// passed.
	silent := c.silentAt()
	if errors.Is(err, os.ErrDeadlineExceeded) && silent > c.srv.now() && c.isOpen() {
		c.setDeadline(silent)
		c.in = nil
		return endNone, true
	}
	return c.readFailed(err), false
}
