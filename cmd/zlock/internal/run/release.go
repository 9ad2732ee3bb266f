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
	code  int // exit code that replaces COMMAND's; 0: COMMAND's counts
}

// lossCode returns the exit code for the reason of the loss.
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

// releaseTimeout bounds the wait until the server confirms the release. An unconfirmed lock ends with the
// session, which zlock closes next.
const releaseTimeout = 5 * time.Second

// release releases the lock. If it finds that the lock was lost, it changes the exit code.
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

// giveBack releases the lock after an error. It does not report a loss, because the error already does.
func (s *holding) giveBack() {
	s.code = call.ExitLost
	s.release(call.ExitLost)
}

// requestText is the message for a client that asks for the lock. Clients of other programs give no name.
func requestText(what string, r recipe.Revocation) string {
	reason := ""
	if r.Reason != "" {
		reason = ": " + r.Reason
	}
	return fmt.Sprintf("%s asks for %s back%s", cmp.Or(r.By, "a client"), what, reason)
}
