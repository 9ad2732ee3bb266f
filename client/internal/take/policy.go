package take

import (
	"context"
	"errors"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// UnderPolicy takes a read-write lock with a policy. Package turns decides; this file reads the facts for
// the decisions, and carries the decisions out.
func (c *Client) UnderPolicy(ctx context.Context, ask Ask) (*hold.Lease, error) {
	return c.acquire(ctx, &attempt{Ask: ask, dir: ask.Path}, underPolicy)
}

func underPolicy(ctx context.Context, e *session.Epoch, a *attempt) (*hold.Grant, error) {
	w := newPolicyWaiter(a, e, newNodeID(e.ID()))
	g, err := w.compete(ctx)
	if err != nil {
		w.withdraw(ctx, errors.Is(err, hold.ErrNotAcquired), errors.Is(err, recipe.ErrMixedLayout))
	}
	return g, lostPlace(err)
}

// policyWaiter is one attempt in one session.
type policyWaiter struct {
	waiter
	queued bool
	synced bool // the server was asked to catch up, so a refusal is final
	dir    policyDir

	upgrades bool // the field `id` belongs to a read hold that upgrades
	entered  bool // the attempt has read the record and made its queue node just now

	closed bool // this attempt has closed the door at least once
}

func newPolicyWaiter(a *attempt, e *session.Epoch, id recipe.ID) *policyWaiter {
	return &policyWaiter{
		waiter: waiter{c: a.c, e: e, a: a, id: id},
		dir:    policyDir{c: a.c, e: e, path: a.dir},
	}
}

func (w *policyWaiter) reads() bool { return w.a.Mode == fence.Shared }

// compete() decides and acts until the lock is held.
func (w *policyWaiter) compete(ctx context.Context) (*hold.Grant, error) {
	if !w.reads() && !w.a.Try {
		// A writer cannot decide anything before it has a place in the queue. So read the record, and make the
		// place.
		if err := w.dir.read(ctx, w.a.Terms); err != nil {
			return nil, err
		}
		if !w.dir.unmade { // without a record, contend() first looks whether the path is free
			if err := w.enqueue(ctx); err != nil {
				return nil, err
			}
		}
	}
	return contend(ctx, w)
}

// next() looks and decides. It refuses a call that may not wait only after a sync, because the server may lag
// behind.
func (w *policyWaiter) next(ctx context.Context) (turns.Step, error) {
	if err := w.look(ctx); err != nil {
		return turns.Step{}, err
	}
	step, err := w.decide()
	if errors.Is(err, hold.ErrNotAcquired) && !w.synced {
		w.synced, w.dir.fresh = true, false
		if err = w.e.Conn().Sync(ctx, w.a.dir); err == nil {
			return w.next(ctx)
		}
	}
	if err != nil {
		w.waits()
	}
	return step, err
}

// look() reads the record and then the list. It does not read the record again if it has just read it, or if
// the record says that this attempt has closed the door. This is safe: the list is newer than the record in
// any case, and if the record has changed, the server refuses the transaction that follows from the decision.
func (w *policyWaiter) look(ctx context.Context) error {
	known := w.dir.fresh && (w.entered || w.dir.rec.Mark() == w.mark())
	w.entered = false
	if !known {
		if err := w.dir.read(ctx, w.a.Terms); err != nil {
			return err
		}
	}
	return w.dir.list(ctx)
}

// mark() returns the mark that closes the door for this attempt.
func (w *policyWaiter) mark() recipe.Door {
	if w.upgrades {
		return recipe.Door{Owner: w.id, Kind: recipe.DoorUpgrade}
	}
	return recipe.Door{Owner: w.id, Kind: recipe.DoorWrite}
}

// decide() calls the decision functions of package turns.
func (w *policyWaiter) decide() (turns.Step, error) {
	v := w.dir.view(w.a.Terms.Policy)
	v.Overdue = w.queued && !w.reads() && w.untilOverdue() <= 0
	var step turns.Step
	switch {
	case w.reads():
		step = turns.DecideRead(v, w.id, w.queued)
	case w.queued:
		step = turns.DecideWrite(v, w.id)
	case w.a.Try && len(v.Nodes) > 0:
		return turns.Step{}, hold.ErrNotAcquired
	default:
		step = turns.Step{Do: turns.Enqueue}
	}
	if w.a.Try && step.Do != turns.Grant && step.Do != turns.CloseDoor &&
		(step.Do != turns.Enqueue || w.reads()) {
		return turns.Step{}, hold.ErrNotAcquired
	}
	return step, nil
}

// act() carries a decision out. It returns a hold, an error, or neither if the attempt must look
// again.
func (w *policyWaiter) act(ctx context.Context, step turns.Step) (*hold.Grant, error) {
	if step.Do == turns.Grant || step.Do == turns.CloseDoor {
		if wait, err := w.lockDelay(ctx); wait || err != nil {
			return nil, err
		}
		if !w.e.Valid() {
			return nil, w.e.AwaitValid(ctx)
		}
	}
	switch step.Do {
	case turns.Enqueue:
		return nil, w.enqueue(ctx)
	case turns.Wait:
		w.waits()
		return nil, w.awaitStep(ctx, step)
	case turns.CloseDoor:
		w.closed = true
		return nil, w.dir.setDoor(ctx, w.mark())
	case turns.ReopenDoor:
		return nil, w.dir.setDoor(ctx, recipe.Door{})
	case turns.Grant:
		return w.grant(ctx)
	default: // turns.Removed
		return nil, w.displaced()
	}
}

// enqueue takes a place in the queue.
func (w *policyWaiter) enqueue(ctx context.Context) error {
	kind := recipe.QueueWrite
	if w.reads() {
		kind = recipe.QueueRead
	}
	id := newNodeID(w.e.ID())
	path := recipe.Join(w.a.dir, recipe.PolicyNode{ID: id, Kind: kind}.Name(false))
	n := session.Node{Create: zk.Create{Path: path, Data: w.a.data(), ACL: w.a.Terms.ACL,
		Mode: zk.EphemeralSequential}}
	if w.dir.unmade {
		n.Also = w.dir.claim()
	}
	made, _, err := w.e.Create(ctx, n)
	if n.Also != nil && (errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode)) {
		w.dir.fresh = false // another client wrote the record first, or the directory is gone
		return nil
	}
	if err != nil {
		return err
	}
	w.dir.claimed()
	w.Made, w.queued, w.id = made[0], true, id
	w.a.queued(w.Made)
	w.born, w.entered = time.Now(), true
	return nil
}

