package leading

import (
	"sync"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

const (
	actsInEntry = 100  // most acts in an entry, because the state is locked while an entry is applied
	endsInEntry = 1000 // most sessions that one entry ends; each of their nodes counts, too
	endBytes    = 64   // length of the longest encoded end of a session
)

// actQueue holds the requests that the leader itself makes. The queue ends with the term, so no request in it
// is proposed twice.
//
// There may be many ends of sessions and removals of nodes at once. They have queues of their own, so that
// the other acts, such as publishing the members, go first.
type actQueue struct {
	mu    sync.Mutex
	list  [][]byte // requests, encoded
	ends  []int64  // ids of the sessions that must end
	due   map[int64]ending
	reaps [][]byte // requests, encoded
	size  int      // total bytes of the requests in `reaps`
	open  []byte   // blocks with requests to open a stream; they belong to no stream yet
}

// ending is a request to end a session, while it waits to be proposed. It is proposed once, even if the
// session is found overdue several times before that.
type ending struct {
	gen  uint32
	cost int // the cost of applying the end: 1 plus the number of the session's nodes
}

func (q *actQueue) add(r state.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	act := r.Append(nil)
	if r.Op == state.OpReap {
		q.reaps, q.size = append(q.reaps, act), q.size+len(act)
	} else {
		q.list = append(q.list, act)
	}
}

// end() queues the end of a session.
func (q *actQueue) end(session int64, e ending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.due == nil {
		q.due = map[int64]ending{}
	}
	if _, waits := q.due[session]; !waits {
		q.ends = append(q.ends, session)
	}
	q.due[session] = e
}

// reaping() returns how many bytes of removals wait to be proposed.
func (q *actQueue) reaping() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// addOpen queues a server's request to open its stream.
func (q *actQueue) addOpen(bl entries.Block) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = bl.Append(q.open)
}

// take() moves queued acts into an entry: all requests to open a stream, up to actsInEntry acts, and ends of
// sessions up to a cost of endsInEntry. Acts fill at most half of the entry. `more` reports whether acts are
// left.
func (q *actQueue) take(entry []byte) (_ []byte, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry = append(entry, q.open...)
	q.open = nil
	own := entries.Block{}
	fits := func(size int) bool {
		return own.Count == 0 || len(own.Requests)+size <= entries.BatchBytes/2
	}
	acts := func(list [][]byte) (rest [][]byte) {
		for len(list) > 0 && own.Count < actsInEntry && fits(len(list[0])) {
			own.Requests, own.Count = append(own.Requests, list[0]...), own.Count+1
			list = list[1:]
		}
		return list
	}
	q.list = acts(q.list)
	cost := 0
	for len(q.ends) > 0 {
		session := q.ends[0]
		e := q.due[session]
		if cost > 0 && cost+e.cost > endsInEntry || !fits(endBytes) {
			break
		}
		r := state.End(session, e.gen, state.EndExpired)
		own.Requests, own.Count = r.Append(own.Requests), own.Count+1
		cost += e.cost
		q.ends = q.ends[1:]
		delete(q.due, session)
	}
	was := len(own.Requests)
	q.reaps = acts(q.reaps)
	q.size -= len(own.Requests) - was
	if own.Count > 0 {
		entry = own.Append(entry)
	}
	return entry, len(q.list)+len(q.ends)+len(q.reaps) > 0
}

// waits() reports whether acts wait to be proposed.
func (q *actQueue) waits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list) > 0
}
