package kerberos

import (
	"cmp"
	"errors"
	"sync"
	"time"
)

// maxReplays bounds how many authenticators the server remembers, and so how many clients can sign in within
// twice Skew. The server remembers an authenticator only if the client has a valid ticket.
const maxReplays = 1 << 18

// The constant remembered is how long the server must remember an authenticator: an authenticator from a
// clock that is ahead by Skew stays valid until its time plus Skew.
const remembered = 2 * Skew

var (
	errReplay = errors.New("this authenticator was used before: it is a replay")
	errFull   = errors.New("too many clients have signed in within ten minutes: a replay could not be " +
		"detected")
)

// The type replays remembers authenticators in two generations. It drops the older generation when all
// authenticators in it are too old to be accepted.
type replays struct {
	mu         sync.Mutex
	began      time.Time // when the newer generation began
	newer, old map[[32]byte]struct{}
	limit      int // set by tests; 0: maxReplays
}

func (r *replays) add(sum [32]byte, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newer == nil || now.Sub(r.began) > remembered {
		// After a pause the newer generation may also be too old, but it is harmless to keep it longer.
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
