package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// delayRecord encodes the mark of a holder; an empty holder takes the mark back.
func delayRecord(holder string) []byte { return recipe.Record{Holder: &holder}.Encode() }

// lockDelay waits if the last holder went away without unlocking. A writer then marks the directory
// with its own id. A reader leaves no mark, because its end needs no delay, but takes back that of
// the dead holder, so that the next reader need not wait again. The own node stays first all the
// time. Only contenders' marks are overwritten, never the data of another program.
func (w *waiter) lockDelay(ctx context.Context, names []string) error {
	own := w.place.id.UUID()
	for waited := false; ; {
		dir, err := w.e.conn.Get(ctx, w.a.dir)
		if err != nil {
			return err
		}
		rec, ok := recipe.ParseRecord(dir.Data)
		if !ok || rec.Limit != 0 || rec.Layout != "" {
			return fmt.Errorf("%w: lock delay: %s has data of another use", ErrUnsupported, w.a.dir)
		}
		marked := rec.Holder != nil && *rec.Holder != ""
		if marked && !waited && *rec.Holder != own && !lives(names, *rec.Holder) {
			if w.a.try {
				return ErrNotAcquired
			}
			w.c.opt.log.Info("last holder did not unlock, waiting", "path", w.a.path, "delay", w.a.cfg.lockDelay)
			waited, w.late = true, true
			if err := w.sit(ctx, w.a.cfg.lockDelay); err != nil {
				return err
			}
			continue
		}
		holder, writes := "", w.q.Kind.Exclusive()
		switch {
		case writes:
			holder = own
			w.unmark = []zk.Op{zk.SetData{Path: w.a.dir, Data: delayRecord(""), Version: dir.Stat.Version + 1}}
		case !marked:
			return nil
		}
		_, err = again(ctx,
			func() (zk.Stat, error) { return w.e.conn.Set(ctx, w.a.dir, delayRecord(holder), dir.Stat.Version) })
		switch {
		case errors.Is(err, zk.ErrBadVersion): // another client wrote, or the first of two requests succeeded
			w.unmark = nil
			continue
		case !writes && errors.Is(err, zk.ErrNoAuth):
			return nil // the reader has waited all the same
		}
		return err
	}
}

// lives reports whether a node with this id, in either form, is in the list.
func lives(names []string, uuid string) bool {
	hex := strings.ReplaceAll(uuid, "-", "")
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.Contains(n, uuid) || strings.Contains(n, hex)
	})
}
