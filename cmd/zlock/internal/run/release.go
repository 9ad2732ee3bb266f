package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// holding is a lock that zlock holds.
type holding struct {
	*call.App
	lease *client.Lease
	code  int // exit code in place of COMMAND's own; 0: use COMMAND's
}

// lossCode returns the exit code that tells why the lock was lost.
func (s *holding) lossCode() int {
	if lost, ok := errors.AsType[*client.LostError](s.lease.Err()); ok {
		switch lost.Reason {
		case client.MaxHold:
			return call.ExitMaxHold
		case client.Revoked:
			return call.ExitRevoked
		}
	}
	return call.ExitLost
}

// releaseTimeout bounds the wait until the server confirms a release. After it zlock closes the session,
// which also ends the lock.
const releaseTimeout = 5 * time.Second

// release releases the lock, and returns the exit code: another one if it finds that the lock was lost.
func (s *holding) release(code int) int {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	err := s.lease.Unlock(ctx)
	switch {
	case err == nil || errors.Is(err, client.ErrReleasePending):
	case errors.Is(err, client.ErrLost):
		if s.code == 0 {
			s.Say("%v", err)
			return s.lossCode()
		}
	default:
		s.Say("%v", err)
	}
	return code
}

// giveBack releases the lock after an error. If the lock was lost, it says nothing about that, because the
// error is reported anyway.
func (s *holding) giveBack() {
	s.code = call.ExitLost
	s.release(call.ExitLost)
}

// requestText is the message that a client asks for the lock back. A client of another program may not give
// its name.
func requestText(what string, r recipe.Revocation) string {
	reason := ""
	if r.Reason != "" {
		reason = ": " + r.Reason
	}
	return fmt.Sprintf("%s asks for %s back%s", cmp.Or(r.By, "a client"), what, reason)
}
