package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Semaphore has a limited number of permits, and serves its waiters in the order of arrival.
//
// The number of permits is stored at the path. A program's number is its wish for a path that stores
// none yet; where it differs, the stored number counts. The tokens of permits identify holds but do not
// order them: [Client.CheckSequencer] can check them, "highest wins" cannot.
type Semaphore struct {
	c    *Client
	path string
	cfg  *options
	wish atomic.Int64 // the number given
	d    semLayout
	told sync.Once // that another number is stored
}

// semLayout says where the parts of a semaphore are.
type semLayout struct {
	lock, leases string // directories
	q            queue
	leaseName    func(id recipe.ID) string
	mode         zk.Mode // of the permits
	use          recipe.Use
}

// Semaphore returns the semaphore on path. It has the number of permits that is stored there, or else
// permits, which the first use stores; with 0 only the stored number will do. Beside kazoo, which
// refuses another number, so does this client ([LayoutKazoo]). Nothing is sent before it is used.
func (c *Client) Semaphore(path string, permits int, opts ...Option) *Semaphore {
	cfg := c.locks.with(opts)
	s := &Semaphore{c: c, path: path, cfg: cfg, d: semLayoutOf(cfg.layout, path)}
	s.wish.Store(int64(permits))
	return s
}

func semLayoutOf(l Layout, path string) semLayout {
	if l == LayoutKazoo {
		return semLayout{lock: path + "-__lock__", leases: path,
			q: queue{recipe.Rule{Layout: l, Kind: recipe.RoleLock}}, leaseName: recipe.ID.Hex,
			mode: zk.Ephemeral, use: recipe.UseBarePermits}
	}
	return semLayout{
		lock: recipe.Join(path, "locks"), leases: recipe.Join(path, recipe.PermitsName),
		q: queue{recipe.Rule{Layout: l, Kind: recipe.RoleLock}}, mode: zk.EphemeralSequential,
		use:       recipe.UsePermits,
		leaseName: func(id recipe.ID) string { return recipe.NodeName(l, recipe.RoleLease, id, "") },
	}
}

// Acquire waits until n permits are granted or ctx ends. The lease stands for all n permits.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, n, false, opts)
}

// TryAcquire takes n permits if so many are free and no other contender waits for permits, and returns
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
	switch {
	case s.cfg.layout != LayoutCurator && s.cfg.layout != LayoutKazoo:
		return errorAt(s.path, fmt.Errorf("%w: semaphores have no layout %v", ErrUnsupported, s.cfg.layout))
	case n < 1 || s.wish.Load() < 0:
		return errorAt(s.path, fmt.Errorf("%w: %d permits of %d", ErrInvalid, n, s.wish.Load()))
	}
	return nil
}

// Do runs f while it holds n permits; see [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, n int, f func(context.Context, *Lease) error,
	opts ...Option) error {
	l, err := s.Acquire(ctx, n, opts...)
	return l.do(ctx, err, f)
}

// Path returns the path of the semaphore.
func (s *Semaphore) Path() string { return s.path }

// compete takes the lock at the head of the queue, waits there for permits, and gives the lock
// back. Only the head waits for permits, so a release wakes one contender. Before it makes a node it
// looks whether the path is free or a semaphore's.
func (s *Semaphore) compete(ctx context.Context, e *epoch, a *attempt, n int) (*hold, error) {
	if a.try && s.cfg.layout == LayoutCurator {
		h, err := s.try(ctx, e, a, n)
		return h, lostPlace(err)
	}
	look := func() error {
		sight, err := s.look(ctx, e)
		if err == nil && a.try {
			err = s.free(ctx, e, a, sight.limit, n)
		}
		return err
	}
	var err error
	if a.try {
		err = e.tryLook(ctx, s.path, look)
	} else {
		err = look()
	}
	if err != nil {
		return nil, err
	}
	head, cfg := *a, *a.cfg // of the lock at the head of the queue: only what describes its owner applies
	cfg.lockDelay, cfg.maxHold, cfg.linger = 0, 0, false
	head.leave, head.cfg, head.permits = func() {}, &cfg, true
	ih, err := s.d.q.run(ctx, e, &head)
	if err != nil {
		return nil, err
	}
	h, err := s.take(ctx, a, ih, n)
	// No caller knows of the lock at the head. The client's next request, a try above all, must not find
	// it.
	_ = ih.release(ctx, true)
	if err == nil {
		a.leave() // the local queue is for the head of the other one
	}
	return h, lostPlace(err)
}

