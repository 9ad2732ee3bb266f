package stream

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// lanes holds the requests of a stream that have no number yet, one lane for each session. Lanes take turns
// by bytes, so a session that sends many or large requests delays only itself. The first request of a session
// that has sent nothing for a while goes before the others. (Networks use the same scheme for fair queues:
// deficit round robin with a list of newcomers.)
//
// The lanes are not safe for several goroutines; the stream's lock guards them.
type lanes struct {
	by    map[int64]*lane
	fresh []*lane // newcomers, served first
	old   []*lane // the other lanes, in turn; some may be empty
	count int     // number of requests in all lanes
	bytes int     // total length of the encodings of all requests in the lanes
	spare *lane   // an empty lane, kept for the next newcomer
}

// laneShare is how many bytes of requests a lane may give in one turn. A larger request waits for several
// turns.
const laneShare = 8 << 10

// lane holds the waiting requests of one session, in order.
type lane struct {
	session int64
	credit  int // how many bytes the lane may give now
	queue   []pending
	head    int
	buf     []byte // encodings of the lane's requests; queue[head] begins at buf[bufHead]
	bufHead int
}

// waits() reports whether requests of the session wait in the lanes.
func (ls *lanes) waits(session int64) bool {
	l := ls.by[session]
	return l != nil && l.head < len(l.queue)
}

// add() puts a request, and a copy of its encoding, at the end of its session's lane.
func (ls *lanes) add(session int64, p pending, request []byte) {
	l := ls.by[session]
	if l == nil {
		if l = ls.spare; l == nil {
			l = new(lane)
		}
		ls.spare = nil
		l.session, l.credit = session, laneShare
		if ls.by == nil {
			ls.by = map[int64]*lane{}
		}
		ls.by[session] = l
		ls.fresh = append(ls.fresh, l)
	}
	l.compact()
	l.queue = append(l.queue, p)
	l.buf = append(l.buf, request...)
	ls.count++
	ls.bytes += p.size
}

// next() takes the request whose turn it is. There must be one. The encoding that it returns is valid until
// another request is added.
func (ls *lanes) next() (pending, []byte) {
	for {
		list := &ls.fresh
		if len(*list) == 0 {
			list = &ls.old
		}
		l := (*list)[0]
		switch {
		case l.head == len(l.queue):
			// A session that sends one request at a time must not remain a newcomer forever. So its lane goes
			// through the list `old` before it is dropped.
			(*list)[0], *list = nil, (*list)[1:]
			if list == &ls.fresh && len(ls.old) > 0 {
				ls.old = append(ls.old, l)
			} else {
				ls.forget(l)
			}
			continue
		case l.credit < l.queue[l.head].size:
			l.credit += laneShare
			(*list)[0], *list = nil, (*list)[1:]
			ls.old = append(ls.old, l)
			continue
		}
		p := l.queue[l.head]
		l.queue[l.head] = pending{}
		request := l.buf[l.bufHead : l.bufHead+p.size]
		l.head++
		l.bufHead += p.size
		l.credit -= p.size
		ls.count--
		ls.bytes -= p.size
		return p, request
	}
}

// compact() frees the room of the requests already taken, once they fill half of the lane. It runs before a
// request is added, because the encoding that next() returned is valid only until then.
func (l *lane) compact() {
	if l.head*2 < len(l.queue) {
		return
	}
	l.queue = l.queue[:copy(l.queue, l.queue[l.head:])]
	l.buf = l.buf[:copy(l.buf, l.buf[l.bufHead:])]
	l.head, l.bufHead = 0, 0
}

// forget() drops an empty lane.
func (ls *lanes) forget(l *lane) {
	delete(ls.by, l.session)
	if cap(l.buf) <= 64<<10 {
		*l = lane{queue: l.queue[:0], buf: l.buf[:0]}
		ls.spare = l
	}
}

// pending is one unapplied request.
type pending struct {
	waiter state.Waiter
	size   int       // length of the request's encoding in buf
	ids    []jute.ID // shared by all requests of a connection, because they may be longer than the request
}
