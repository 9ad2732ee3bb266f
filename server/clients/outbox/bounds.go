package outbox

import (
	"time"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
)

// An outbox reports its size to Memory only in steps of holdStep bytes, because many events are short.
const holdStep = 16 << 10

// Grown calls Hold after frames were appended, if the outbox is now large.
func (o *Outbox) Grown(others bool) {
	if o.Size() > FlushSize {
		o.Hold(others)
	}
}

// Hold reports the size of the outbox to Memory, after the outbox grew or shrank. `others` says that the
// growth comes from other clients, outcomes or parked reads. In that case, if there is no more room, Hold
// closes an outbox that is already large. The caller has locked the outbox.
func (o *Outbox) Hold(others bool) {
	n := o.Size() + o.writing + o.reserved - o.lent
	if n <= FlushSize {
		n = min(o.lent, 1) // count an outbox with borrowed buffers at least as one byte
	}
	if n = (n + holdStep - 1) / holdStep * holdStep; n == o.held {
		return
	}
	if n > o.held && others && n > 4*FlushSize && !o.s.Memory.Try(o.owner, budget.Output, n, false) {
		o.Die(ends.Slow)
		return
	}
	o.s.Memory.Try(o.owner, budget.Output, n, true)
	o.held = n
}

// stuckTime is how long a client with a full outbox may read nothing.
const stuckTime = 2 * time.Second

// Accepts reports whether a frame may be appended. A client that does not read its frames loses the
// connection, never single frames. Even a client that gets very many bytes at once has stuckTime to read
// them. The caller has locked the outbox.
func (o *Outbox) Accepts() bool {
	if o.state != open {
		return false
	}
	if o.Size() < o.s.MaxBytes && o.frames < o.s.MaxFrames {
		return true
	}
	now := o.s.Now()
	if o.stuck == 0 {
		o.stuck = now
	}
	if now-o.stuck < stuckTime {
		return true
	}
	o.Die(ends.Slow)
	return false
}

// Reserve waits for permission to use memory for a reply. If `now` is true, it also allocates the memory.
func (o *Outbox) Reserve(size int, now bool) bool {
	o.Flush()
	o.Lock()
	n := o.Size() + o.writing + size
	o.Unlock()
	if !o.s.Memory.Wait(o.owner, budget.Output, n) {
		return false
	}
	// The allocation, and the first write to its pages, take longer than the reply. Do both without the state
	// lock and without the outbox's lock, because an event may wait for the outbox.
	var room []byte
	if now {
		room = longBuffer(size + KeepSize)
	}
	o.Lock()
	defer o.Unlock()
	if o.state != open {
		return false // the end of the connection returns the granted memory
	}
	if now {
		o.cut()
		o.buf = room
	}
	o.reserved = size
	o.held = n
	o.Hold(false)
	return true
}

// Replied gives back the memory that was reserved for a reply, and records the memory that the outbox now
// holds.
func (o *Outbox) Replied(others bool) {
	o.reserved = 0
	o.Hold(others)
}
