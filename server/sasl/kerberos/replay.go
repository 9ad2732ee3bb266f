package kerberos

import (
	"cmp"
	"errors"
	"sync"
	"time"
)

// maxReplays bounds the authenticators that are remembered, and so the clients that can sign in within twice
// Skew. Only clients with a valid ticket can use this room up.
const maxReplays = 1 << 18

// remembered is how long an authenticator must be remembered. If the client's clock is ahead by Skew, it is
// accepted until twice Skew after it first came.
const remembered = 2 * Skew

var (
	errReplay = errors.New("this authenticator was used before: it is a replay")
	errFull   = errors.New("too many clients have signed in within ten minutes: a replay could not be " +
		"detected")
)

// replays remembers authenticators in two generations. The older one is dropped as a whole, when no
// authenticator in it would be accepted any longer.
type replays struct {
	mu         sync.Mutex
	began      time.Time // when `newer` began
	newer, old map[[32]byte]struct{}
	limit      int // set by tests; 0: maxReplays
}

func (r *replays) add(sum [32]byte, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newer == nil || now.Sub(r.began) > remembered {
		// If nothing came for a long time, r.newer could be dropped, too, but it does no harm as the old
		// generation.
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
