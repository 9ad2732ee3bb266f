package raftfsm

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

// nudger tells followers of a commit at once. Raft itself does so with the next entry, or after a quarter of
// a second. In a quiet cluster a write's reply at a follower, and the hand-off of a lock between servers,
// would take that long. A nudge is an empty AppendEntries from the leader of the entry's own term, which says
// that the entry is committed. A follower in a newer term rejects it.
//
// A nudge waits until its follower has stored the entry: the other servers may have committed it before it
// arrived there.
//
// A nudge costs as much as the entry did. So only servers at which a client may wait get one at once: those
// that own sessions, those whose requests were in the entry, and, after the leader's own acts, all servers.
// The rest get one nudge after nudgeRest for all entries until then.
type nudger struct {
	t     *term
	leads func() bool

	all   bool            // must be told; this and asked are the batcher's own
	asked map[uint32]bool // servers whose requests were proposed since the last nudge

	mu        sync.Mutex
	followers map[raft.ServerID]*nudged
	told      uint64 // index of the last nudge
	late      bool   // tellRest is due
	closed    bool
}

// nudgeRest is how long a follower at which no client waits may go without news of a commit.
const nudgeRest = 50 * time.Millisecond

// nudged is one follower; at most one message to it is under way.
type nudged struct {
	addr raft.ServerAddress
	told uint64              // index of its last nudge
	ch   chan state.Position // of length 1: a newer position replaces a waiting one
}

func newNudger(t *term) *nudger {
	return &nudger{t: t, leads: func() bool { return t.n.raft.Leads() }, asked: map[uint32]bool{},
		all: true, followers: map[raft.ServerID]*nudged{}}
}

func (g *nudger) setFollowers(servers []raft.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	want := map[raft.ServerID]raft.ServerAddress{}
	for _, s := range servers {
		if peer.ParseID(s.ID) != g.t.n.id {
			want[s.ID] = s.Address
		}
	}
	for id, f := range g.followers {
		if want[id] != f.addr {
			close(f.ch)
			delete(g.followers, id)
		}
	}
	for id, addr := range want {
		if g.followers[id] == nil {
			f := &nudged{addr: addr, ch: make(chan state.Position, 1)}
			g.followers[id] = f
			g.t.n.wg.Go(func() { g.run(id, f) })
		}
	}
}

// applied returns the position that this server has applied; ok is false if this term must not announce it.
func (g *nudger) applied() (at state.Position, ok bool) {
	// The index is read first, so that the term is at least as new. Only the leader of an entry's own term
	// announces it.
	at = state.Position{Index: g.t.n.fsm.index.Load(), Term: g.t.n.fsm.term.Load()}
	return at, at.Term == g.t.number && g.leads()
}

// tell announces the last commit. It is called when nothing is left to propose, so that no entry will carry
// the news.
func (g *nudger) tell() {
	at, ok := g.applied()
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.Index <= g.told {
		return
	}
	g.told = at.Index
	g.t.n.fsm.mu.RLock()
	sessions := g.t.n.fsm.state.Sessions()
	for id, f := range g.followers {
		if g.waits(peer.ParseID(id), sessions) {
			f.tell(at)
		} else if !g.late {
			g.late = true
			time.AfterFunc(nudgeRest, g.tellRest)
		}
	}
	g.t.n.fsm.mu.RUnlock()
	g.all = false
	clear(g.asked)
}

// tellRest tells the followers that tell has left out.
func (g *nudger) tellRest() {
	at, ok := g.applied()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late = false
	if !ok || g.closed {
		return
	}
	for _, f := range g.followers {
		f.tell(at)
	}
}

// tell queues a nudge for a follower that has not been told yet. The caller holds the nudger's lock.
func (f *nudged) tell(at state.Position) {
	if at.Index <= f.told {
		return
	}
	f.told = at.Index
	select {
	case <-f.ch:
	default:
	}
	f.ch <- at
}

// waits reports whether a client at a server may wait for the last commit.
func (g *nudger) waits(server uint32, sessions *session.Table) bool {
	return g.all || g.asked[server] || sessions.OwnedBy(server) > 0
}

func (g *nudger) run(id raft.ServerID, f *nudged) {
	log := g.t.n.stored.of(peer.ParseID(id))
	defer log.grown.Send() // the next term's nudger may wait already
	for at := range f.ch {
		for !log.has(at) {
			select {
			case <-log.grown:
			case newer, open := <-f.ch:
				if !open {
					return
				}
				at = newer
			}
		}
		g.nudge(id, f.addr, at)
	}
}

// nudge sends one nudge. It ignores the answer: raft's own replicator keeps track of the follower.
func (g *nudger) nudge(id raft.ServerID, addr raft.ServerAddress, at state.Position) {
	n := g.t.n
	header := n.raft.Header()
	args := &raft.AppendEntriesRequest{RPCHeader: header, Term: at.Term,
		Leader:       header.Addr, //nolint:staticcheck // what raft 1.7 itself still sends
		PrevLogEntry: at.Index, PrevLogTerm: at.Term, LeaderCommitIndex: at.Index}
	var resp raft.AppendEntriesResponse
	if err := n.raft.Trans.AppendEntries(id, addr, args, &resp); err != nil {
		n.log.Debug("nudge failed", "peer", id, "err", err)
	}
}

// close ends the nudger. It does not wait for nudges that are under way: one to a server that hangs takes
// seconds to fail, and this server may lead again before that.
func (g *nudger) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for id, f := range g.followers {
		close(f.ch)
		delete(g.followers, id)
	}
}

// stored records, while this server leads, how far each other server's log is known to agree with its own.
// Raft knows it too, but does not export it.
type stored struct{ by sync.Map } // of *storedBy, by server id

// storedBy is how far one server's log is known to agree.
type storedBy struct {
	grown signal.Signal // sent when at changes; for one waiter

	mu sync.Mutex
	at state.Position // its term is the one of the leader that the log agreed with
}

func (s *stored) of(id uint32) *storedBy {
	by, known := s.by.Load(id)
	if !known {
		by, _ = s.by.LoadOrStore(id, &storedBy{grown: signal.New()})
	}
	return by.(*storedBy)
}

// note records an answer. It ignores late answers to an earlier leadership.
func (b *storedBy) note(at state.Position) {
	b.mu.Lock()
	if at.Term < b.at.Term || at.Term == b.at.Term && at.Index < b.at.Index {
		at = b.at
	}
	b.at = at
	b.mu.Unlock()
	b.grown.Send()
}

// has reports whether the server has told the leader of that term that it stores the entry.
func (b *storedBy) has(at state.Position) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at.Term == at.Term && b.at.Index >= at.Index
}
