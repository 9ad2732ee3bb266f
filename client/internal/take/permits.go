package take

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// Permits stands for one semaphore. All calls on the semaphore share it.
type Permits struct {
	c     *Client
	path  string
	terms *Terms
	tell  func(hold.Event) // nil: no function listens
	wish  atomic.Int64     // how many permits the semaphore has, according to the program
	d     semLayout
	told  sync.Once // reports only once that the stored number differs from the program's
}

// semLayout says where the parts of a semaphore are.
type semLayout struct {
	lock, leases string // directories
	q            queue
	leaseName    func(id recipe.ID, slot int) string
	numbered     bool    // the permits have numbers
	mode         zk.Mode // mode of the nodes of the permits
	use          turns.Use
}

func semLayoutOf(l recipe.Layout, path string) semLayout {
	if l == recipe.LayoutKazoo {
		return semLayout{lock: path + "-__lock__", leases: path,
			q: queue{turns.Rule{Layout: l, Kind: recipe.RoleLock}}, mode: zk.Ephemeral,
			use:       turns.UseBarePermits,
			leaseName: func(id recipe.ID, _ int) string { return id.Hex() }}
	}
	return semLayout{
		lock: recipe.Join(path, "locks"), leases: recipe.Join(path, recipe.PermitsName),
		q: queue{turns.Rule{Layout: l, Kind: recipe.RoleLock}}, mode: zk.EphemeralSequential,
		use:      turns.UsePermits,
		numbered: true, leaseName: recipe.PermitName,
	}
}

// semSight is what look() has found at a semaphore's path.
type semSight struct {
	limit int     // the number of permits that the semaphore has
	store []zk.Op // operations that store the number together with the new nodes; nil: no operations
	data  []byte  // the data of the path's node before these operations
}

// undo() returns the operations that take back the operations in t.store.
func (t semSight) undo() []zk.Op {
	if t.store == nil {
		return nil
	}
	set, _ := t.store[0].(zk.SetData)
	return []zk.Op{zk.SetData{Path: set.Path, Data: t.data, Version: set.Version + 1}}
}

// look() reads the path. It returns an error if the path is used by another kind of lock or has another
// program's data.
func (s *Permits) look(ctx context.Context, e *session.Epoch) (semSight, error) {
	p := e.Conn().Pipe()
	data, children := p.Get(s.path), p.Names(s.path)
	p.Send()
	node, err := data.Wait(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		node, err = zk.Node{}, nil
	}
	if err != nil {
		return semSight{}, err
	}
	sight, err := s.sightOf(node)
	if err != nil {
		return semSight{}, err
	}
	if node.Stat.Czxid == 0 {
		sight.store = nil // the node does not exist yet: store the number when the next look() finds it
	}
	names, err := children.Wait(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return sight, nil
	}
	if err == nil {
		err = alone(ctx, e, s.path, s.d.use, names.List())
	}
	return sight, err
}

// sightOf reads the number of permits in the path's node.
func (s *Permits) sightOf(n zk.Node) (semSight, error) {
	have, rec, err := s.parseLimit(n.Data)
	switch wish := int(s.wish.Load()); {
	case err != nil:
		return semSight{}, err
	case have == 0 && wish == 0:
		return semSight{}, fmt.Errorf("%w: %s stores no limit yet, and the caller gave no limit",
			ErrLimitMismatch,
			s.path)
	case have == 0:
		set := zk.SetData{Path: s.path, Data: s.encodeLimit(rec, wish), Version: n.Stat.Version}
		return semSight{limit: wish, store: []zk.Op{set}, data: n.Data}, nil
	case wish > 0 && have != wish && s.terms.Layout == recipe.LayoutKazoo:
		return semSight{}, fmt.Errorf("%w: %s stores the limit %d, but the caller gave %d", ErrLimitMismatch,
			s.path, have, wish)
	case wish > 0 && have != wish:
		s.told.Do(func() {
			s.c.Keeper.Log().Info("semaphore already stores another number of permits, using the stored number",
				"path", s.path, "stored", have, "given", wish)
			if s.tell != nil {
				s.tell(hold.Event{Kind: hold.EventPermits, Permits: have, Wanted: wish})
			}
		})
	}
	return semSight{limit: have}, nil
}

// parseLimit returns the limit in `data`, the content of the semaphore's node. It returns 0 if there is no
// limit in `data`.
func (s *Permits) parseLimit(data []byte) (int, recipe.Record, error) {
	if s.terms.Layout == recipe.LayoutKazoo {
		if len(data) == 0 {
			return 0, recipe.Record{}, nil
		}
		if _, ok := recipe.ParseRecord(data); ok && data[0] == '{' {
			return 0, recipe.Record{}, fmt.Errorf("%w: %s belongs to another kind of lock",
				recipe.ErrMixedLayout, s.path)
		}
		n, err := strconv.Atoi(string(data))
		if err != nil || n < 1 {
			return 0, recipe.Record{}, fmt.Errorf("%w: the data of %s are %.20q, not a number", ErrLimitMismatch,
				s.path, data)
		}
		return n, recipe.Record{}, nil
	}
	rec, ok := recipe.ParseRecord(data)
	if !ok {
		return 0, rec, fmt.Errorf("%w: %s must store the limit, but has the data %.20q of another program",
			recipe.ErrMixedLayout, s.path, data)
	}
	if rec.Layout != "" {
		return 0, rec, fmt.Errorf("%w: %s belongs to a lock of the kind %q", recipe.ErrMixedLayout, s.path,
			rec.Layout)
	}
	return rec.Limit, rec, nil
}

// encodeLimit returns the data that store a number of permits.
func (s *Permits) encodeLimit(rec recipe.Record, permits int) []byte {
	if s.terms.Layout == recipe.LayoutKazoo {
		return []byte(strconv.Itoa(permits))
	}
	rec.Limit = permits
	return rec.Encode()
}

// Store changes the stored number of permits, unless the path belongs to another kind of lock. A second call
// with the same number is safe.
func (s *Permits) Store(ctx context.Context, e *session.Epoch, permits int) error {
	names, err := e.Conn().Names(ctx, s.path)
	if err == nil {
		err = alone(ctx, e, s.path, s.d.use, names.List())
	}
	if err == nil {
		err = e.Update(ctx, s.path, func(data []byte) ([]byte, error) {
			have, rec, err := s.parseLimit(data)
			if err != nil || have == permits {
				return nil, err
			}
			return s.encodeLimit(rec, permits), nil
		})
	}
	if errors.Is(err, zk.ErrNoNode) {
		if err = e.Ensure(ctx, s.path, s.terms.Lasting(), s.terms.ACL); err == nil {
			err = session.ErrAgain
		}
	}
	return err
}

// Stored notes that a call has stored this number of permits.
func (s *Permits) Stored(permits int) { s.wish.Store(int64(permits)) }

// free() returns the permits in use. It also returns ErrNotAcquired if fewer than n permits are free.
func (s *Permits) free(ctx context.Context, e *session.Epoch, a *attempt, limit, n int) (
	used []string, err error) {
	used, err = e.Children(ctx, s.d.leases)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	do, err := turns.DecidePermits(limit, len(used), n)
	if err == nil && do == turns.Wait {
		a.waitsForPermits("", s.d.leases, used)
		err = hold.ErrNotAcquired
	}
	return used, err
}
