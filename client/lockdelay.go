package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// dirRecord is what this package keeps in the data of a lock's directory.
type dirRecord struct {
	ZL     int     `json:"zl"`               // 1
	Holder *string `json:"holder,omitempty"` // lock delay: id of the hold, "" after a clean unlock
	Limit  int     `json:"limit,omitempty"`  // of a semaphore

	// Of a lock with a policy.
	Layout        string  `json:"layout,omitempty"` // "rw1"
	Policy        string  `json:"policy,omitempty"`
	MaxWriterWait string  `json:"maxWriterWait,omitempty"`
	Door          *string `json:"gate,omitempty"` // whom the door is closed for: the uuid of its node, or empty
	Kind          string  `json:"kind,omitempty"`
}

// parseDir reads a directory's data: zero for an empty one, false for data of
// other programs.
func parseDir(b []byte) (dirRecord, bool) {
	var r dirRecord
	if len(b) == 0 {
		return r, true
	}
	if json.Unmarshal(b, &r) != nil || r.ZL != 1 {
		return dirRecord{}, false
	}
	return r, true
}

func (r dirRecord) encode() []byte {
	r.ZL = 1
	b, _ := json.Marshal(r) // strings and numbers only
	return b
}

// delayRecord is the mark of a holder, or of none.
func delayRecord(holder string) []byte { return dirRecord{Holder: &holder}.encode() }

// lockDelay waits if the last holder went away without unlocking, and then marks
// the directory with the own id. The own node stays first all the time.
func (w *waiter) lockDelay(ctx context.Context, names []string) error {
	dir, err := w.e.get(ctx, w.a.dir)
	if err != nil {
		return err
	}
	rec, ok := parseDir(dir.Data)
	if !ok || rec.Limit != 0 || rec.Layout != "" {
		return fmt.Errorf("%w: lock delay: %s has data of another use", ErrUnsupported, w.a.dir)
	}
	if rec.Holder != nil && *rec.Holder != "" && *rec.Holder != w.own.id.uuid() && !lives(names, *rec.Holder) {
		w.c.opt.log.Info("last holder did not unlock, waiting", "path", w.a.path, "delay", w.a.cfg.lockDelay)
		if err := w.sit(ctx, w.a.cfg.lockDelay); err != nil {
			return err
		}
	}
	if !w.q.kind.exclusive() {
		// The mark is for writers: a reader's end needs no delay. But nor does the
		// next reader need to wait again.
		return w.clear(ctx, rec, dir.Stat.Version)
	}
	w.marked = true
	// Marking twice is the same as once.
	_, err = again(ctx, func() (zk.Stat, error) { return w.e.conn.Set(ctx, w.a.dir, delayRecord(w.own.id.uuid()), -1) })
	return err
}

// clear takes back the mark of a holder that is dead, unless there is another by now. Who
// may not do that has waited all the same.
func (w *waiter) clear(ctx context.Context, rec dirRecord, ver int32) error {
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
	id, ok := parseUUID(uuid)
	return ok && len(bearing(names, id)) > 0
}

// sit waits at the own place.
func (w *waiter) sit(ctx context.Context, d time.Duration) error {
	over := time.Now().Add(d)
	for left := d; left > 0; left = time.Until(over) {
		if err := w.watchOwn(ctx); err != nil {
			return err
		}
		if err := w.e.rest(ctx, time.After(left), w.ownW.Fired()); err != nil {
			return err
		}
	}
	return nil
}
