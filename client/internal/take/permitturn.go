package take

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// permitting is an attempt to take n permits: either by the head of the queue, or by a call that may not wait
// and has no place in the queue.
type permitting struct {
	s        *Permits
	e        *session.Epoch
	a        *attempt
	n        int
	sight    semSight // what the last call of look() found
	used     []string // the permits in use when they were last listed
	skip     int      // how many free numbers this attempt leaves to others
	unstored bool     // the client may make the nodes, but not store the number of permits
}

// grab() makes the nodes of the permits and gives them free numbers. The same transaction contains the
// operations in `check`, and stores the number of permits if none is stored. If grab() returns neither nodes
// nor an error, the contender looks again. A missing directory is an error.
func (p *permitting) grab(ctx context.Context, check ...zk.Op) ([]session.Made, error) {
	if p.unstored {
		p.sight.store = nil
	}
	nodes := p.s.permits(p.e, p.a, turns.FreeSlots(p.sight.limit, p.used, p.n, p.skip))
	nodes[0].Also = append(append([]zk.Op{}, check...), p.sight.store...)
	made, _, err := p.e.Create(ctx, nodes...)
	switch {
	case mayNotStore(err, nodes):
		p.unstored = true
		return nil, nil
	case errors.Is(err, zk.ErrBadVersion): // another client stored a number, so look again
		return nil, nil
	}
	return made, err
}

// ensure() makes the directory of the permits.
func (p *permitting) ensure(ctx context.Context) error {
	return p.e.Ensure(ctx, p.s.d.leases, p.a.Terms.Lasting(), p.a.Terms.ACL)
}

// permitHead is the head of the queue, which waits until its permits are free.
type permitHead struct {
	permitting
	own           waiter // the attempt's place in the queue
	limitW, usedW *zk.Watch
	safety        <-chan time.Time
}

func newPermitHead(s *Permits, a *attempt, turn *hold.Grant, n int) *permitHead {
	e := turn.Epoch
	return &permitHead{
		permitting: permitting{s: s, e: e, a: a, n: n}, safety: e.Recheck(true),
		own: waiter{Made: session.Made{Path: turn.Nodes[0].Path}, c: s.c, e: e, a: a, own: turn.Nodes[0].Watch},
	}
}

// next() reads the number of permits, and then which permits are in use.
func (p *permitHead) next(ctx context.Context) (turns.Step, error) {
	for {
		err := p.look(ctx)
		if !errors.Is(err, zk.ErrNoNode) {
			if err != nil {
				return turns.Step{}, err
			}
			do, err := turns.DecidePermits(p.sight.limit, len(p.used), p.n)
			return turns.Step{Do: do}, err
		}
		// With kazoo's layout, the queue is not below the path. So the path may be missing although the attempt's
		// own node exists. If that node still exists, make the path.
		if err := p.own.lookOwn(ctx); err != nil {
			return turns.Step{}, err
		}
		if err := p.ensure(ctx); err != nil {
			return turns.Step{}, err
		}
	}
}

func (p *permitHead) look(ctx context.Context) error {
	node, limitW, err := p.e.Conn().GetW(ctx, p.s.path)
	if err == nil {
		p.sight, err = p.s.sightOf(node)
	}
	if err == nil {
		p.limitW = limitW
		p.used, p.usedW, err = p.e.List(ctx, p.s.d.leases, true)
	}
	return err
}

// act() takes the permits if the attempt's node in the queue still exists. Without that node, another attempt
// may be the head of the queue and take the same permits.
func (p *permitHead) act(ctx context.Context, step turns.Step) (*hold.Grant, error) {
	if step.Do == turns.Wait {
		p.a.waitsForPermits(p.own.Path, p.s.d.leases, p.used)
		if p.a.Try {
			return nil, hold.ErrNotAcquired
		}
		if err := p.own.watchOwn(ctx); err != nil {
			return nil, err
		}
		return nil, p.e.Rest(ctx, p.safety, p.limitW.Fired(), p.usedW.Fired(), p.own.own.Fired())
	}
	made, err := p.grab(ctx, zk.Check{Path: p.own.Path, Version: -1})
	switch {
	case errors.Is(err, zk.ErrNoNode): // the attempt's own node or the directory is gone
		return nil, p.own.lookOwn(ctx)
	case made == nil || err != nil:
		return nil, err
	}
	if err := aloneNow(ctx, p.e, p.s.path, p.s.d.use, nil); err != nil {
		p.e.ReapMarked(pathsOfMade(made), p.sight.undo())
		return nil, err
	}
	return p.s.holdOf(p.a, p.e, made, p.used)
}

// permitTry takes permits without waiting and without a place in the queue. It makes the nodes of its
// permits, and turns.TryPermits decides by the places of these nodes. If another contender is in the queue,
// permitTry removes its nodes. If enough permits are free nevertheless, the other contender is about to get
// its permits, and permitTry begins again.
type permitTry struct {
	permitting
	before zk.Names // the queue, before the permits were made
	tries  int
	taken  int // how often another client took the chosen numbers first
}

// tryAgain bounds how often permitTry begins again because another contender is in the queue.
const tryAgain = 5

// takenAgain bounds how often permitTry chooses other numbers because another client took the same numbers
// first. Each time, at least one client gets its numbers.
const takenAgain = 100

