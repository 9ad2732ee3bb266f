package conn

import (
	"net"
	"syscall"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/server/clients/rest"
)

// A connection rests while its client sends nothing but pings, if the system allows it. Of many thousands of
// connections most rest most of the time, and a resting connection has no goroutine. A new connection has a
// goroutine until its first ping: most new clients send a request at once, and a goroutine with the smallest
// stack costs less than adding the connection to a poller. A goroutine keeps the stack to which a request has
// enlarged it. So it ends when the connection rests, and a new goroutine serves the next request.

// pingSize is the length of a ping with its prefix.
const pingSize = 4 + inbox.HeaderSize

// mayRest reports whether the connection has nothing to do. A read-only session may not rest: it needs a
// deadline, because no leader ends it.
func (c *Conn) mayRest() bool {
	return c.reader.idle && c.reader.in.Len() == 0 && c.reader.held == 0 && !c.readOnly &&
		c.shared.Resting.Takes(c)
}

// lieDown makes the connection rest and frees its buffers. The caller no longer owns the connection.
func (c *Conn) lieDown() {
	c.armDeadline() // no frame has begun: remove the deadline of the last frame
	c.reader.in = nil
	c.out.Shrink()
	switch {
	case !c.reader.rested:
		c.reader.rested = true
		go c.awaitFirst()
	case !c.shared.Resting.Park(c):
		c.reader.idle = false // not parked: the connection keeps a goroutine, at least until the next ping
		c.Rise(nil, nil)
	}
}

// awaitFirst is the goroutine of a connection before its first ping. It keeps its stack small.
func (c *Conn) awaitFirst() {
	buf := make([]byte, pingSize+1)
	n, err := c.out.NC.Read(buf)
	if n > 0 {
		c.received(n)
	}
	c.Rise(buf[:n], err)
}

// Rise implements rest.Sleeper: it starts a goroutine for a connection whose rest ends.
func (c *Conn) Rise(read []byte, err error) {
	c.reader.in = new(inbox.Input)
	c.reader.in.Put(read)
	why := ends.None
	if err != nil {
		why = c.readFailed(err)
	}
	go c.serve(why)
}

// Visit implements rest.Sleeper: it reads the arrived bytes and answers pings, until it reads something else.
// A panic ends only this connection.
func (c *Conn) Visit(p rest.Poller, last bool, buf []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.panicked(v)
			n, err = 0, net.ErrClosed
		}
	}()
	for {
		n, err := p.Read(c, buf[:pingSize+1])
		if n > 0 {
			c.received(n)
		}
		if n == 0 || err != nil || n != pingSize || !isPing(buf) || !c.pong(buf[4:pingSize]) {
			return n, err
		}
		if !last {
			return 0, nil // the read did not fill buf, so no more bytes have arrived
		}
	}
}

// isPing reports whether b begins with a ping.
func isPing(b []byte) bool {
	return [4]byte(b[:4]) == [4]byte{0, 0, 0, inbox.HeaderSize} && [4]byte(b[8:12]) == [4]byte{
		0, 0, 0, byte(jute.OpPing)}
}

// pong answers a ping if it can do so at once.
func (c *Conn) pong(frame []byte) bool {
	if !c.admitted() || !c.replica.PingOK(c.timeout) {
		return false
	}
	_, op, body := inbox.Header(frame)
	c.seen(1, op, body)
	c.charge(request.PlainSteps)
	if !c.reply(jute.XidPing, jute.OpPing, c.replica.Zxid(), jute.OK, nil) {
		return false
	}
	c.out.Lock()
	c.out.StartFlush()
	return true
}

// Place implements rest.Sleeper.
func (c *Conn) Place() *rest.Place { return &c.place }

// Raw implements rest.Sleeper.
func (c *Conn) Raw() syscall.RawConn { return c.out.Raw }
