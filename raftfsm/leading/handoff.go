package leading

import (
	"runtime/trace"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

// handoff lets the create of a client that queues for a lock wait for the delete of the next owner.
//
// A client that releases a lock and queues again sends its create at once. The next owner must first hear of
// the release, so the next owner's delete arrives later. If the leader proposed the create at once, the
// delete would wait for the create's entry and then for its own. So after an entry that deleted a node with
// siblings, creates of ephemeral nodes wait for a request of another kind, but no longer than an entry takes.
// A delete never waits. The order of requests does not change: only the entry leaves later, with more
// requests.
//
// The leader may suspect a hand-off where there is none, or the next owner may keep the lock for long. After
// two waits in vain the leader does not wait at the next 8 hand-offs, then 16, 32, and so on.
//
// A handoff belongs to the goroutine that proposes entries.
type handoff struct {
	t     *Term
	began time.Time     // when the last entry was given to raft
	took  time.Duration // the recent average time of an entry
	due   bool          // whether the last entry may have passed a lock on
	vain  int           // how many waits in a row were in vain
	rests int           // how many hand-offs were to be skipped after the last wait in vain
	rest  int           // how many hand-offs are still to be skipped
}

const (
	handoffWait = 5 * time.Millisecond // the longest wait for a hand-off
	// the leader does not wait if an entry has more creates, because they come from many busy clients
	handoffCreates = 4
	handoffRests   = 256 // the leader skips at most this many hand-offs before it waits again
)

func (h *handoff) proposed() { h.began = time.Now() }

// applied() is called when the last proposed entry has been applied.
func (h *handoff) applied() {
	took := time.Since(h.began)
	if h.took == 0 {
		h.took = took
	}
	h.took += (took - h.took) / 8
	h.due = h.t.o.State.PassedOn()
}

// join() returns the entry, with the requests that arrived while its creates waited.
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
	// The next owner of the lock may be a client of another server, which must hear of the last commit.
	h.t.news.TellBefore()
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

// creates() reports whether an entry holds a few creates of ephemeral nodes and nothing else.
func (h *handoff) creates(entry []byte) bool {
	return h.t.requests <= handoffCreates && entries.OnlyEphemeralCreates(entry)
}
