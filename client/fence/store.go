package fence

import (
	"context"
	"sync"
)

// Store remembers the highest exclusive token of each resource. It is safe for
// concurrent use.
type Store interface {
	// Load returns the highest token of res. It returns 0 if res has no token yet.
	Load(ctx context.Context, res string) (Token, error)
	// Raise sets the highest token of res to t, unless a higher token is stored, in one atomic step. It returns
	// true if t is then the highest token, even if it already was before the call, and false if t is stale.
	Raise(ctx context.Context, res string, t Token) (bool, error)
}

// MemoryStore is a [Store] that lasts as long as the process. The zero value is ready for use. Use it only if
// the resource does not outlive the process either; otherwise the new process admits an old holder again.
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
