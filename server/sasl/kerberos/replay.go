package kerberos

import (
	"cmp"
	"errors"
	"sync"
	"time"
)

// maxReplays bounds the authenticators remembered: that many clients can sign in within twice
// Skew. Only clients with a ticket get into the memory.
const maxReplays = 1 << 18

// remembered is how long an authenticator must be known: one that is Skew ahead
// of this server is good until Skew after its time.
const remembered = 2 * Skew

var (
	errReplay = errors.New("this authenticator was used before: it is a replay")
	errFull   = errors.New("too many clients have signed in within ten minutes to tell a replay from another")
)

// replays remembers authenticators in two generations. It drops the older one when all of it is
// too old to be accepted.
type replays struct {
	mu         sync.Mutex
	began      time.Time // of the newer generation
	newer, old map[[32]byte]struct{}
	limit      int // for tests; 0: maxReplays
}

func (r *replays) add(sum [32]byte, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newer == nil || now.Sub(r.began) > remembered {
		// After a pause the newer generation is too old as well, by at most one more.
		r.old, r.newer, r.began = r.newer, map[[32]byte]struct{}{}, now
	}
	if _, seen := r.newer[sum]; seen {
		return errReplay
	}
	if _, seen := r.old[sum]; seen {
		return errReplay
	}
	if len(r.newer) >= cmp.Or(r.limit, maxReplays) {
		return errFull
	}
	r.newer[sum] = struct{}{}
	return nil
}