func (t *permitTry) next(ctx context.Context) (turns.Step, error) {
	err := tryLook(ctx, t.e, t.s.path, func() (err error) {
		if t.sight, err = t.s.look(ctx, t.e); err != nil {
			return err
		}
		t.used, err = t.s.free(ctx, t.e, t.a, t.sight.limit, t.n)
		return err
	})
	if err == nil {
		t.before, err = t.s.queue(ctx, t.e)
	}
	// The queue is not empty: a contender waits, or has got its permits and is about to leave.
	if err == nil && t.before.Len() > 0 {
		return turns.Step{Do: turns.Wait}, nil
	}
	return turns.Step{Do: turns.Grant}, err
}

func (t *permitTry) act(ctx context.Context, step turns.Step) (*hold.Grant, error) {
	if step.Do == turns.Wait {
		if t.tries++; t.tries == tryAgain {
			return nil, hold.ErrNotAcquired
		}
		return nil, session.Pause(ctx, session.Backoff(t.tries, time.Millisecond, 10*time.Millisecond))
	}
	made, err := t.grab(ctx)
	switch {
	case errors.Is(err, zk.ErrNoNode): // there is no directory yet
		return nil, t.ensure(ctx)
	case made == nil || err != nil:
		return nil, err
	}
	verdict, all, err := t.judge(ctx, made)
	if err == nil && verdict == turns.PermitsGranted {
		err = aloneNow(ctx, t.e, t.s.path, t.s.d.use, nil)
	}
	if err == nil && verdict == turns.PermitsGranted {
		t.a.leave()
		return t.s.holdOf(t.a, t.e, made, all)
	}
	undo := t.sight.undo()
	if err == nil || !errors.Is(err, recipe.ErrMixedLayout) {
		undo = nil
	}
	session.AwaitGone(ctx, t.e.ReapMarked(pathsOfMade(made), undo))
	if err != nil {
		return nil, err
	}
	if verdict == turns.PermitsTaken && t.taken < takenAgain {
		t.taken++
		// Choose numbers at random. Otherwise all calls that came too late would again choose the lowest free ones.
		t.skip = rand.IntN(t.sight.limit)
		return nil, nil
	}
	if t.tries++; verdict == turns.PermitsRefused || t.tries == tryAgain {
		return nil, hold.ErrNotAcquired
	}
	return nil, nil
}

// queue() lists the contenders that wait for permits.
func (s *Permits) queue(ctx context.Context, e *session.Epoch) (zk.Names, error) {
	names, err := e.Conn().Names(ctx, s.d.lock)
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return names, err
}

// judge() decides about the permits that a call made without waiting, and returns all permits. It lists the
// queue before the permits. So it does not miss a contender that takes permits and leaves the queue in
// between.
func (t *permitTry) judge(ctx context.Context, own []session.Made) (turns.PermitVerdict, []string, error) {
	p := t.e.Conn().Pipe()
	queue, permits := p.Names(t.s.d.lock), p.Names(t.s.d.leases)
	p.Send()
	after, err := queue.Wait(ctx)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return 0, nil, err
	}
	all, err := permits.Wait(ctx)
	if err != nil {
		return 0, nil, err
	}
	quiet := t.before.Stat.Czxid == after.Stat.Czxid && t.before.Stat.Cversion == after.Stat.Cversion
	mine := make([]string, len(own))
	for i, m := range own {
		mine[i] = m.Name
	}
	return turns.TryPermits(t.sight.limit, all.List(), mine, after.Len(), quiet), all.List(), nil
}

// permits() returns the nodes to create for permits with the numbers in `slots`.
func (s *Permits) permits(e *session.Epoch, a *attempt, slots []int) []session.Node {
	nodes := make([]session.Node, len(slots))
	for i := range nodes {
		path := recipe.Join(s.d.leases, s.d.leaseName(newNodeID(e.ID()), slots[i]))
		nodes[i] = session.Node{Lasting: a.Terms.Lasting(),
			Create: zk.Create{Path: path, Data: a.data(), ACL: a.Terms.ACL, Mode: s.d.mode}}
	}
	return nodes
}

func pathsOfMade(made []session.Made) []string {
	paths := make([]string, len(made))
	for i, m := range made {
		paths[i] = m.Path
	}
	return paths
}

// mayNotStore reports whether the client may make the nodes but not store the number of permits. Then the
// client uses the number that its callers give.
func mayNotStore(err error, nodes []session.Node) bool {
	refused, ok := errors.AsType[*zk.MultiError](err)
	return ok && errors.Is(err, zk.ErrNoAuth) && refused.Index >= len(nodes)
}

// holdOf returns a hold of the permits just made. The argument `beside` is the list of permits that the
// attempt last saw.
func (s *Permits) holdOf(a *attempt, e *session.Epoch, made []session.Made, beside []string) (
	*hold.Grant, error) {
	if !e.Valid() {
		e.Reap(pathsOfMade(made)...)
		return nil, zk.ErrSessionExpired
	}
	held := make([]hold.Node, len(made))
	for i, m := range made {
		held[i] = hold.Node{Path: m.Path}
	}
	g := a.granted(e, fence.Token(made[0].Stat.Czxid), held...)
	switch other := turns.Unnumbered(beside); {
	case !s.d.numbered:
		g.Unnumbered = fmt.Errorf("%w: the layout is %v", ErrNoSlots, s.terms.Layout)
	case other != "":
		g.Unnumbered = fmt.Errorf("%w: %s belongs to another program or to an older release", ErrNoSlots,
			recipe.Join(s.d.leases, other))
	}
	return g, nil
}
