package followers

import (
	"sync"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Stored records, while this server leads, how far each other server's log is known to agree with its own.
// Raft knows it too, but does not export it.
type Stored struct{ by sync.Map } // of *storedBy, by server id

// storedBy is how far one server's log is known to agree.
type storedBy struct {
	grown signal.Signal // sent when at changes; for one waiter

	mu sync.Mutex
	at state.Position // its term is the one of the leader that the log agreed with
}

// Note records an answer of a server: its log agrees with that of the term's leader up to an index.
func (s *Stored) Note(id uint32, at state.Position) { s.of(id).note(at) }

func (s *Stored) of(id uint32) *storedBy {
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

// has reports whether the server has confirmed to the leader of that term that it stores the entry.
func (b *storedBy) has(at state.Position) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at.Term == at.Term && b.at.Index >= at.Index
}
