package outbox

import (
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/observe"
)

// Pending is a request that has no answer yet. Either it was proposed, or it is a read that is parked after a
// proposed request.
type Pending struct {
	Xid    int32
	Op     jute.OpCode
	At     time.Duration // when the request's last byte arrived
	Est    int64         // steps that the client's address was charged for the outcome
	Long   bool          // a write that may make the answers to parked reads long
	Parked []byte        // the frame of a parked read; nil: the request was proposed

	Followed *observe.Request // nil: no log records the request
	First    *FirstSize       // a write whose size is counted if it succeeds; nil: its size is counted already
}

// FirstSize is the size of a write below a name that has no figures of its own yet.
type FirstSize struct {
	Name  string // a short copy: nothing of the request is kept with it
	Bytes int64
}

// requests holds the requests that wait for their outcomes, in order: pend[pendHead:].
type requests struct {
	pend     []Pending
	pendHead int
	long     int // how many of the requests are long
}

// LongPending returns how many of the pending requests may change the length of answers to parked reads.
func (o *Outbox) LongPending() int { return o.long }

// Pending returns how many requests wait for their outcome.
func (r *requests) Pending() int { return len(r.pend) - r.pendHead }

func (r *requests) Push(p Pending) {
	r.pend = append(r.pend, p)
	if p.Long {
		r.long++
	}
}

// Front returns the oldest pending request.
func (r *requests) Front() Pending { return r.pend[r.pendHead] }

// Pop removes the oldest pending request.
func (r *requests) Pop() {
	if r.pend[r.pendHead].Long {
		r.long--
	}
	r.pend[r.pendHead] = Pending{} // the slot may be used late: keep nothing of the request alive
	r.pendHead++
	switch {
	case r.pendHead == len(r.pend):
		r.pend, r.pendHead = r.pend[:0], 0
	case r.pendHead >= 64 && r.pendHead >= len(r.pend)/2:
		n := copy(r.pend, r.pend[r.pendHead:])
		clear(r.pend[n:])
		r.pend, r.pendHead = r.pend[:n], 0
	}
}
