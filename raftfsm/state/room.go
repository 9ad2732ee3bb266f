package state

import "github.com/zlockd/zlockd/jute"

// While a disk has little free space, the log must not grow by requests that Apply refuses anyway. So the
// server proposes a short Refusal in place of a long request. The Refusal keeps the place of the request in
// its session: the answer comes in order, and after every state that the client has seen.

// LongRequest is the longest request that enters the log while a disk has little free space. Apply itself
// decides whether a request up to that length is refused.
const LongRequest = 4 << 10

// Refusal is the request that answers r with THROTTLEDOP.
func Refusal(r *Request) Request {
	return Request{Session: r.Session, Gen: r.Gen, Op: OpRefuse}
}

// Long reports whether a client's request would make the log grow by more than a few bytes, and would free no
// room in the tree.
func Long(r *Request) bool {
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

// onlyDeletes reports whether a multi has only deletes and checks.
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
