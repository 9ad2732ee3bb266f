package apply

import (
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// Index returns the index of the last log entry applied.
func (f *FSM) Index() uint64 { return f.index.Load() }

// Term returns the term of the last log entry applied. A caller that needs the index and the term calls
// Index first. Then the term is at least as new as the index.
func (f *FSM) Term() uint64 { return f.term.Load() }

// Zxid returns the zxid of the last change applied.
func (f *FSM) Zxid() int64 { return f.zxid.Load() }

// Published reports whether the state contains the list of members.
func (f *FSM) Published() bool { return f.config.Load() }

// HasTickets reports whether there may be tickets in the cluster.
func (f *FSM) HasTickets() (has bool) {
	f.View(func(s *state.State) { has = s.HasTickets() })
	return has
}

// Low reports whether a disk had little free space when the leader sealed the newest entry.
func (f *FSM) Low() bool { return f.low.Load() }

// Full reports whether the leader refused requests that need more room when it sealed the newest entry.
func (f *FSM) Full() bool { return f.full.Load() }

// Counted returns how many requests and bytes the log has gained since the last snapshot.
func (f *FSM) Counted() (requests, bytes int64) {
	return f.counted.requests.Load(), f.counted.bytes.Load()
}

// View calls do() with the state, under the read lock. do() must not block, and keeps nothing of the state.
func (f *FSM) View(do func(*state.State)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	do(f.state)
}

// Ephemerals calls fn() for the ephemeral nodes until fn() returns false. It reads the nodes in pieces: a
// node that is created or deleted during the call may be listed or not, and a node may be listed twice.
func (f *FSM) Ephemerals(fn func(session int64, path string) (more bool)) {
	const most = 256 // the number of nodes read under one hold of the lock; fewer if paths are long
	type met struct {
		session int64
		end     int // the offset in `paths` at which the path ends
	}
	piece, paths := make([]met, 0, most), make([]byte, 0, 8*most+bounds.MaxPath)
	var walk tree.EphemeralWalk
	for more := true; more; {
		piece, paths = piece[:0], paths[:0]
		f.View(func(s *state.State) {
			more = s.Tree().NextEphemerals(&walk, most, func(r tree.Ref) (cost int) {
				begin := len(paths)
				paths = r.PathOnto(paths)
				piece = append(piece, met{r.Session(), len(paths)})
				return 1 + (len(paths)-begin)/8
			})
		})
		begin := 0
		for _, m := range piece {
			if !fn(m.session, string(paths[begin:m.end])) {
				return
			}
			begin = m.end
		}
	}
}

// at() records the index and term of the last applied entry. The caller holds the state lock, so that readers
// under the lock see a matching pair.
func (f *FSM) at(index, term uint64) {
	f.term.Store(term)
	f.index.Store(index)
}

// advance() wakes the goroutines that wait for an entry to be applied.
func (f *FSM) advance() {
	if f.waiting.Load() == 0 {
		return
	}
	f.waitMu.Lock()
	close(f.advanced)
	f.advanced = make(chan struct{})
	f.waitMu.Unlock()
}

// Wait blocks until done() returns true or `stop` is closed. It calls done() after every entry.
func (f *FSM) Wait(stop <-chan struct{}, done func() bool) bool {
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	for {
		f.waitMu.Lock()
		advanced := f.advanced
		f.waitMu.Unlock()
		if done() {
			return true
		}
		select {
		case <-advanced:
		case <-stop:
			return false
		}
	}
}

// Ahead returns how far the leader's clock is ahead of this server's, as the newest entry shows. It returns
// 0 if the entry does not show that, for example because the entry was written before this server started.
func (f *FSM) Ahead() time.Duration {
	return max(time.Duration(f.ahead.Load())*time.Millisecond, 0)
}

// Lead returns the deadlines of a term that begins. They are kept up to date until Leave is called.
func (f *FSM) Lead() *Deadlines {
	t := newDeadlines()
	f.mu.RLock() // so that no session begins or ends between replace() and Store()
	defer f.mu.RUnlock()
	t.replace(f.state.Sessions())
	f.leads.Store(t)
	return t
}

// Leave ends the term that has these deadlines.
func (f *FSM) Leave(t *Deadlines) { f.leads.CompareAndSwap(t, nil) }

// Deadlines returns the deadlines of the term in which this server leads. It returns nil if this server does
// not lead.
func (f *FSM) Deadlines() *Deadlines { return f.leads.Load() }

// PassedOn reports whether a lock may have passed to its next waiter since the last call, while this server
// led. That is so if a node with siblings was deleted.
func (f *FSM) PassedOn() bool { return f.passedOn.Swap(false) }
