package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// delayRecord encodes the mark of a holder; an empty holder takes the mark back.
func delayRecord(holder string) []byte { return recipe.Record{Holder: &holder}.Encode() }

// lockDelay waits if the last holder went away without unlocking, and then marks
// the directory with the own id. The own node stays first all the time.
func (w *waiter) lockDelay(ctx context.Context, names []string) error {
	dir, err := w.e.conn.Get(ctx, w.a.dir)
	if err != nil {
		return err
	}
	rec, ok := recipe.ParseRecord(dir.Data)
	if !ok || rec.Limit != 0 || rec.Layout != "" {
		return fmt.Errorf("%w: lock delay: %s has data of another use", ErrUnsupported, w.a.dir)
	}
	if rec.Holder != nil && *rec.Holder != "" && *rec.Holder != w.place.id.UUID() && !lives(names, *rec.Holder) {
		if w.a.try {
			return ErrNotAcquired
		}
		w.c.opt.log.Info("last holder did not unlock, waiting", "path", w.a.path, "delay", w.a.cfg.lockDelay)
		w.late = true
		if err := w.sit(ctx, w.a.cfg.lockDelay); err != nil {
			return err
		}
	}
	if !w.q.Kind.Exclusive() {
		// Only writers leave a mark: a reader's end needs no delay. But the next reader need not wait
		// again either.
		return w.clear(ctx, rec, dir.Stat.Version)
	}
	w.marked = true
	// Marking twice is the same as once.
	_, err = again(ctx,
		func() (zk.Stat, error) { return w.e.conn.Set(ctx, w.a.dir, delayRecord(w.place.id.UUID()), -1) })
	return err
}

// clear takes back the mark of a dead holder, unless another mark has replaced it. A client that
// may not do that has waited all the same.
func (w *waiter) clear(ctx context.Context, rec recipe.Record, ver int32) error {
	if rec.Holder == nil || *rec.Holder == "" {
		return nil
	}
	_, err := again(ctx, func() (zk.Stat, error) { return w.e.conn.Set(ctx, w.a.dir, delayRecord(""), ver) })
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoAuth) {
		return nil
	}
	return err
}

// lives reports whether a node with this id is in the list.
func lives(names []string, uuid string) bool {
	id, ok := recipe.ParseUUID(uuid)
	return ok && len(recipe.Bearing(names, id)) > 0
}
