package hold

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Check asks the server whether the hold is current.
func (l *Lease) Check(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	h := l.h
	ctx, end := h.s.Keeper.During(ctx)
	defer end()
	nodes := h.nodesNow()
	if len(nodes) > 0 {
		if err := h.g.Epoch.Conn().Sync(ctx, h.g.Path); err != nil {
			return l.checkErr(ctx, err)
		}
	}
	for _, n := range nodes {
		st, err := h.g.Epoch.Conn().Exists(ctx, n.Path)
		if err != nil {
			return l.checkErr(ctx, err)
		}
		if st == nil || st.EphemeralOwner != h.g.Epoch.ID() {
			h.awaitChange(ctx)
			if !h.has(n) {
				continue // a change of mode replaced the node during the request, so ask again
			}
			h.lose(Removed, n)
		}
	}
	return l.Err()
}

// checkErr returns the error of a failed request for the lease. If the lease is over, it returns why the
// lease is over.
func (l *Lease) checkErr(ctx context.Context, err error) error {
	if errors.Is(err, zk.ErrSessionExpired) {
		l.h.lose(Expired) // the hold may not have been told yet that its session is over
	}
	if e := l.Err(); e != nil {
		return e
	}
	return ErrorAt(l.Path(), PublicErr(ctx, err))
}

// Txn carries out all of the operations or none, and only if the server says that the lease is held.
func (l *Lease) Txn(ctx context.Context, ops ...zk.Op) ([]zk.Result, error) {
	h := l.h
	ctx, end := h.s.Keeper.During(ctx)
	defer end()
	for {
		if err := l.Err(); err != nil {
			return nil, err
		}
		nodes := h.nodesNow()
		all := make([]zk.Op, 0, len(nodes)+len(ops))
		for _, n := range nodes {
			all = append(all, zk.Check{Path: n.Path, Version: -1})
		}
		res, err := h.g.Epoch.Conn().Multi(ctx, append(all, ops...)...)
		if err == nil {
			return res[len(nodes):], nil
		}
		refused, ok := errors.AsType[*zk.MultiError](err)
		switch {
		case errors.Is(err, zk.ErrUncertain) && ctx.Err() != nil:
			return nil, ErrorAt(l.Path(), fmt.Errorf("%w: %w", zk.ErrUncertain, EndOf(ctx)))
		case !ok:
			return nil, l.checkErr(ctx, err)
		case refused.Index >= len(nodes):
			own := *refused
			own.Index -= len(nodes)
			return nil, ErrorAt(l.Path(), PublicErr(ctx, &own))
		case !errors.Is(err, zk.ErrNoNode):
			return nil, l.checkErr(ctx, err)
		}
		// A node of the hold is gone: lost, or replaced by a change of mode.
		if h.awaitChange(ctx); h.has(nodes[refused.Index]) {
			h.lose(Removed, nodes[refused.Index])
		}
	}
}

// Publish changes the value of a candidate that leads.
func (l *Lease) Publish(ctx context.Context, value []byte) error {
	h := l.h
	if !h.g.Candidate {
		return ErrorAt(h.g.Path, fmt.Errorf("%w: the lease does not belong to an election", ErrUnsupported))
	}
	ctx, end := h.s.Keeper.During(ctx)
	defer end()
	err := h.g.Epoch.Update(ctx, h.nodesNow()[0].Path, func(data []byte) ([]byte, error) {
		if r, asked := recipe.RevocationIn(data); asked {
			h.revoke(r) // deliver the revocation first, because the new value may overwrite it
		}
		fresh := recipe.WithValue(data, value)
		if bytes.Equal(data, fresh) {
			return nil, l.Err()
		}
		return fresh, l.Err()
	})
	if errors.Is(err, zk.ErrNoNode) {
		h.lose(Removed)
	}
	if err != nil {
		return l.checkErr(ctx, err)
	}
	return nil
}
