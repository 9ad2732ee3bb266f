package take

import (
	"context"
	"fmt"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/zk"
)

// A Member takes one lock of a set. It sets no limits: the limits apply to the set as a whole.
type Member func(ctx context.Context, try bool) (*hold.Lease, error)

// Each takes the locks of a set one after another, in their order. The argument `ask` has the path and the
// mode of the first lock.
func (c *Client) Each(ctx context.Context, ask Ask, members []Member) (*hold.Lease, error) {
	a := &attempt{Ask: ask, dir: ask.Path, alone: true, dirs: []string{}} // the members make the nodes
	return c.acquire(ctx, a, func(ctx context.Context, _ *session.Epoch, a *attempt) (*hold.Grant, error) {
		return takeEach(ctx, a, members)
	})
}

// takeEach takes one lock after another.
func takeEach(ctx context.Context, a *attempt, members []Member) (*hold.Grant, error) {
	var parts []*hold.Lease
	// Send the releases now. Otherwise the client's next request could find the locks held. Do not wait for
	// the replies.
	giveBack := func() {
		ended, end := context.WithCancel(context.Background())
		end()
		for _, l := range parts {
			_ = l.Unlock(ended)
		}
	}
	for _, take := range members {
		l, err := take(ctx, a.Try)
		if err != nil {
			giveBack()
			return nil, err
		}
		parts = append(parts, l)
	}
	e := parts[0].Epoch()
	for _, l := range parts {
		if l.Epoch() != e || l.Err() != nil {
			// The client lost one lock while it waited for another.
			giveBack()
			return nil, lostOnTheWay(l)
		}
	}
	g := a.granted(e, 0)
	g.Parts = parts
	return g, nil
}

// lostOnTheWay returns the error of an attempt that lost one lock while it waited for others.
func lostOnTheWay(l *hold.Lease) error {
	lost, ok := l.Loss()
	switch {
	case !ok: // the node of l ended with the session
	case lost.Reason == hold.Revoked:
		return l.Err() // the whole set is given up, like a waiter that was asked to leave
	case lost.Reason == hold.Removed:
		return &requeueError{fmt.Errorf("%w: %s", ErrNodeRemoved, lost.Node)}
	}
	return &requeueError{zk.ErrSessionExpired}
}
