package raftfsm

import (
	"maps"
	"runtime/trace"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// handoff lets the create of a client that queues for a lock wait for the delete of the next owner.
//
// A client that releases a lock and queues again sends its create before the next owner, which first
// has to hear of the release, sends its delete. If the create left at once, the delete would wait for
// the create's entry and then for its own. So after an entry that has passed something on, creates of
// ephemeral nodes wait for a request of another kind, but no longer than an entry takes. A delete never
// waits. No order changes: an entry leaves later, with more requests.
//
// What looks like a hand-off may not be one, or the next owner keeps the lock for long. After two waits in
// vain the leader does not wait for the next 8 hand-offs, then 16, 32, and so on.
//
// A handoff belongs to the goroutine that proposes entries.
type handoff struct {
	t     *term
	began time.Time     // when the last entry was given to raft
	took  time.Duration // by entries, lately
	due   bool          // the last entry has passed something on
	vain  int           // waits in vain, one after the other
	rests int           // hand-offs that were left out after the last of them
	rest  int           // hand-offs yet to be left out
}

const (
	handoffWait    = 5 * time.Millisecond // at most
	handoffCreates = 4                    // that wait; more are of many clients, whose next requests are near
	handoffRests   = 256                  // at most
)

func (h *handoff) proposed() { h.began = time.Now() }

// applied is called when the entry proposed last is applied.
func (h *handoff) applied() {
	took := time.Since(h.began)
	if h.took == 0 {
		h.took = took
	}
	h.took += (took - h.took) / 8
	h.due = h.t.n.fsm.passedOn.Swap(false)
}

// join returns the entry with what came while its creates waited.
func (h *handoff) join(entry []byte) []byte {
	if !h.due {
		return entry
	}
	h.due = false
	if !h.creates(entry) {
		return entry
	}
	if h.rest > 0 {
		h.rest--
		return entry
	}
	if trace.IsEnabled() {
		signal.Step("entry", "%d creates wait for the next owner of a lock", h.t.requests)
	}
	// The next owner may be a client of another server. The nudge is about the entry before this one.
	asked := maps.Clone(h.t.nudger.asked)
	h.t.nudger.tell()
	h.t.nudger.asked = asked
	late := time.NewTimer(min(h.took, handoffWait))
	defer late.Stop()
	for h.creates(entry) {
		select {
		case <-h.t.ctx.Done():
			return entry
		case <-h.t.reader:
		case <-h.t.work:
		case <-late.C:
			if h.vain++; h.vain > 1 {
				h.rests = min(max(8, 2*h.rests), handoffRests)
				h.rest = h.rests
			}
			return entry
		}
		entry = h.t.fill(entry)
	}
	h.vain, h.rests = 0, 0
	return entry
}

// creates reports whether an entry holds a few creates of ephemeral nodes and nothing else.
func (h *handoff) creates(entry []byte) bool {
	return h.t.requests <= handoffCreates && state.OnlyEphemeralCreates(entry)
}
