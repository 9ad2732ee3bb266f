package take

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// delayRecord encodes the mark of `holder`; an empty `holder` takes the mark back.
func delayRecord(holder string) []byte { return recipe.Record{Holder: &holder}.Encode() }

// lockDelay waits if the last holder went away without unlocking. Then a writer marks the directory with its
// own id. A reader removes the mark of the dead holder, so that the next reader need not wait again. It
// leaves no mark of its own, because its end needs no delay. While lockDelay waits, the waiter's own node
// remains the first. lockDelay overwrites only marks of contenders, never the data of another program.
func (w *waiter) lockDelay(ctx context.Context, names []string) error {
	own, writes := w.id.UUID(), w.q.Kind.Exclusive()
	for {
		dir, err := w.e.Conn().Get(ctx, w.a.dir)
		if err != nil {
			return err
		}
		rec, ok := recipe.ParseRecord(dir.Data)
		if !ok || rec.Limit != 0 || rec.Layout != "" {
			return fmt.Errorf("%w: lock delay: the data of %s were written for another purpose",
				hold.ErrUnsupported, w.a.dir)
		}
		marked := rec.Holder != nil && *rec.Holder != ""
		if marked && *rec.Holder != own && !lives(names, *rec.Holder) {
			left, err := w.delayLeft(ctx, &dir, rec)
			switch {
			case errors.Is(err, zk.ErrBadVersion): // another client wrote, or a reply to setMark was lost
				continue
			case err != nil:
				return err
			case left > 0 && w.a.Try:
				return hold.ErrNotAcquired
			case left > 0:
				w.c.Keeper.Log().Info("last holder did not unlock, waiting", "path", w.a.Path, "left", left)
				w.late = true
				if err := w.sit(ctx, left); err != nil {
					return err
				}
				continue
			}
		}
		holder := ""
		switch {
		case writes:
			holder = own
			w.unmark = []zk.Op{zk.SetData{Path: w.a.dir, Data: delayRecord(""), Version: dir.Stat.Version + 1}}
		case !marked:
			return nil
		}
		err = w.setMark(ctx, &dir, delayRecord(holder))
		switch {
		case errors.Is(err, zk.ErrBadVersion):
			w.unmark = nil
			continue
		case !writes && errors.Is(err, zk.ErrNoAuth):
			return nil // the reader may not remove the mark, but it has waited, so it may have the lock
		}
		return err
	}
}

// delayLeft returns how much is left of the lock delay after a holder died. If the record does not say yet
// that the holder is dead, delayLeft writes that. The delay begins when the server applies this write.
func (w *waiter) delayLeft(ctx context.Context, dir *zk.Node, rec recipe.Record) (time.Duration, error) {
	delay := w.a.Terms.LockDelay
	if !rec.Dead {
		rec.Dead = true
		err := w.setMark(ctx, dir, rec.Encode())
		// The reader may not write that the holder is dead, so its client measures the delay by its own clock.
		if errors.Is(err, zk.ErrNoAuth) && !w.q.Kind.Exclusive() {
			return delay - time.Since(w.c.deaths.seen(w.a.dir, *rec.Holder, time.Now())), nil
		}
		if err != nil {
			return 0, err
		}
	}
	return turns.DelayLeft(delay, dir.Stat.Mtime, w.Stat.Ctime, time.Since(w.born)), nil
}

// deaths remembers when this client first found the holders dead that it may not mark as dead, because it may
// not write the directory. So the delay counts from there for all calls of the client, tries among them.
type deaths struct {
	mu sync.Mutex
	m  map[string]death // by directory
}

type death struct {
	holder string
	found  time.Time
}

// maxDeaths bounds the directories of which a client remembers a dead holder.
const maxDeaths = 10_000

// seen() returns when the client first found the holder of a directory dead.
func (d *deaths) seen(dir, holder string, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.m[dir]; ok && known.holder == holder {
		return known.found
	}
	if d.m == nil {
		d.m = map[string]death{}
	}
	if len(d.m) >= maxDeaths {
		oldest := ""
		for at, x := range d.m {
			if oldest == "" || x.found.Before(d.m[oldest].found) {
				oldest = at
			}
		}
		delete(d.m, oldest)
	}
	d.m[dir] = death{holder, now}
	return now
}

// setMark writes the data of the directory if they still have the version in `dir`, and updates `dir`.
func (w *waiter) setMark(ctx context.Context, dir *zk.Node, data []byte) error {
	return session.Again(ctx, func() error {
		st, err := w.e.Conn().Set(ctx, w.a.dir, data, dir.Stat.Version)
		if err == nil {
			dir.Stat = st
		}
		return err
	})
}

// lives() reports whether the list contains a node with this id, with or without hyphens.
func lives(names []string, uuid string) bool {
	hex := strings.ReplaceAll(uuid, "-", "")
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.Contains(n, uuid) || strings.Contains(n, hex)
	})
}

// lockDelay delays a grant if the door has a mark whose owner went away without unlocking. It reports whether
// the attempt must look again.
func (w *policyWaiter) lockDelay(ctx context.Context) (bool, error) {
	v := w.dir.view(w.a.Terms.Policy)
	dead := v.Door.Kind != recipe.DoorOpen && v.Door.Owner != w.id && v.DoorOwner() == nil
	switch {
	case w.a.Terms.LockDelay == 0 || !dead:
		return false, nil
	case !w.dir.rec.Dead:
		return true, w.dir.setDead(ctx)
	case !w.queued:
		return true, w.enqueue(ctx) // DelayLeft needs the time at which the server made the waiter's own node
	}
	left := turns.DelayLeft(w.a.Terms.LockDelay, w.dir.stamp, w.Stat.Ctime, time.Since(w.born))
	switch {
	case left <= 0 && w.reads():
		return true, w.dir.setDoor(ctx, recipe.Door{}) // open the door, so that the next reader need not wait again
	case left <= 0:
		return false, nil
	case w.a.Try:
		return true, hold.ErrNotAcquired
	}
	w.c.Keeper.Log().Info("last holder did not unlock, waiting", "path", w.a.Path, "left", left)
	if err := w.watchOwn(ctx); err != nil {
		return true, err
	}
	return true, w.e.Rest(ctx, time.After(left), w.dir.watch.Fired(), session.FiredOf(w.own))
}
