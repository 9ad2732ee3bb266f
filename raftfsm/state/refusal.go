package state

import "github.com/zlockd/zlockd/jute"

// While a disk is low the log must not grow by requests that are refused anyway. The server that
// takes a long request from a client then proposes a Refusal in its place. The Refusal keeps the
// request's place among the session's, so that the answer is in order and at a state no older than
// any that a client has seen, and it needs no room.

// LongRequest is the longest request that enters the log on a low disk. Apply decides about
// shorter ones.
const LongRequest = 4 << 10

// Refusal is the request that answers r with THROTTLEDOP.
func (r *Request) Refusal() Request { return Request{Session: r.Session, Gen: r.Gen, Op: OpRefuse} }

// Long reports whether a client's request would make the log grow by more than
// a few bytes, and does not free any.
func (r *Request) Long() bool {
	if len(r.Body) <= LongRequest {
		return false
	}
	switch r.Op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpSetData, jute.OpSetACL,
		jute.OpSync:
		return true
	case jute.OpMulti:
		return !onlyDeletes(r.Body)
	}
	return false
}

// onlyDeletes reports whether a multi has deletes and checks alone.
func onlyDeletes(body []byte) bool {
	d := jute.NewDecoder(body)
	for h := d.MultiHeader(); !h.Done; h = d.MultiHeader() {
		if d.Err() != nil || h.Type != jute.OpDelete && h.Type != jute.OpCheck {
			return false
		}
		d.PathVersion()
	}
	return d.Err() == nil
}

// Low reports whether the leader that sealed an entry knew of a low disk. The entry must be
// checked.
func Low(entry []byte) bool { return entry[1]&LowDisk != 0 }

// applyRefusal changes nothing.
func (s *State) applyRefusal(r *Request) {
	if _, ok := s.attached(r); ok {
		s.out.Code = jute.Throttled
	}
}
