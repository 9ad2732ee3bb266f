package session

import "time"

const (
	resolution = 20 * time.Millisecond
	slots      = 2048 // one turn of the wheel is 41 s, the longest usual timeout

	// Due moves at most movedAtOnce sessions. At the start of a term all sessions may be in one slot, and a
	// million of them take half a second.
	movedAtOnce = 4096
)

// Expiry keeps the deadlines of a leader's sessions. All times are readings of one monotonic clock of the
// caller: the time since a fixed moment.
//
// It is a wheel of slots, each for 20 ms. A touch only records when the session was heard from. When the
// wheel reaches the session's slot, the session moves to a later slot. So a busy session costs one move per
// timeout, not one per request.
//
// An Expiry belongs to one goroutine.
type Expiry struct {
	byID map[int64]*deadline
	slot [slots]*deadline // each is a doubly linked list
	tick int64            // all slots before this tick are handled
}

// deadline is a session in the wheel.
type deadline struct {
	id         int64
	timeout    time.Duration
	heard      time.Duration
	at         int64 // tick of the session's slot; never later than due()
	prev, next *deadline
}

// due() returns the first tick at which the whole timeout is over.
func (d *deadline) due() int64 {
	end := d.heard + d.timeout
	return floorDiv(int64(end)+int64(resolution)-1, int64(resolution))
}

// NewExpiry returns an Expiry that knows no session.
func NewExpiry() *Expiry { return &Expiry{byID: make(map[int64]*deadline)} }

// Touch records that the session was heard from at the time `heard`, and may then be silent for the time
// `timeout`. It adds an unknown session. A late touch never shortens the time that the session already has,
// but a shorter timeout does.
func (e *Expiry) Touch(id int64, timeout, heard time.Duration) {
	timeout = max(timeout, 1) // so that the session's next tick is later than the present one
	d, known := e.byID[id]
	if !known {
		d = &deadline{id: id, timeout: timeout, heard: heard}
		e.byID[id] = d
		e.link(d)
		return
	}
	d.heard = max(d.heard, heard)
	d.timeout = timeout
	if d.due() < d.at {
		e.unlink(d)
		e.link(d)
	}
}

// Heard is like Touch with the session's present timeout. It ignores unknown sessions.
func (e *Expiry) Heard(id int64, heard time.Duration) {
	if d, known := e.byID[id]; known {
		d.heard = max(d.heard, heard)
	}
}

// Remove forgets a session.
func (e *Expiry) Remove(id int64) {
	if d, ok := e.byID[id]; ok {
		e.unlink(d)
		delete(e.byID, id)
	}
}

// Due appends to `out` the sessions whose deadline has passed, the longest overdue first, at most `max` of
// them. It gives each of them another timeout from now. The caller ends these sessions, and calls Remove when
// the end is certain. If the end of a session gets lost, Due returns the session again. If Due has very many
// sessions to move, it leaves some of them, and the sessions that are due among them, to the next call; Next
// then returns a time that has passed.
func (e *Expiry) Due(now time.Duration, max int, out []int64) []int64 {
	last := floorDiv(int64(now), int64(resolution))
	if e.tick <= last-slots {
		e.tick = last - slots + 1 // one turn of the wheel visits every slot, so Due need not go back further
	}
	moves := movedAtOnce
	for ; e.tick <= last; e.tick++ {
		for d := e.slot[e.tick&(slots-1)]; d != nil; {
			next := d.next
			if d.at <= last {
				if moves--; moves < 0 {
					return out
				}
				if d.due() <= last {
					if max <= 0 {
						return out
					}
					max--
					out = append(out, d.id)
					d.heard = now
				}
				e.unlink(d)
				e.insert(d) // inserts d into a slot after last
			}
			d = next
		}
	}
	return out
}

// Next returns a time that is at most `limit`. Before this time, Due returns no session and moves none.
func (e *Expiry) Next(limit time.Duration) time.Duration {
	last := floorDiv(int64(limit), int64(resolution))
	for tick := max(e.tick, last-slots+1); tick <= last; tick++ {
		for d := e.slot[tick&(slots-1)]; d != nil; d = d.next {
			if d.at <= tick {
				return min(time.Duration(tick)*resolution, limit)
			}
		}
	}
	return limit
}

// Len returns the number of sessions.
func (e *Expiry) Len() int { return len(e.byID) }

// Of returns when Due will return a session.
func (e *Expiry) Of(id int64) (at time.Duration, known bool) {
	d, known := e.byID[id]
	if !known {
		return 0, false
	}
	return time.Duration(d.due()) * resolution, true
}

// All calls f for every session, with its timeout and when Due will return it. f may call every other method,
// or wait until another goroutine has done so.
func (e *Expiry) All(f func(id int64, timeout, at time.Duration)) {
	for id, d := range e.byID {
		f(id, d.timeout, time.Duration(d.due())*resolution)
	}
}

// link() puts d into the wheel. If the touch was late, the wheel may already have passed d's slot; then link
// turns the wheel back.
func (e *Expiry) link(d *deadline) {
	e.insert(d)
	if d.at < e.tick || len(e.byID) == 1 {
		e.tick = d.at
	}
}

func (e *Expiry) insert(d *deadline) {
	d.at = d.due()
	head := &e.slot[d.at&(slots-1)]
	d.prev, d.next = nil, *head
	if d.next != nil {
		d.next.prev = d
	}
	*head = d
}

func (e *Expiry) unlink(d *deadline) {
	if d.next != nil {
		d.next.prev = d.prev
	}
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		e.slot[d.at&(slots-1)] = d.next
	}
	d.prev, d.next = nil, nil
}

// floorDiv divides and rounds down, also below zero, because a session may have been heard from before the
// clock started.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
