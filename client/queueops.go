package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/zk"

	"github.com/zlockd/zlockd/client/fence"
)

// queueOps is how a hold by a queue node ends or changes.
type queueOps struct {
	q   queue
	dir string
}

func (o queueOps) release(ctx context.Context, h *hold) error {
	node := h.nodesNow()[0].path
	if h.marked {
		return h.c.releaseMarked(ctx, h, o.dir, node)
	}
	return h.c.delete(ctx, h.e, node, -1)
}

// quick releases a hold whose node nothing else depends on: the request is sent,
// and the local turn passed on behind it, before there is an answer.
func (o queueOps) quick(h *hold) *zk.Reply[struct{}] {
	h.mu.Lock()
	simple := !h.marked && h.change.end == nil
	node := h.nodes[0].path
	h.mu.Unlock()
	if !simple {
		return nil
	}
	p := h.e.conn.Pipe()
	r := p.Delete(zk.Delete{Path: node, Version: -1})
	if h.cfg.earlyUnlock {
		p.SendSoon()
	} else {
		p.Send()
	}
	h.turn.leave()
	return r
}

// downgrade puts a read node with the write node's number in its place, in one
// step: no waiting writer is before it.
func (o queueOps) downgrade(ctx context.Context, h *hold) error {
	if !o.q.rw {
		return fmt.Errorf("%w: only a read-write lock can be downgraded", ErrUnsupported)
	}
	old := h.nodesNow()[0]
	id := newNodeID(h.e.sid)
	name := nodeName(o.q.layout, kindRead, id, h.c.owner.host) + fmt.Sprintf("%010d", old.seq)
	fresh := heldNode{path: join(o.dir, name), id: id, seq: old.seq, lock: old.lock}
	a := &attempt{c: h.c, cfg: h.cfg}
	for n := 1; ; n++ {
		ops := []zk.Op{
			zk.Create{Path: fresh.path, Data: a.data(id), ACL: h.cfg.acl, Mode: zk.Ephemeral},
			zk.Delete{Path: old.path, Version: -1},
		}
		if h.marked {
			ops = append(ops, zk.SetData{Path: o.dir, Data: delayRecord(""), Version: -1})
		}
		_, err := h.c.multi(ctx, h.e, ops...)
		if isAmbiguous(err) {
			var names []string
			names, err = h.c.relist(ctx, h.e, o.dir)
			if err == nil && len(bearing(names, id)) == 0 {
				if err := pause(ctx, backoff(n, 10*time.Millisecond, time.Second)); err != nil {
					return err
				}
				continue // it did not happen
			}
		}
		if err != nil {
			if errors.Is(err, zk.ErrNoNode) {
				h.lose(Removed)
			}
			return err
		}
		h.mu.Lock()
		h.marked = false
		h.mu.Unlock()
		h.replace(fence.Shared, 0, nil, fresh)
		return nil
	}
}

func (o queueOps) upgrade(context.Context, *hold, bool) error {
	return fmt.Errorf("%w: an upgrade needs a lock WithPolicy", ErrUnsupported)
}
