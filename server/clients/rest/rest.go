// Package rest keeps connections that have nothing to do without a goroutine, where the system allows it.
package rest

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// Rest holds the connections that rest, where the system can tell one goroutine for all of them which
// have something to read. That goroutine answers pings itself, and gives a connection with anything else
// to read, or that ends, to a goroutine of its own.
//
// One goroutine at a time owns a connection. Under mu the ownership of a resting connection goes to the
// goroutine for all, for a visit, or for good to the goroutine that wakes the connection.
type Rest struct {
	spawn  func(func()) // begins a goroutine
	once   sync.Once
	polls  atomic.Bool // poller is set
	poller Poller

	mu     sync.Mutex
	slots  []Sleeper // nil: free
	free   []uint32
	closed bool
}

// Sleeper is a connection that can rest.
type Sleeper interface {
	// Place is where it rests.
	Place() *Place
	// Raw is its socket; nil: it is not plain TCP, and cannot rest.
	Raw() syscall.RawConn
	// IsOpen reports whether it has not begun to end.
	IsOpen() bool
	// Visit reads what has come and answers it, unless that takes a goroutine: then it returns what it read
	// last, in buf. last: the connection's end is among what has come.
	Visit(p Poller, last bool, buf []byte) (n int, err error)
	// Rise gives it a goroutine of its own, with what was read last, or with the reason why nothing can be.
	Rise(read []byte, err error)
}

// Place is where a Sleeper rests. It is under the lock of Rest.
type Place struct {
	rests bool   // without a goroutine, and no visit is under way
	slot  uint32 // while it rests or is visited
}

// visitBytes is the room that a visit has: for a ping, and to see that there is more.
const visitBytes = 64

// Poller tells which connections have something to read.
type Poller interface {
	// Takes reports whether Add can take the connection.
	Takes(Sleeper) bool
	// Add lets Wait return slot when bytes or the end of the connection have come, and again with
	// each further arrival. What is there already counts as an arrival.
	Add(c Sleeper, slot uint32) error
	// Remove takes the connection off the list, unless its end has done so.
	Remove(Sleeper)
	// Wait waits for arrivals. It may also return slots whose connection is another one now.
	Wait(buf []Arrival) (n int, err error)
	// Read reads what is there; without error it returns 0 if nothing is. Only the goroutine that waits
	// reads.
	Read(c Sleeper, b []byte) (n int, err error)
	// Close ends Wait.
	Close()
}

// Arrival says that there may be something to read.
type Arrival struct {
	Slot uint32
	Last bool // the connection's end is among it: no further arrival follows
}

// Start makes it ready; spawn begins its goroutine.
func (r *Rest) Start(spawn func(func())) { r.spawn = spawn }

// Len returns how many connections rest or are visited.
func (r *Rest) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.slots) - len(r.free)
}

// Use begins to wait for arrivals at p, which is nil if the system has nothing of the kind. Without a call it
// does so at the system's own with the first connection.
func (r *Rest) Use(p Poller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && p != nil {
		p.Close()
	} else if p != nil {
		r.poller = p
		r.spawn(r.run)
		r.polls.Store(true)
	}
}

// Stop ends the goroutine for all. Connections that rest are woken by their ends.
func (r *Rest) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.poller != nil {
		r.poller.Close()
	}
}

// Takes reports whether the connection can rest.
func (r *Rest) Takes(c Sleeper) bool {
	if c.Raw() != nil {
		r.once.Do(func() { r.Use(newPoller()) })
	}
	return r.polls.Load() && r.poller.Takes(c)
}

// Park lets c rest. If it reports true the caller owns c no longer.
func (r *Rest) Park(c Sleeper) bool {
	slot, ok := r.enter(c)
	if !ok {
		return false
	}
	// A goroutine that ends the connection first says so in the outbox and then calls Wake: either
	// IsOpen sees it, or Wake finds the connection here.
	if r.poller.Add(c, slot) == nil && c.IsOpen() || !r.take(c) {
		return true
	}
	r.poller.Remove(c)
	return false
}

// enter gives c a slot.
func (r *Rest) enter(c Sleeper) (slot uint32, ok bool) {
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
	*c.Place() = Place{slot: slot, rests: true}
	return slot, true
}

// begin begins a visit to the connection in a slot, if there is one.
func (r *Rest) begin(slot uint32) Sleeper {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(slot) >= len(r.slots) || r.slots[slot] == nil {
		return nil
	}
	c := r.slots[slot]
	c.Place().rests = false
	return c
}

// take makes the caller the owner of a resting connection, which rests no longer. It reports false if
// the connection has an owner.
func (r *Rest) take(c Sleeper) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.Place().rests {
		return false
	}
	r.leave(c)
	return true
}

// fewSlots is how many slots stay while no connection rests.
const fewSlots = 16 << 10

// leave frees c's slot. r.mu is locked.
func (r *Rest) leave(c Sleeper) {
	r.slots[c.Place().slot] = nil
	r.free = append(r.free, c.Place().slot)
	c.Place().rests = false
	if len(r.free) == len(r.slots) && len(r.slots) > fewSlots {
		r.slots, r.free = nil, nil
	}
}

// Wake wakes c, which ends, if it rests.
func (r *Rest) Wake(c Sleeper) {
	if r.take(c) {
		r.rise(c, nil, net.ErrClosed)
	}
}

// rise gives c, which has left its slot, a goroutine.
func (r *Rest) rise(c Sleeper, read []byte, err error) {
	r.poller.Remove(c)
	c.Rise(read, err)
}

// run is the goroutine for all.
func (r *Rest) run() {
	arrivals := make([]Arrival, 128)
	var buf [visitBytes]byte
	for {
		n, err := r.poller.Wait(arrivals)
		if err != nil {
			return
		}
		for _, a := range arrivals[:n] {
			if c := r.begin(a.Slot); c != nil {
				n, err := c.Visit(r.poller, a.Last, buf[:])
				r.release(c, buf[:n], err)
			}
		}
	}
}

// release ends a visit in which read was read last. c rests again, unless there is more to do than to
// answer pings: then it wakes.
func (r *Rest) release(c Sleeper, read []byte, err error) {
	wakes := len(read) > 0 || err != nil
	r.mu.Lock()
	if c.Place().rests = !wakes; wakes {
		r.leave(c)
	}
	r.mu.Unlock()
	if wakes {
		r.rise(c, read, err)
	} else if !c.IsOpen() { // it ended during the visit
		r.Wake(c)
	}
}
