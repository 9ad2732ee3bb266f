package followers

import (
	"sync"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Stored records, while this server leads, how far each other server's log is known to agree with this
// server's log. Raft has this record too, but does not export it.
type Stored struct{ by sync.Map } // *storedBy, by server id

// storedBy records how far one server's log is known to agree with this server's log.
type storedBy struct {
	grown signal.Signal // sent when `at` changes; one goroutine waits for it

	mu sync.Mutex
	at state.Position // up to at.Index, the server's log is equal to the log of the leader of at.Term
}

// Note records that a server answered: up to at.Index, its log agrees with the log of the leader of at.Term.
func (s *Stored) Note(id uint32, at state.Position) { s.of(id).note(at) }

func (s *Stored) of(id uint32) *storedBy {
	by, known := s.by.Load(id)
	if !known {
		by, _ = s.by.LoadOrStore(id, &storedBy{grown: signal.New()})
	}
	return by.(*storedBy)
}

// note() records an answer. It ignores a late answer to an earlier leader.
func (b *storedBy) note(at state.Position) {
	b.mu.Lock()
	if at.Term < b.at.Term || at.Term == b.at.Term && at.Index < b.at.Index {
		at = b.at
	}
	b.at = at
	b.mu.Unlock()
	b.grown.Send()
}

// has() reports whether the server has confirmed, to the leader of the entry's term, that it stores the entry
// at this position.
func (b *storedBy) has(at state.Position) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at.Term == at.Term && b.at.Index >= at.Index
}
