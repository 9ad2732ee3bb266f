package raftfsm

import (
	"sync"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// stored is how far the logs of the others are known to agree with this
// server's, while it leads. raft knows it too, and tells nobody.
type stored struct {
	mu sync.Mutex
	by map[uint32]*storedBy
}

// storedBy is one server's.
type storedBy struct {
	grown chan struct{} // holds a token when at has changed; for one who waits

	mu sync.Mutex
	at state.Position // the term is that of the leader it agreed with
}

func (s *stored) of(id uint32) *storedBy {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := s.by[id]
	if by == nil {
		if s.by == nil {
			s.by = map[uint32]*storedBy{}
		}
		by = &storedBy{grown: make(chan struct{}, 1)}
		s.by[id] = by
	}
	return by
}

// note takes an answer. One to an earlier leadership may come late.
func (b *storedBy) note(at state.Position) {
	b.mu.Lock()
	if at.Term < b.at.Term || at.Term == b.at.Term && at.Index < b.at.Index {
		at = b.at
	}
	b.at = at
	b.mu.Unlock()
	b.look()
}

// look has the one who waits look again.
func (b *storedBy) look() {
	select {
	case b.grown <- struct{}{}:
	default:
	}
}

// has reports whether the server told the leader of that term that it has the
// entry.
func (b *storedBy) has(at state.Position) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at.Term == at.Term && b.at.Index >= at.Index
}