// holdNode describes the node that stands for the hold. In the transaction that makes the node, the server
// checks the record, and checks or removes the contender's present node.
func (w *policyWaiter) holdNode(txn turns.GrantTxn) session.Node {
	path := func(n recipe.PolicyNode) string {
		if n.Kind.Hold() {
			return recipe.Join(w.a.dir, n.Name(true))
		}
		return w.Path
	}
	also := w.dir.claim()
	if txn.Check.Kind != 0 {
		also = append(also, zk.Check{Path: path(txn.Check), Version: -1})
	}
	if txn.Delete.Kind != 0 {
		also = append(also, zk.Delete{Path: path(txn.Delete), Version: -1})
	}
	return session.Node{Also: also, Create: zk.Create{
		Path: path(txn.Create), Data: w.a.data(), ACL: w.a.Terms.ACL, Mode: zk.Ephemeral,
	}}
}

// grant() makes the hold node and returns the hold.
func (w *policyWaiter) grant(ctx context.Context) (*hold.Grant, error) {
	txn := turns.WriteGrant(w.id)
	if w.reads() {
		txn = turns.ReadGrant(w.id, w.queued)
	}
	asked, n := w.c.Keeper.Now(), w.holdNode(txn)
	n.List = !w.queued
	made, names, err := w.e.Create(ctx, n)
	switch {
	case errors.Is(err, zk.ErrNoNode) && w.queued:
		return nil, w.displaced()
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode): // record changed, or directory gone
		w.dir.fresh = false
		return nil, nil
	case err != nil:
		return nil, err
	}
	w.dir.claimed()
	node, stat := n.Path, made[0].Stat
	nodes := []hold.Node{{Path: node}}
	if n.List {
		// A contender for another kind of lock may have come while this reader had no node that the contender
		// could see. Whichever of the two makes its node later sees the other's node.
		if err := aloneNow(ctx, w.e, w.a.dir, turns.UsePolicy, names); err != nil {
			w.e.ReapMarked([]string{node}, w.dir.undo)
			return nil, err
		}
	}
	if ok, err := w.dir.same(ctx); !ok {
		w.e.Reap(node)
		if err != nil {
			return nil, err // the attempt still has its place, and gives it up when it ends
		}
		// Another client removed the directory and made it again between look() and grant(). So the server checked
		// the version of another record. The attempt's next place will have another id, so remove the present place
		// now.
		w.withdraw(ctx, false, false)
		w.dir.fresh, w.closed = false, false
		w.id, w.queued = newNodeID(w.e.ID()), false
		return nil, nil
	}
	if w.queued && !w.reads() {
		nodes = append(nodes, hold.Node{Path: w.Path, Place: true})
	}
	g := w.a.granted(w.e, fence.Token(stat.Czxid), nodes...)
	g.Since, g.Upgrade = asked, w.a.upgrade
	if !w.reads() {
		g.Unmark = w.dir.unmark(w.a.Terms)
	}
	return g, nil
}

// withdraw() removes the nodes of an attempt. If the attempt was refused, the same transaction takes back the
// record that the attempt wrote. If `wait` is set, withdraw() waits until the nodes are removed.
func (w *policyWaiter) withdraw(ctx context.Context, wait, refused bool) {
	if w.e.Ended() {
		return
	}
	var done []<-chan struct{}
	switch {
	case w.queued && refused:
		done = append(done, w.e.ReapMarked([]string{w.Path}, w.dir.undo))
	case w.queued:
		done = append(done, w.e.Reap(w.Path))
	}
	if w.closed && w.a.Terms.LockDelay > 0 {
		// Without its owner's node, the mark would look like the mark of a dead holder. So take it back.
		done = append(done, w.dir.reopen(w.mark()))
	}
	if wait {
		session.AwaitGone(ctx, done...)
	}
}

// untilOverdue returns how much longer readers may overtake this writer.
func (w *policyWaiter) untilOverdue() time.Duration {
	return w.dir.rec.WriterBound() - time.Since(w.born)
}

// awaitStep waits for the event that the decision names. Then the contender looks again, so the event alone
// grants nothing.
func (w *policyWaiter) awaitStep(ctx context.Context, step turns.Step) error {
	var also wakers
	if step.Timer {
		also.timer = time.After(max(w.untilOverdue(), 0) + time.Millisecond)
	}
	if step.Data {
		also.fired = session.FiredOf(w.dir.watch)
	}
	_, err := w.await(ctx, recipe.Join(w.a.dir, step.On.Name(true)), 1, also)
	return err
}
