package fence

import (
	"context"
	"sync"
)

// Store remembers the highest exclusive token of each resource. It is safe for
// concurrent use.
type Store interface {
	// Load returns the highest token of res, zero if there is none.
	Load(ctx context.Context, res string) (Token, error)
	// Raise sets the highest token of res to t unless a higher one is stored, in one atomic step. It reports
	// whether t is now the highest: also true if it was before, false if t is stale.
	Raise(ctx context.Context, res string, t Token) (bool, error)
}

// MemoryStore is a [Store] that lives as long as the process. The zero value is ready. Use it only if the
// resource does not outlive the process either: otherwise a lost token admits an old holder again.
type MemoryStore struct {
	mu      sync.Mutex
	highest map[string]Token
}

// Load implements [Store].
func (s *MemoryStore) Load(_ context.Context, res string) (Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.highest[res], nil
}

// Raise implements [Store].
func (s *MemoryStore) Raise(_ context.Context, res string, t Token) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t < s.highest[res] {
		return false, nil
	}
	if s.highest == nil {
		s.highest = make(map[string]Token)
	}
	s.highest[res] = t
	return true, nil
}