// free returns ErrNotAcquired if n permits are not free.
func (s *Semaphore) free(ctx context.Context, e *epoch, a *attempt, limit, n int) error {
	used, err := e.children(ctx, s.d.leases)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	do, err := recipe.DecidePermits(limit, len(used), n)
	if err == nil && do == recipe.Wait {
		a.waitsForPermits("", s.d.leases, used)
		err = ErrNotAcquired
	}
	return err
}

// take waits, as the head of the queue, until n permits are free, and takes them.
func (s *Semaphore) take(ctx context.Context, a *attempt, head *hold, n int) (*hold, error) {
	e := head.e
	mine := waiter{created: created{path: head.nodes[0].path}, c: s.c, e: e, a: a, own: head.nodes[0].w}
	safety, unstored := e.recheck(true), false
	for {
		node, limitW, err := e.conn.GetW(ctx, s.path)
		if errors.Is(err, zk.ErrNoNode) { // with kazoo's layout the queue is beside the path
			if err = mine.lookOwn(ctx); err == nil {
				err = s.c.ensureFor(ctx, e, s.d.leases, a.cfg.lasting(), a.cfg.acl)
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		sight, err := s.sightOf(node)
		if err != nil {
			return nil, err
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
		do, err := recipe.DecidePermits(sight.limit, len(used), n)
		if err != nil {
			return nil, err
		}
		if do == recipe.Grant {
			if unstored {
				sight.store = nil
			}
			nodes := s.permits(e, a, n)
			nodes[0].also = append([]zk.Op{zk.Check{Path: head.nodes[0].path, Version: -1}}, sight.store...)
			made, err := s.grab(ctx, e, nodes)
			switch {
			case s.mayNotStore(err, nodes):
				unstored = true
				continue
			case errors.Is(err, zk.ErrBadVersion):
				continue // another client stored a number
			case errors.Is(err, zk.ErrNoNode):
				if err := mine.lookOwn(ctx); err != nil { // the own node is gone, if not the directory
					return nil, err
				}
				continue
			case err != nil:
				return nil, err
			}
			if err := s.c.aloneNow(ctx, e, s.path, s.d.use, nil); err != nil {
				s.c.reapMarked(e, pathsOfMade(made), sight.undo())
				return nil, err
			}
			return s.holdOf(a, e, made)
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

// tryAgain is how often a try looks again because another contender passes the queue.
const tryAgain = 5

// try takes permits without a place in the queue: it makes their nodes and is judged by their place.
// recipe.TryPermits decides. While another contender is in the queue the try takes its permits back. If
// so many are free, that contender is about to have its own, and the try looks again.
func (s *Semaphore) try(ctx context.Context, e *epoch, a *attempt, n int) (*hold, error) {
	unstored := false
	for tries := 0; ; {
		var sight semSight
		var before zk.Names
		err := e.tryLook(ctx, s.path, func() (err error) {
			if sight, err = s.look(ctx, e); err != nil {
				return err
			}
			return s.free(ctx, e, a, sight.limit, n)
		})
		if err == nil {
			before, err = s.queue(ctx, e)
		}
		if err != nil {
			return nil, err
		}
		if before.Len() > 0 { // a contender waits, or passes
			if tries++; tries == tryAgain {
				return nil, ErrNotAcquired
			}
			if err := pause(ctx, backoff(tries, time.Millisecond, 10*time.Millisecond)); err != nil {
				return nil, err
			}
			continue
		}
		if unstored {
			sight.store = nil
		}
		nodes := s.permits(e, a, n)
		nodes[0].also = sight.store
		made, err := s.grab(ctx, e, nodes)
		switch {
		case s.mayNotStore(err, nodes):
			unstored = true
			continue
		case errors.Is(err, zk.ErrBadVersion):
			continue
		case errors.Is(err, zk.ErrNoNode): // there is no directory yet
			if err := s.c.ensureFor(ctx, e, s.d.leases, a.cfg.lasting(), a.cfg.acl); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		}
		verdict, err := s.judge(ctx, e, sight.limit, before, made)
		if err == nil && verdict == recipe.PermitsGranted {
			err = s.c.aloneNow(ctx, e, s.path, s.d.use, nil)
		}
		if err == nil && verdict == recipe.PermitsGranted {
			a.leave()
			return s.holdOf(a, e, made)
		}
		undo := sight.undo()
		if err == nil || !errors.Is(err, ErrMixedLayout) {
			undo = nil
		}
		awaitGone(ctx, s.c.reapMarked(e, pathsOfMade(made), undo))
		if err != nil {
			return nil, err
		}
		if tries++; verdict == recipe.PermitsRefused || tries == tryAgain {
			return nil, ErrNotAcquired
		}
	}
}

// queue lists the contenders that wait for permits.
func (s *Semaphore) queue(ctx context.Context, e *epoch) (zk.Names, error) {
	names, err := e.conn.Names(ctx, s.d.lock)
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return names, err
}

// judge decides about the permits that a try made. The queue is listed before the permits.
func (s *Semaphore) judge(
	ctx context.Context, e *epoch, limit int, before zk.Names, own []created,
) (recipe.PermitVerdict, error) {
	p := e.conn.Pipe()
	queue, permits := p.Names(s.d.lock), p.Names(s.d.leases)
	p.Send()
	after, err := queue.Wait(ctx)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return 0, err
	}
	all, err := permits.Wait(ctx)
	if err != nil {
		return 0, err
	}
	quiet := before.Stat.Czxid == after.Stat.Czxid && before.Stat.Cversion == after.Stat.Cversion
	return recipe.TryPermits(limit, all.List(), own[len(own)-1].name, after.Len(), quiet), nil
}

// permits describes the nodes of n new permits.
func (s *Semaphore) permits(e *epoch, a *attempt, n int) []newNode {
	nodes := make([]newNode, n)
	for i := range nodes {
		path := recipe.Join(s.d.leases, s.d.leaseName(newNodeID(e.sid)))
		nodes[i] = newNode{lasting: a.cfg.lasting(),
			Create: zk.Create{Path: path, Data: a.data(), ACL: a.cfg.acl, Mode: s.d.mode}}
	}
	return nodes
}

// grab creates the nodes of permits. For the head of the queue it does so on condition that the node of
// the head's lock still exists: if another client has removed it, another head may be counting the same
// permits.
func (s *Semaphore) grab(ctx context.Context, e *epoch, nodes []newNode) ([]created, error) {
	if nodes[0].also == nil {
		nodes[0].also = []zk.Op{} // a missing directory is an error
	}
	made, _, err := s.c.create(ctx, e, nodes...)
	return made, err
}

func pathsOfMade(made []created) []string {
	paths := make([]string, len(made))
	for i, m := range made {
		paths[i] = m.path
	}
	return paths
}

// mayNotStore reports whether the client may make the nodes but not store the number of permits. Then
// the callers' word must do.
func (s *Semaphore) mayNotStore(err error, nodes []newNode) bool {
	refused, ok := errors.AsType[*zk.MultiError](err)
	return ok && errors.Is(err, zk.ErrNoAuth) && refused.Index >= len(nodes)
}

// holdOf returns the hold of permits.
func (s *Semaphore) holdOf(a *attempt, e *epoch, made []created) (*hold, error) {
	if !e.valid() {
		s.c.reap(e, pathsOfMade(made)...)
		return nil, ErrSessionExpired
	}
	held := make([]heldNode, len(made))
	for i, m := range made {
		held[i] = heldNode{path: m.path}
	}
	return newHold(a, e, fence.Permit, fence.Token(made[0].stat.Czxid), held...), nil
}
