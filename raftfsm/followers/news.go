package followers

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

// News tells followers of a commit at once. Raft itself does so with the next entry, or after a quarter of a
// second. In a quiet cluster a write's reply at a follower, and the hand-off of a lock between servers, would
// take that long. A nudge is an empty AppendEntries, which says that an entry is committed. Only the leader
// of the entry's own term sends a nudge. A follower in a newer term rejects it.
//
// A nudge is sent only after its follower has stored the entry, because the other servers may have committed
// the entry before it arrived at the follower.
//
// A nudge costs as much as the entry. So only servers at which a client may wait get a nudge at once: those
// that own sessions, those whose requests were in the entry, and, after the leader's own acts, all servers.
// The other servers get one nudge for all entries of the last nudgeRest.
type News struct {
	o Leader

	all   bool            // all servers get the next nudge; only the batcher uses `all` and `asked`
	asked map[uint32]bool // servers whose requests were proposed since the last nudge

	mu        sync.Mutex
	followers map[raft.ServerID]*nudged
	told      uint64 // log index that the last nudge announced
	late      bool   // whether tellRest must still tell the servers that Tell left out
	closed    bool
}

// If no client waits at a follower, the follower hears of a commit at most nudgeRest later.
const nudgeRest = 50 * time.Millisecond

// nudged is one follower; at most one message to it is under way.
type nudged struct {
	addr raft.ServerAddress
	told uint64              // log index that the server's last nudge announced
	ch   chan state.Position // has length 1: a newer position replaces one that waits
}

// Leader is what News needs of the leader of one term.
type Leader struct {
	ID     uint32
	Term   uint64 // raft's number of this term
	Leads  func() bool
	Raft   *consensus.Raft
	State  *apply.FSM
	Stored *Stored
	Go     func(func()) // starts a goroutine
	Log    *slog.Logger
}

// NewNews returns the News of a term that begins. Its first nudge goes to all followers.
func NewNews(o Leader) *News {
	return &News{o: o, asked: map[uint32]bool{}, all: true, followers: map[raft.ServerID]*nudged{}}
}

// All() notes that every follower must be told at once of the next commit. Only the batcher calls All(),
// Asked(), Tell() and TellBefore().
func (g *News) All() { g.all = true }

// Asked() notes that the entry to be proposed contains a request of a server.
func (g *News) Asked(server uint32) { g.asked[server] = true }

// Follow sets the followers: those of the newest configuration, at their newest addresses.
func (g *News) Follow(servers []raft.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	want := map[raft.ServerID]raft.ServerAddress{}
	for _, s := range servers {
		if peer.ParseID(s.ID) != g.o.ID {
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
			g.o.Go(func() { g.run(id, f) })
		}
	}
}

// applied() returns the log position that this server has applied. ok is false if this term must not announce
// that position.
func (g *News) applied() (at state.Position, ok bool) {
	// Read the index first, so that the term is at least as new. Only the leader of an entry's own term
	// announces the entry.
	at = state.Position{Index: g.o.State.Index(), Term: g.o.State.Term()}
	return at, at.Term == g.o.Term && g.o.Leads()
}

// Tell announces the last commit. It is called when nothing is left to propose, because then no later entry
// carries the news.
func (g *News) Tell() {
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
	g.o.State.View(func(s *state.State) {
		for id, f := range g.followers {
			if g.waits(peer.ParseID(id), s.Sessions()) {
				f.tell(at)
			} else if !g.late {
				g.late = true
				time.AfterFunc(nudgeRest, g.tellRest)
			}
		}
	})
	g.all = false
	clear(g.asked)
}

// TellBefore announces the last commit while the next entry is being filled. It does not change the field
// `asked`, because the servers in it have requests in that next entry.
func (g *News) TellBefore() {
	asked := maps.Clone(g.asked)
	g.Tell()
	g.asked = asked
}

// tellRest tells the last commit to the followers that Tell left out.
func (g *News) tellRest() {
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

// tell() queues a nudge for a follower that has not been told yet. The caller holds the lock of News.
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

// waits() reports whether a client at a server may wait for the last commit.
func (g *News) waits(server uint32, sessions *session.Table) bool {
	return g.all || g.asked[server] || sessions.OwnedBy(server) > 0
}

func (g *News) run(id raft.ServerID, f *nudged) {
	log := g.o.Stored.of(peer.ParseID(id))
	defer log.grown.Send() // the News of the next term may already wait for this signal
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

// nudge() sends one nudge. It ignores the answer: raft's own replicator keeps track of the follower.
func (g *News) nudge(id raft.ServerID, addr raft.ServerAddress, at state.Position) {
	header := g.o.Raft.Header()
	args := &raft.AppendEntriesRequest{RPCHeader: header, Term: at.Term,
		Leader:       header.Addr, //nolint:staticcheck // what raft 1.7 itself still sends
		PrevLogEntry: at.Index, PrevLogTerm: at.Term, LeaderCommitIndex: at.Index}
	var resp raft.AppendEntriesResponse
	if err := g.o.Raft.Trans.AppendEntries(id, addr, args, &resp); err != nil {
		g.o.Log.Debug("nudge failed", "peer", id, "err", err)
	}
}

// Close ends the News. It does not wait for nudges under way: a nudge to a server that hangs takes seconds to
// fail, and this server may lead again sooner.
func (g *News) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for id, f := range g.followers {
		close(f.ch)
		delete(g.followers, id)
	}
}
