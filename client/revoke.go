package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// Revocation is a wish that a contender leaves.
type Revocation struct {
	By       string    `json:"by,omitempty"`      // who asks
	Reason   string    `json:"reason,omitempty"`  // what for
	Deadline time.Time `json:"deadline,omitzero"` // what the asker hopes for; nothing enforces it
}

// curatorRevoke is the node data by which Curator asks.
const curatorRevoke = "__REVOKE__"

// revocationIn finds the wish in a node's data.
func revocationIn(data []byte) (Revocation, bool) {
	if string(data) == curatorRevoke {
		return Revocation{}, true
	}
	if !bytes.Contains(data, []byte(`"revoke"`)) {
		return Revocation{}, false // as almost always
	}
	if o, ok := parseOwner(data); ok && o.Revoke != nil {
		return *o.Revoke, true
	}
	return Revocation{}, false
}

// revoke delivers the first wish and ends a revocable hold after its grace.
func (h *hold) revoke(r Revocation) {
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

// Revoke asks the contender behind one node of a lock to leave. A holder hears of
// it by [Lease.Revoked], and loses the lock after its grace if it was taken
// [WithRevocable]; a waiter leaves the queue. node is the node's path relative to
// the lock's, as [Entry] has it. It needs WRITE on the node.
func (c *Client) Revoke(ctx context.Context, path, node string, r Revocation) error {
	target := join(path, node)
	return nodeErr(target, c.steadily(ctx, target, func(e *epoch) error {
		return e.update(ctx, target, func(data []byte) ([]byte, error) {
			if _, asked := revocationIn(data); asked {
				return nil, nil
			}
			return revokedData(data, r), nil
		})
	}))
}

// revokedData adds the wish to a record of ours, and replaces anything else by
// what Curator understands.
func revokedData(data []byte, r Revocation) []byte {
	o, ok := parseOwner(data)
	if !ok {
		return []byte(curatorRevoke)
	}
	r.By, r.Reason = cutText(r.By, 100), cutText(r.Reason, 200)
	o.Revoke = &r
	return ownerData(o)
}

// nodeErr is the error for an operation on somebody's node.
func nodeErr(node string, err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %s", ErrNotHeld, node)
	}
	return err
}
