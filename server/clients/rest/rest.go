// Package rest keeps idle connections without a goroutine, if the system allows it.
package rest

import (
	"net"
	"sync"
	"sync/atomic"
)

// Rest holds the connections that rest. The operating system reports to a single goroutine which of them have
// something to read. That goroutine visits each of these and answers pings itself. If anything else has
// arrived, or the connection ends, the connection gets a goroutine of its own.
//
// A connection has at most one owner, a goroutine, and while it rests it has none. Ownership changes under
// mu: the single goroutine becomes the owner during a visit, and any goroutine that wakes the connection
// becomes its owner.
type Rest struct {
	spawn  func(func()) // begins a goroutine
	once   sync.Once
	polls  atomic.Bool // true: `poller` is set
	poller Poller

	mu     sync.Mutex
	slots  []Sleeper // nil: the slot is free
	free   []uint32
	closed bool
}

// visitBytes is the size of the buffer for a visit: enough for a ping and some bytes after it.
const visitBytes = 64

// Start makes the Rest ready; spawn() starts its goroutines.
func (r *Rest) Start(spawn func(func())) { r.spawn = spawn }

// Len returns how many connections rest or are visited.
func (r *Rest) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.slots) - len(r.free)
}

// Use sets the poller and starts to wait for arrivals. The poller is nil if the system has none. If Use was
// not called before the first connection arrives, Rest uses the system's poller.
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

// Stop ends the single goroutine. Resting connections wake when they are closed.
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

// Park makes c rest. If it returns true, the caller no longer owns c.
func (r *Rest) Park(c Sleeper) bool {
	slot, ok := r.enter(c)
	if !ok {
		return false
	}
	// The connection may end just now. The goroutine that ends it first marks the outbox and then calls Wake: so
	// either IsOpen is false here, or Wake finds c in its slot.
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

// begin begins a visit to the connection in a slot. If the slot has no connection to visit, it returns nil.
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

// take ends the rest of c and makes the caller its owner. It returns false if c does not rest or already has
// an owner.
func (r *Rest) take(c Sleeper) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.Place().rests {
		return false
	}
	r.leave(c)
	return true
}

// fewSlots is how many slots Rest keeps while no connection rests.
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

// Wake wakes c if it rests. The caller has marked c as ending.
func (r *Rest) Wake(c Sleeper) {
	if r.take(c) {
		r.rise(c, nil, net.ErrClosed)
	}
}

// rise starts a goroutine for c, which has left its slot.
func (r *Rest) rise(c Sleeper, read []byte, err error) {
	r.poller.Remove(c)
	c.Rise(read, err)
}

// run is the code of the single goroutine.
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

// release ends a visit, which has read `read` last. If that is nothing but answered pings, c rests again.
// Otherwise c gets a goroutine, which handles these bytes.
func (r *Rest) release(c Sleeper, read []byte, err error) {
	wakes := len(read) > 0 || err != nil
	r.mu.Lock()
	if c.Place().rests = !wakes; wakes {
		r.leave(c)
	}
	r.mu.Unlock()
	if wakes {
		r.rise(c, read, err)
	} else if !c.IsOpen() { // Wake may have come during the visit, when c did not rest: wake c now
		r.Wake(c)
	}
}
