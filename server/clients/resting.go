package clients

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// A connection whose client only pings rests: of many thousands most do, most of the time. Where the
// system allows it, a resting connection has no goroutine. Elsewhere it needs one with the smallest
// stack, which waits for the next bytes. A goroutine that has once handled anything has a larger stack for
// the rest of its life, so a new goroutine serves those bytes. Only one of the two exists at a time; the
// go statement hands over what the connection's goroutine owns.

// pingSize is the length of a ping with its prefix.
const pingSize = 4 + headerSize

// mayRest reports whether the connection has nothing to do. TLS needs a large
// stack for each byte.
func (c *conn) mayRest() bool {
	return c.idle && c.in.len() == 0 && c.inHeld == 0 && !c.secure
}

// lieDown lets the connection rest, without what it does not need. The caller owns it no longer. Most new
// clients ask for something at once: until the first ping or request a goroutine costs less than to add
// the connection to a poller.
func (c *conn) lieDown() {
	c.in = nil
	c.lastHeard.Store(int64(c.srv.now())) // the server itself may have caused the time since its last bytes
	o := &c.out
	o.mu.Lock()
	if o.state == outboxOpen && !o.flushing && o.size() == 0 && o.pendingLen() == 0 {
		o.buf, o.spare, o.pend, o.pendHead, o.wake = nil, nil, nil, 0, nil
	}
	o.mu.Unlock()
	if c.settled && c.srv.resting.park(c) {
		return
	}
	c.settled = true
	c.setDeadline(c.silentAt())
	go c.rest()
}

// rest is the goroutine of a connection that rests. It keeps its stack small.
func (c *conn) rest() {
	buf := make([]byte, pingSize+1)
	n, err := c.nc.Read(buf)
	if n > 0 {
		c.received(n)
	}
	c.rise(buf[:n], err)
}

// rise gives a connection that rests no longer a goroutine, with what was read last.
func (c *conn) rise(read []byte, err error) {
	c.in = new(input)
	c.in.room()
	c.in.w = copy(c.in.buf, read)
	why := endNone
	if err != nil {
		why = c.readFailed(err)
	}
	go c.serve(why)
}

// resting holds the connections that rest without a goroutine, where the system can tell one goroutine
// for all of them which have something to read. That goroutine answers pings itself, and gives a
// connection with anything else to read, or that ends, to a goroutine of its own.
//
// One goroutine at a time owns a connection. Under mu the ownership of a resting connection goes to the
// goroutine for all, for a visit, or for good to the goroutine that wakes the connection.
type resting struct {
	srv    *Server
	once   sync.Once
	polls  atomic.Bool // poller is set
	poller poller

	mu     sync.Mutex
	slots  []restSlot
	free   []uint32
	timer  *time.Timer   // of sweep
	next   time.Duration // when the timer fires; 0: never
	closed bool
}

// restSlot is the place of one resting connection.
type restSlot struct {
	c     *conn         // nil: free
	check time.Duration // when sweep looks whether the client is still there
}

// poller tells which connections have something to read.
type poller interface {
	// takes reports whether add can take the connection.
	takes(c *conn) bool
	// add lets wait return slot when bytes or the end of the connection have come, and again with
	// each further arrival. What is there already counts as an arrival.
	add(c *conn, slot uint32) error
	// remove ends that, unless the end of the connection did.
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

const (
	// sweepEvery is the shortest time between two looks for silent clients.
	sweepEvery = time.Second
	// sweepSlots is how many slots sweep looks at under one hold of the lock.
	sweepSlots = 16 << 10
)

func (r *resting) init(s *Server) {
	r.srv = s
	r.timer = time.AfterFunc(time.Hour, r.sweep)
	r.timer.Stop()
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
	r.timer.Stop()
	if r.poller != nil {
		r.poller.close()
	}
}

// takes reports whether the connection can rest without a goroutine.
func (r *resting) takes(c *conn) bool {
	if c.raw != nil {
		r.once.Do(func() { r.use(newPoller()) })
	}
	return r.polls.Load() && r.poller.takes(c)
}

// park lets c rest without a goroutine. If it reports true the caller owns c no longer.
func (r *resting) park(c *conn) bool {
	if !r.takes(c) || !c.dropDeadline() {
		return false
	}
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
		slot, r.slots = uint32(len(r.slots)), append(r.slots, restSlot{})
	}
	at := c.silentAt()
	r.slots[slot] = restSlot{c, at}
	c.slot, c.rests = slot, true
	r.wakeAt(at)
	return slot, true
}

