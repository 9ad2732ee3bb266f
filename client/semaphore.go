package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Semaphore has a limited number of permits, and serves its waiters in the order of arrival.
//
// The first use stores the limit; a client with another limit gets ErrLimitMismatch. The tokens of
// permits identify holds but do not order them: [Client.CheckSequencer] can check them, "highest
// wins" cannot.
type Semaphore struct {
	c     *Client
	path  string
	cfg   *options
	limit atomic.Int64
	d     semLayout
}

// semLayout says where the parts of a semaphore are.
type semLayout struct {
	lock, leases string // directories
	q            queue
	leaseName    func(id recipe.ID) string
	mode         zk.Mode // of the permits
	use          use
}

// Semaphore returns the semaphore on path with the given limit of permits; with limit 0, the stored
// limit counts. Nothing is sent before it is used.
func (c *Client) Semaphore(path string, limit int, opts ...Option) *Semaphore {
	s := &Semaphore{c: c, path: path, cfg: c.locks.with(opts)}
	s.limit.Store(int64(limit))
	s.d = semLayoutOf(s.cfg.layout, path)
	return s
}

func semLayoutOf(l Layout, path string) semLayout {
	if l == LayoutKazoo {
		return semLayout{lock: path + "-__lock__", leases: path,
			q: queue{recipe.Rule{Layout: l, Kind: recipe.RoleLock}}, leaseName: recipe.ID.Hex,
			mode: zk.Ephemeral, use: useBarePermits}
	}
	return semLayout{
		lock: recipe.Join(path, "locks"), leases: recipe.Join(path, recipe.PermitsName),
		q: queue{recipe.Rule{Layout: l, Kind: recipe.RoleLock}}, mode: zk.EphemeralSequential, use: usePermits,
		leaseName: func(id recipe.ID) string { return recipe.NodeName(l, recipe.RoleLease, id, "") },
	}
}

// Acquire waits until n permits are granted or ctx ends. The lease stands for all n permits.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, n, false, opts)
}

// TryAcquire takes n permits if they are free and no other contender waits for permits, and returns
// ErrNotAcquired otherwise.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, n, true, opts)
}

func (s *Semaphore) acquire(ctx context.Context, n int, try bool, opts []Option) (*Lease, error) {
	if err := s.check(n); err != nil {
		return nil, err
	}
	cfg := s.cfg.with(opts)
	if cfg.layout != s.cfg.layout {
		return nil, errorAt(s.path, fmt.Errorf("%w: a semaphore's layout is not that of a call", ErrInvalid))
	}
	dirs := []string{s.d.lock, s.d.leases}
	a := &attempt{path: s.path, dir: s.d.lock, dirs: dirs, mode: fence.Permit, try: try, cfg: cfg}
	return s.c.acquire(ctx, a, func(ctx context.Context, e *epoch, a *attempt) (*hold, error) {
		return s.compete(ctx, e, a, n)
	})
}

func (s *Semaphore) check(n int) error {
	limit := int(s.limit.Load())
	switch {
	case s.cfg.layout != LayoutCurator && s.cfg.layout != LayoutKazoo:
		return errorAt(s.path, fmt.Errorf("%w: semaphores have no layout %v", ErrUnsupported, s.cfg.layout))
	case n < 1 || limit < 0 || limit > 0 && n > limit:
		return errorAt(s.path, fmt.Errorf("%w: %d permits of %d", ErrInvalid, n, limit))
	}
	return nil
}

// Do runs f while it holds one permit; see [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, f func(context.Context, *Lease) error, opts ...Option) error {
	l, err := s.Acquire(ctx, 1, opts...)
	return l.do(ctx, err, f)
}

// Path returns the path of the semaphore.
func (s *Semaphore) Path() string { return s.path }

