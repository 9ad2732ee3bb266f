package raftfsm

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// nudger tells followers of a commit at once. raft itself does so with the
// next entry, or some 50 to 100 ms later; a write's reply at a follower, and
// the hand-off of a lock between servers, would take that long in a quiet
// cluster. A nudge is an empty AppendEntries that repeats what the leader of
// the entry's own term truthfully said: this entry, of this term, is
// committed. A follower in a newer term rejects it.
type nudger struct {
	t *term

	mu        sync.Mutex
	followers map[raft.ServerID]*nudged
	told      uint64 // index of the last nudge
	closed    bool
	wg        sync.WaitGroup
}

// nudged is one follower; at most one message to it is under way.
type nudged struct {
	addr raft.ServerAddress
	ch   chan position // of length 1: a newer position replaces a waiting one
}

func newNudger(t *term) *nudger {
	return &nudger{t: t, followers: map[raft.ServerID]*nudged{}}
}

func (g *nudger) setFollowers(servers []raft.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	want := map[raft.ServerID]raft.ServerAddress{}
	for _, s := range servers {
		if parseID(s.ID) != g.t.n.id {
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
			f := &nudged{addr, make(chan position, 1)}
			g.followers[id] = f
			g.wg.Go(func() { g.run(id, f) })
		}
	}
}

// settle is called when nothing is left to propose: no entry will carry the
// news of the last commit.
func (g *nudger) settle() {
	at := position{g.t.n.fsm.index.Load(), g.t.n.fsm.term.Load()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.index <= g.told {
		return
	}
	g.told = at.index
	for _, f := range g.followers {
		select {
		case <-f.ch:
		default:
		}
		f.ch <- at
	}
}

func (g *nudger) run(id raft.ServerID, f *nudged) {
	for at := range f.ch {
		for wait := nudgeAgain; !g.nudge(id, f.addr, at) && wait <= nudgeLongest; wait *= 2 {
			select {
			case <-g.t.ctx.Done():
			case <-time.After(wait):
			}
			select {
			case newer, open := <-f.ch:
				if !open {
					return
				}
				at, wait = newer, nudgeAgain
			default:
			}
		}
	}
}

// A nudge can overtake the entry it speaks of: the entry was committed by the
// others, and is still on its way to this follower. It is then told again,
// unless raft has told it by then.
const (
	nudgeAgain   = 500 * time.Microsecond
	nudgeLongest = 32 * time.Millisecond
	nudgeNear    = 8 // entries: a follower further behind has other things to catch up with
)

// nudge tells one follower, and reports whether there is nothing to repeat.
func (g *nudger) nudge(id raft.ServerID, addr raft.ServerAddress, at position) bool {
	n := g.t.n
	header := n.rpcHeader()
	args := &raft.AppendEntriesRequest{RPCHeader: header, Term: at.term, Leader: header.Addr,
		PrevLogEntry: at.index, PrevLogTerm: at.term, LeaderCommitIndex: at.index}
	var resp raft.AppendEntriesResponse
	if err := n.trans.AppendEntries(id, addr, args, &resp); err != nil {
		// An error is the replicator's business; this was a courtesy.
		n.log.Debug("nudge failed", "peer", id, "err", err)
		return true
	}
	return resp.Success || resp.Term > at.term || resp.LastLog+nudgeNear < at.index
}

func (g *nudger) close() {
	g.mu.Lock()
	g.closed = true
	for id, f := range g.followers {
		close(f.ch)
		delete(g.followers, id)
	}
	g.mu.Unlock()
	g.wg.Wait()
}
