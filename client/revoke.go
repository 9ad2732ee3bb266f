package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// revoke delivers the first request to give the lock back, and ends a revocable hold after its
// grace.
func (h *hold) revoke(r recipe.Revocation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.revoked != nil {
		return
	}
	h.revoked = &r
	for _, l := range h.leases {
		l.wish(r)
	}
	if h.cfg.revocable {
		h.timers = append(h.timers, time.AfterFunc(h.cfg.revokeGrace, func() { h.lose(Revoked) }))
	}
}

// Revoke asks the contender behind one node of a lock to leave. A holder gets the request by
// [Lease.Revoked]; if it took the lock [WithRevocable], it loses the lock after its grace. A waiter
// leaves the queue. node is the node's path relative to the lock's, as [recipe.Entry] has it.
// Revoke needs WRITE on the node.
func (i *Inspector) Revoke(ctx context.Context, path, node string, r recipe.Revocation) error {
	target := target(path, node)
	made, _, _ := recipe.ParseName(recipe.Base(target))
	if made.Maker == recipe.MakerKazoo || made.Maker == recipe.MakerGo {
		return fmt.Errorf("%w: the program that made %s cannot be asked to leave", ErrUnsupported, target)
	}
	return nodeErr(target, i.c.steadily(ctx, target, func(e *epoch) error {
		return e.update(ctx, target, func(data []byte) ([]byte, error) {
			if _, asked := recipe.RevocationIn(data); asked {
				return nil, nil
			}
			return recipe.AskBack(data, made.Maker, r), nil
		})
	}))
}

// nodeErr is the error of an operation on a contender's node.
func nodeErr(node string, err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %s", ErrNotHeld, node)
	}
	return err
}