// compete takes the lock at the head of the queue, waits there for permits, and gives the lock
// back. Only the head waits for permits, so a release wakes one contender.
func (s *Semaphore) compete(ctx context.Context, e *epoch, a *attempt, n int) (*hold, error) {
	if a.try {
		// A try looks before it writes.
		if err := e.tryLook(ctx, s.path, func() error { return s.free(ctx, e, a, n) }); err != nil {
			return nil, err
		}
	}
	head, cfg := *a, *a.cfg // of the lock at the head of the queue: only what describes its owner applies
	cfg.lockDelay, cfg.limit, cfg.earlyUnlock = 0, Limit{}, true
	head.leave, head.cfg, head.permits = func() {}, &cfg, true
	ih, err := s.d.q.run(ctx, e, &head)
	if err != nil {
		return nil, err
	}
	h, err := s.take(ctx, a, ih, n)
	// No caller knows of the lock at the head. The client's next request, a try above all, must not find
	// it.
	_ = ih.release(ctx)
	if err == nil {
		a.leave() // the local queue is for the head of the other one
	}
	return h, lostPlace(err)
}

// free returns ErrNotAcquired if n permits are not free.
func (s *Semaphore) free(ctx context.Context, e *epoch, a *attempt, n int) error {
	var limit int
	var used []string
	dir, err := e.conn.Get(ctx, s.path)
	if err == nil {
		limit, _, err = s.parseLimit(dir.Data)
	}
	if err == nil {
		used, err = e.children(ctx, s.d.leases)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case err == nil && limit > 0 && len(used)+n > limit:
		a.waitsForPermits("", s.d.leases, used)
		return ErrNotAcquired
	}
	return err
}

