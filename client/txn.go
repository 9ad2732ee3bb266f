package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/zk"
)

// Txn carries out all of the operations or none, and only if the server says that the lease is held
// at that moment; no clock and no token is involved. It returns what each operation did. If the
// lock is gone, the error is ErrLost. If the server refuses an operation, a *zk.MultiError says
// which. An error that is zk.ErrUncertain says that the outcome is unknown.
func (l *Lease) Txn(ctx context.Context, ops ...zk.Op) ([]zk.Result, error) {
	h := l.h
	ctx, end := h.c.during(ctx)
	defer end()
	for {
		if err := l.Err(); err != nil {
			return nil, err
		}
		nodes := h.nodesNow()
		all := make([]zk.Op, 0, len(nodes)+len(ops))
		for _, n := range nodes {
			all = append(all, zk.Check{Path: n.path, Version: -1})
		}
		res, err := h.e.conn.Multi(ctx, append(all, ops...)...)
		if err == nil {
			return res[len(nodes):], nil
		}
		var refused *zk.MultiError
		switch {
		case isAmbiguous(err) && ctx.Err() != nil:
			return nil, errorAt(l.Path(), fmt.Errorf("%w: %w", zk.ErrUncertain, ctxErr(ctx)))
		case !errors.As(err, &refused):
			return nil, l.checkErr(ctx, err)
		case refused.Index >= len(nodes):
			own := *refused
			own.Index -= len(nodes)
			return nil, errorAt(l.Path(), publicErr(ctx, &own))
		case !errors.Is(err, zk.ErrNoNode):
			return nil, l.checkErr(ctx, err)
		}
		// A node of the hold is gone: lost, or replaced by a change of mode.
		if h.awaitChange(ctx); h.has(nodes[refused.Index]) {
			h.lose(Removed, nodes[refused.Index])
		}
	}
}
