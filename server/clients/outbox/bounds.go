package outbox

import (
	"time"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
)

// holdStep rounds the size that an outbox reports to Memory, so that it need not report each short event.
const holdStep = 16 << 10

// Grown calls Hold after frames were appended, if the outbox is now large.
func (o *Outbox) Grown(others bool) {
	if o.Size() > FlushSize {
		o.Hold(others)
	}
}

// Hold reports the size of the outbox to Memory, after the outbox grew or shrank. `others` says that it grew
// by frames that its own goroutine did not ask for: events, outcomes or parked reads. If there is no memory
// for these, Hold closes the connection if its outbox is already large. The caller has locked the outbox.
func (o *Outbox) Hold(others bool) {
	n := o.Size() + o.writing + o.reserved - o.lent
	if n <= FlushSize {
		n = min(o.lent, 1) // small: report nothing, or one byte if it points into shared buffers
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

// Accepts reports whether a frame may be appended. If the client does not read its frames, it loses the
// connection, and never single frames. A full outbox has stuckTime to shrink, so that even a very large
// number of events at once does not end the connection of a client that reads. The caller has locked the
// outbox.
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

// Reserve waits until Memory grants `size` bytes for a reply. If `now` is true, it also allocates them.
func (o *Outbox) Reserve(size int, now bool) bool {
	o.Flush()
	o.Lock()
	n := o.Size() + o.writing + size
	o.Unlock()
	if !o.s.Memory.Wait(o.owner, budget.Output, n) {
		return false
	}
	// Allocate without the state lock and the outbox's lock: the allocation, with the first write to its pages,
	// takes longer than the reply, and the locks would delay events.
	var room []byte
	if now {
		room = longBuffer(size + KeepSize)
	}
	o.Lock()
	defer o.Unlock()
	if o.state != open {
		return false // the end of the connection gives the granted memory back
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

// Replied is called when a reply for which memory was reserved is in the outbox. It ends the reservation and
// reports the outbox's present size instead.
func (o *Outbox) Replied(others bool) {
	o.reserved = 0
	o.Hold(others)
}