// begin begins a visit to the connection in a slot, if there is one.
func (r *resting) begin(slot uint32) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(slot) >= len(r.slots) || r.slots[slot].c == nil {
		return nil
	}
	c := r.slots[slot].c
	c.visited = true
	return c
}

// take makes the caller the owner of a resting connection, which rests no longer. It reports false if
// the connection has an owner. If that is a visit, the connection wakes after it.
func (r *resting) take(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.visited {
		c.wanted = true
	}
	if !c.rests || c.visited {
		return false
	}
	r.leave(c)
	return true
}

// leave frees c's slot. r.mu is locked.
func (r *resting) leave(c *conn) {
	r.slots[c.slot].c = nil
	r.free = append(r.free, c.slot)
	c.rests, c.visited, c.wanted = false, false, false
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

// release ends a visit in which read was read last. c rests again, unless it was wanted or there is
// more to do than to answer pings: then it wakes.
func (r *resting) release(c *conn, read []byte, err error) {
	r.mu.Lock()
	if c.wanted {
		err = net.ErrClosed
	}
	wakes := len(read) > 0 || err != nil
	if c.visited = false; wakes {
		r.leave(c)
	}
	r.mu.Unlock()
	if wakes {
		r.rise(c, read, err)
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
	return [4]byte(b[:4]) == [4]byte{0, 0, 0, headerSize} && [4]byte(b[8:12]) == [4]byte{
		0, 0, 0, byte(jute.OpPing)}
}

// pong answers a ping if that can be done at once.
func (c *conn) pong(frame []byte) bool {
	if !c.admitted() || !c.readOnly && !c.replica.PingOK(c.timeout) {
		return false
	}
	_, op, body := header(frame)
	c.seen(1, op, body)
	if !c.reply(jute.XidPing, jute.OpPing, c.replica.Zxid(), jute.OK, nil) {
		return false
	}
	c.out.mu.Lock()
	c.startFlush()
	return true
}

// silentAt is when a client that sends nothing more has been silent for too long.
func (c *conn) silentAt() time.Duration {
	return time.Duration(c.lastHeard.Load()) + c.timeout + c.margin()
}

// wakeAt sees that sweep runs at that time at the latest. r.mu is locked.
func (r *resting) wakeAt(at time.Duration) {
	if now := r.srv.now(); !r.closed && (r.next == 0 || at < r.next) {
		r.next = max(at, now+sweepEvery)
		r.timer.Reset(r.next - now)
	}
}

// sweep wakes the connections whose clients have been silent for too long.
func (r *resting) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = 0
	now := r.srv.now()
	earliest := time.Duration(1<<63 - 1)
	for at := 0; at < len(r.slots); at++ {
		if at%sweepSlots == sweepSlots-1 {
			r.mu.Unlock()
			r.mu.Lock()
		}
		s := &r.slots[at]
		if s.c == nil {
			continue
		}
		if s.check <= now {
			if s.check = s.c.silentAt(); s.check <= now && !s.c.visited {
				c := s.c
				r.leave(c)
				go r.rise(c, nil, os.ErrDeadlineExceeded)
				continue
			}
		}
		earliest = min(earliest, s.check)
	}
	if len(r.free) < len(r.slots) {
		r.wakeAt(earliest)
	} else {
		r.slots, r.free = nil, nil // none rests: many may have
	}
}

// dropDeadline removes the read deadline, and reports false if the connection is ending.
func (c *conn) dropDeadline() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.state != outboxOpen {
		return false
	}
	c.deadline = 0
	c.nc.SetReadDeadline(time.Time{})
	return true
}
