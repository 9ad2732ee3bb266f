package clients

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/inbox"
)

// A connection whose client only pings rests, where the system allows it: of many thousands most do, most
// of the time. A resting connection has no goroutine, except before its first ping: most new clients ask
// for something at once, and a goroutine with the smallest stack, which waits for that, costs less than
// to add the connection to a poller. A goroutine that has once handled anything has a larger stack for the
// rest of its life, so a new one serves what the client asks.

// pingSize is the length of a ping with its prefix.
const pingSize = 4 + inbox.HeaderSize

// mayRest reports whether the connection has nothing to do. A read-only session needs a deadline: no
// leader ends it.
func (c *conn) mayRest() bool {
	return c.reader.idle && c.reader.in.Len() == 0 && c.reader.held == 0 && !c.readOnly &&
		c.srv.resting.takes(c)
}

// lieDown lets the connection rest, without what it does not need. The caller owns it no longer.
func (c *conn) lieDown() {
	c.armDeadline() // that of a frame is over
	c.reader.in = nil
	o := &c.out
	o.mu.Lock()
	if o.state == outboxOpen && !o.flushing && o.size() == 0 && o.pendingLen() == 0 {
		o.buf, o.spare, o.pend, o.pendHead, o.wake = nil, nil, nil, 0, nil
	}
	o.mu.Unlock()
	switch {
	case !c.reader.rested:
		c.reader.rested = true
		go c.awaitFirst()
	case !c.srv.resting.park(c):
		c.reader.idle = false // until the next ping
		c.rise(nil, nil)
	}
}

// awaitFirst is the goroutine of a connection that rests for the first time. It keeps its stack small.
func (c *conn) awaitFirst() {
	buf := make([]byte, pingSize+1)
	n, err := c.nc.Read(buf)
	if n > 0 {
		c.received(n)
	}
	c.rise(buf[:n], err)
}

// rise gives a connection that rests no longer a goroutine, with what was read last.
func (c *conn) rise(read []byte, err error) {
	c.reader.in = new(inbox.Input)
	c.reader.in.Put(read)
	why := ends.None
	if err != nil {
		why = c.readFailed(err)
	}
	go c.serve(why)
}

// resting holds the connections that rest, where the system can tell one goroutine for all of them which
// have something to read. That goroutine answers pings itself, and gives a connection with anything else
// to read, or that ends, to a goroutine of its own.
//
// One goroutine at a time owns a connection. Under mu the ownership of a resting connection goes to the
// goroutine for all, for a visit, or for good to the goroutine that wakes the connection.
type resting struct {
	srv    *Server
	once   sync.Once
	polls  atomic.Bool // poller is set
	poller poller

	mu     sync.Mutex
	slots  []*conn // nil: free
	free   []uint32
	closed bool
}

// poller tells which connections have something to read.
type poller interface {
	// takes reports whether add can take the connection.
	takes(c *conn) bool
	// add lets wait return slot when bytes or the end of the connection have come, and again with
	// each further arrival. What is there already counts as an arrival.
	add(c *conn, slot uint32) error
	// remove takes the connection off the list, unless its end has done so.
	remove(c *conn)
	// wait waits for arrivals. It may also return slots whose connection is another one now.
	wait(buf []arrival) (n int, err error)
	// read reads what is there; without error it returns 0 if nothing is.
	read(c *conn, b []byte) (n int, err error)
	close()
}

// arrival says that there may be something to read.
type arrival struct {
	slot uint32
	last bool // the connection's end is among it: no further arrival follows
}

// use begins to wait for arrivals at p, which is nil if the system has nothing of the kind.
func (r *resting) use(p poller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && p != nil {
		p.close()
	} else if p != nil {
		r.poller = p
		r.srv.wg.Go(r.run)
		r.polls.Store(true)
	}
}

// stop ends the goroutine for all. Connections that rest are woken by their ends.
func (r *resting) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.poller != nil {
		r.poller.close()
	}
}

// takes reports whether the connection can rest.
func (r *resting) takes(c *conn) bool {
	if c.raw != nil {
		r.once.Do(func() { r.use(newPoller()) })
	}
	return r.polls.Load() && r.poller.takes(c)
}