// take waits, as the head of the queue, until n permits are free, and takes them.
func (s *Semaphore) take(ctx context.Context, a *attempt, head *hold, n int) (*hold, error) {
	e := head.e
	if err := s.storeLimit(ctx, e); err != nil {
		return nil, err
	}
	mine := waiter{created: created{path: head.nodes[0].path}, c: s.c, e: e, a: a, own: head.nodes[0].w}
	safety := e.recheck(true)
	for {
		limit, limitW, err := s.watchLimit(ctx, e)
		if err != nil {
			return nil, err
		}
		if n > limit {
			return nil, fmt.Errorf("%w: %d permits of %d", ErrInvalid, n, limit)
		}
		used, usedW, err := e.list(ctx, s.d.leases, true)
		if errors.Is(err, zk.ErrNoNode) {
			if err = s.c.ensureFor(ctx, e, s.d.leases, a.cfg.lasting(), a.cfg.acl); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if len(used)+n <= limit {
			h, err := s.grab(ctx, a, head, n)
			if !errors.Is(err, zk.ErrNoNode) {
				return h, err
			}
			if err := mine.lookOwn(ctx); err != nil { // the own node is gone, if not the directory
				return nil, err
			}
			continue
		}
		a.waitsForPermits(mine.path, s.d.leases, used)
		if a.try {
			return nil, ErrNotAcquired
		}
		if err := mine.watchOwn(ctx); err != nil {
			return nil, err
		}
		if err := e.rest(ctx, safety, limitW.Fired(), usedW.Fired(), mine.own.Fired()); err != nil {
			return nil, err
		}
	}
}

// grab creates the nodes of n permits, on condition that the node of the head's lock still exists.
// If another client has removed it, another head may be counting the same permits.
func (s *Semaphore) grab(ctx context.Context, a *attempt, head *hold, n int) (*hold, error) {
	e, nodes := head.e, make([]newNode, n)
	for i := range nodes {
		id := newNodeID(e.sid)
		path := recipe.Join(s.d.leases, s.d.leaseName(id))
		nodes[i] = newNode{lasting: a.cfg.lasting(),
			Create: zk.Create{Path: path, Data: a.data(), ACL: a.cfg.acl, Mode: s.d.mode}}
	}
	nodes[0].also = []zk.Op{zk.Check{Path: head.nodes[0].path, Version: -1}}
	made, _, err := s.c.create(ctx, e, nodes...)
	if err != nil {
		return nil, err
	}
	held := make([]heldNode, n)
	for i, m := range made {
		held[i] = heldNode{path: m.path}
	}
	if !e.valid() {
		err = ErrSessionExpired
	} else {
		err = s.c.aloneNow(ctx, e, s.path, s.d.use, nil)
	}
	if err != nil {
		s.c.reap(e, pathsOf(held)...)
		return nil, err
	}
	return newHold(a, e, fence.Permit, fence.Token(made[0].stat.Czxid), held...), nil
}

// parseLimit returns the stored limit, 0 if no limit is stored.
func (s *Semaphore) parseLimit(data []byte) (int, recipe.Record, error) {
	if s.cfg.layout == LayoutKazoo {
		if len(data) == 0 {
			return 0, recipe.Record{}, nil
		}
		if _, ok := recipe.ParseRecord(data); ok && data[0] == '{' {
			return 0, recipe.Record{}, fmt.Errorf("%w: %s is of a lock of another kind", ErrMixedLayout, s.path)
		}
		n, err := strconv.Atoi(string(data))
		if err != nil || n < 1 {
			return 0, recipe.Record{}, fmt.Errorf("%w: %s has the data %.20q", ErrLimitMismatch, s.path, data)
		}
		return n, recipe.Record{}, nil
	}
	rec, ok := recipe.ParseRecord(data)
	if !ok {
		return 0, rec, fmt.Errorf("%w: %s has the data %.20q of another program where the limit is stored",
			ErrMixedLayout, s.path, data)
	}
	if rec.Layout != "" {
		return 0, rec, fmt.Errorf("%w: %s is of a lock of the kind %q", ErrMixedLayout, s.path, rec.Layout)
	}
	return rec.Limit, rec, nil
}

// changeLimit stores what f makes of the stored limit.
func (s *Semaphore) changeLimit(ctx context.Context, e *epoch, f func(have int) (int, error)) error {
	for {
		err := e.update(ctx, s.path, func(data []byte) ([]byte, error) {
			have, rec, err := s.parseLimit(data)
			if err != nil {
				return nil, err
			}
			want, err := f(have)
			if err != nil || want == have {
				return nil, err
			}
			if s.cfg.layout == LayoutKazoo {
				return []byte(strconv.Itoa(want)), nil
			}
			rec.Limit = want
			return rec.Encode(), nil
		})
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := s.c.ensureFor(ctx, e, s.path, s.cfg.lasting(), s.cfg.acl); err != nil {
			return err
		}
	}
}

// storeLimit compares the stored limit with this client's, or stores that.
func (s *Semaphore) storeLimit(ctx context.Context, e *epoch) error {
	want := int(s.limit.Load())
	err := s.changeLimit(ctx, e, func(have int) (int, error) {
		switch {
		case have == 0 && want == 0:
			return 0, fmt.Errorf("%w: %s has none yet, and none was given", ErrLimitMismatch, s.path)
		case have == 0:
			return want, nil
		case want > 0 && have != want:
			return 0, fmt.Errorf("%w: %s has %d, not %d", ErrLimitMismatch, s.path, have, want)
		}
		return have, nil
	})
	if errors.Is(err, zk.ErrNoAuth) {
		return nil // may not be stored: the callers' word must do
	}
	return err
}

// watchLimit returns the limit that counts now, and watches it.
func (s *Semaphore) watchLimit(ctx context.Context, e *epoch) (int, *zk.Watch, error) {
	n, w, err := e.conn.GetW(ctx, s.path)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil, &requeueError{ErrNodeRemoved}
	}
	if err != nil {
		return 0, nil, err
	}
	limit, _, err := s.parseLimit(n.Data)
	if err == nil && limit == 0 {
		limit = int(s.limit.Load())
	}
	return limit, w, err
}

// SetLimit changes the limit. Waiters take the new limit into account. A lower limit takes no
// permit away: the number in use shrinks as holders give permits back.
func (s *Semaphore) SetLimit(ctx context.Context, limit int) error {
	if err := s.check(1); err != nil {
		return err
	}
	if limit < 1 {
		return errorAt(s.path, fmt.Errorf("%w: limit %d", ErrInvalid, limit))
	}
	err := s.c.steadily(ctx, s.path, func(e *epoch) error {
		return s.changeLimit(ctx, e, func(int) (int, error) { return limit, nil })
	})
	if err == nil {
		s.limit.Store(int64(limit))
	}
	return err
}