// park lets c rest. If it reports true the caller owns c no longer.
func (r *resting) park(c *conn) bool {
	slot, ok := r.enter(c)
	if !ok {
		return false
	}
	// A goroutine that ends the connection first says so in the outbox and then calls wake: either
	// isOpen sees it, or wake finds the connection here.
	if r.poller.add(c, slot) == nil && c.isOpen() || !r.take(c) {
		return true
	}
	r.poller.remove(c)
	return false
}

// enter gives c a slot.
func (r *resting) enter(c *conn) (slot uint32, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, false
	}
	if n := len(r.free); n > 0 {
		slot, r.free = r.free[n-1], r.free[:n-1]
	} else {
		slot, r.slots = uint32(len(r.slots)), append(r.slots, nil)
	}
	r.slots[slot] = c
	c.place.slot, c.place.rests = slot, true
	return slot, true
}

// begin begins a visit to the connection in a slot, if there is one.
func (r *resting) begin(slot uint32) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(slot) >= len(r.slots) || r.slots[slot] == nil {
		return nil
	}
	c := r.slots[slot]
	c.place.rests = false
	return c
}

// take makes the caller the owner of a resting connection, which rests no longer. It reports false if
// the connection has an owner.
func (r *resting) take(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.place.rests {
		return false
	}
	r.leave(c)
	return true
}

// fewSlots is how many slots stay while no connection rests.
const fewSlots = 16 << 10

// leave frees c's slot. r.mu is locked.
func (r *resting) leave(c *conn) {
	r.slots[c.place.slot] = nil
	r.free = append(r.free, c.place.slot)
	c.place.rests = false
	if len(r.free) == len(r.slots) && len(r.slots) > fewSlots {
		r.slots, r.free = nil, nil
	}
}

// wake wakes c, which ends, if it rests.
func (r *resting) wake(c *conn) {
	if r.take(c) {
		r.rise(c, nil, net.ErrClosed)
	}
}

// rise gives c, which has left its slot, a goroutine.
func (r *resting) rise(c *conn, read []byte, err error) {
	r.poller.remove(c)
	c.rise(read, err)
}

// run is the goroutine for all.
func (r *resting) run() {
	arrivals := make([]arrival, 128)
	var buf [pingSize + 1]byte
	for {
		n, err := r.poller.wait(arrivals)
		if err != nil {
			return
		}
		for _, a := range arrivals[:n] {
			if c := r.begin(a.slot); c != nil {
				n, err := c.answerPings(r.poller, a.last, buf[:])
				r.release(c, buf[:n], err)
			}
		}
	}
}

// release ends a visit in which read was read last. c rests again, unless there is more to do than to
// answer pings: then it wakes.
func (r *resting) release(c *conn, read []byte, err error) {
	wakes := len(read) > 0 || err != nil
	r.mu.Lock()
	if c.place.rests = !wakes; wakes {
		r.leave(c)
	}
	r.mu.Unlock()
	if wakes {
		r.rise(c, read, err)
	} else if !c.isOpen() { // it ended during the visit
		r.wake(c)
	}
}

// answerPings reads what has come and answers pings, until it reads something else. A panic ends this
// connection alone.
func (c *conn) answerPings(p poller, last bool, buf []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.panicked(v)
			n, err = 0, net.ErrClosed
		}
	}()
	for {
		n, err := p.read(c, buf)
		if n > 0 {
			c.received(n)
		}
		if n == 0 || err != nil || n != pingSize || !isPing(buf) || !c.pong(buf[4:pingSize]) {
			return n, err
		}
		if !last {
			return 0, nil // fewer bytes than asked for: nothing is left
		}
	}
}

// isPing reports whether what was read begins with a ping.
func isPing(b []byte) bool {
	return [4]byte(b[:4]) == [4]byte{0, 0, 0, inbox.HeaderSize} && [4]byte(b[8:12]) == [4]byte{
		0, 0, 0, byte(jute.OpPing)}
}

// pong answers a ping if that can be done at once.
func (c *conn) pong(frame []byte) bool {
	if !c.admitted() || !c.replica.PingOK(c.timeout) {
		return false
	}
	_, op, body := inbox.Header(frame)
	c.seen(1, op, body)
	c.charge(plainSteps)
	if !c.reply(jute.XidPing, jute.OpPing, c.replica.Zxid(), jute.OK, nil) {
		return false
	}
	c.out.mu.Lock()
	c.startFlush()
	return true
}
