// Package hold keeps one grant of a lock until it is lost or given back: the nodes that stand for it, the
// leases that the program has, what ends it (the loss of a node or of the session, a limit, a request to give
// it back), and the changes between reader and writer. It does not know how a lock is asked for.
package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Shared has the parts that the holds of one client share.
type Shared struct {
	Keeper *session.Keeper
	Cause  func(Loss) error // describes a loss to the program
	named  named
}

// Node is a node that stands for a hold.
type Node struct {
	Path  string
	Watch *zk.Watch // the watch set on the node before the grant; may be nil
	// Place marks a queue node that the hold keeps while another node represents the hold.
	Place bool
	lock  string // the path of the node's lock, if the hold has several locks
}

// Dir returns the directory of the node.
func (n Node) Dir() string { return recipe.Parent(n.Path) }

// Grant describes a lock that was granted to a contender.
type Grant struct {
	Epoch *session.Epoch
	Path  string // path of the lock, as the user names it
	Nodes []Node
	Mode  fence.Mode
	Token fence.Token
	Asked time.Time       // when the lock was asked for
	Since session.Reading // when the hold began; never later than it began for other clients
	Limits

	Unmark     []zk.Op  // lock delay: operations that remove this hold's mark from the directory
	Unnumbered error    // for permits, why their numbers must not be used
	Parts      []*Lease // the leases of several locks that are held one by one
	Candidate  bool     // the node has a value, which the holder may change

	// AsReader describes the node that stands for a read hold in the place of the node at `old`; nil if the lock
	// has no readers.
	AsReader func(e *session.Epoch, old string) session.Node
	// Upgrade turns the read hold into the write hold; nil if the lock has no upgrades.
	Upgrade func(ctx context.Context, h *Hold, try bool) error
	Leave   func()      // gives the turn in the local queue to the next contender
	Tell    func(Event) // nil: no function listens
}

// Limits say when a hold ends although its holder has not given it back.
type Limits struct {
	MaxHold     time.Duration // 0: no limit
	Grace       time.Duration // how long the nodes stay after MaxHold; 0: the default; negative: not at all
	Linger      bool          // after a loss, the nodes stay until Unlock
	Revocable   bool
	RevokeGrace time.Duration
}

// GraceNow returns how long the nodes stay after MaxHold.
func (l *Limits) GraceNow() time.Duration {
	if l.Grace == 0 {
		return recipe.DefaultGrace
	}
	return max(l.Grace, 0)
}

// Hold is one lock as the server sees it: its nodes, from grant to release or
// loss. Nested leases share it.
type Hold struct {
	s       *Shared
	g       *Grant          // the grant as it was given
	life    context.Context // ends with the hold
	endLife context.CancelFunc

	mu       sync.Mutex
	nodes    []Node
	mode     fence.Mode
	token    fence.Token
	unmark   []zk.Op
	leases   []*Lease // leases that are not unlocked yet, even if the hold is lost
	granted  bool     // the hold had a lease at some time
	over     bool     // released, being released, or lost
	lost     *loss
	graceful bool // the nodes stay for the grace after MaxHold, or until Unlock
	revoked  *recipe.Revocation
	timers   []*time.Timer
	unlocked []*Lease      // leases unlocked before other leases of the hold; their contexts end with the hold
	changing chan struct{} // closed when the present change of the mode ends; nil: no change is under way
}

// newHold returns a hold that is not yet granted.
func (s *Shared) newHold(g *Grant) *Hold {
	h := &Hold{s: s, g: g, nodes: g.Nodes, mode: g.Mode, token: g.Token, unmark: g.Unmark}
	for _, l := range g.Parts {
		for _, n := range l.h.nodesNow() {
			n.lock = l.h.g.Path
			h.nodes = append(h.nodes, n)
		}
	}
	h.life, h.endLife = context.WithCancel(s.Keeper.Calls())
	return h
}

// Begin makes a hold of the grant and returns its first lease. If Begin fails, the nodes of the grant are
// removed. The error is zk.ErrSessionExpired if the session or its nodes are gone.
func (s *Shared) Begin(ctx context.Context, g *Grant) (*Lease, error) {
	return s.newHold(g).begin(ctx)
}

func (h *Hold) begin(ctx context.Context) (*Lease, error) {
	l, err := h.enter(ctx)
	if err == nil {
		h.watchNodes()
		h.watchLimit()
	}
	return l, err
}

// enter adds the hold to its session, and makes its first lease.
func (h *Hold) enter(ctx context.Context) (*Lease, error) {
	var err error
	switch {
	case ctx.Err() != nil:
		err = EndOf(ctx)
	case !h.g.Epoch.Add(h):
		err = zk.ErrSessionExpired
	}
	if err != nil {
		h.endLife()
		h.discard(h.unmark)
		return nil, err
	}
	l, err := h.addLease(ctx, h.mode)
	if err != nil {
		return nil, zk.ErrSessionExpired // lost at this moment
	}
	return l, nil
}

// GiveBack gives back a grant that no program has learned of, without waiting for the server.
func (s *Shared) GiveBack(g *Grant) { _ = s.newHold(g).release(context.Background(), true) }

// Unlock gives the lock back: see Unlock in package client.
func (l *Lease) Unlock(ctx context.Context) error { return ErrorAt(l.h.g.Path, l.unlock(ctx, false)) }

// Release is like Unlock, but does not wait for the server.
func (l *Lease) Release() error { return ErrorAt(l.h.g.Path, l.unlock(context.Background(), true)) }

func (l *Lease) unlock(ctx context.Context, early bool) error {
	h := l.h
	h.checkNow() // a lease past its deadline or its limit is lost, even before the client noticed
	h.mu.Lock()
	if l.unlocked {
		h.mu.Unlock()
		return ErrNotHeld
	}
	l.unlocked = true
	h.s.named.remove(l)
	h.leases = slices.DeleteFunc(h.leases, func(x *Lease) bool { return x == l })
	if l.cause != nil {
		last := len(h.leases) == 0
		h.mu.Unlock()
		if last { // the last Unlock removes the nodes that stayed
			h.endGrace()
		}
		return l.cause.err
	}
	if len(h.leases) > 0 {
		// The contexts of the other leases may be children of this lease's context.
		h.unlocked = append(h.unlocked, l)
		down := h.g.AsReader != nil && h.mode == fence.Exclusive && l.mode == fence.Exclusive && !h.writes(nil)
		h.mu.Unlock()
		switch {
		case !down:
			return nil
		case early:
			h.s.Keeper.Detached(func(ctx context.Context) { _ = h.downgradeOnce(ctx, nil) })
			return nil
		}
		err := h.downgrade(ctx, nil)
		switch {
		case errors.Is(err, ErrUnsupported), errors.Is(err, ErrNotHeld):
			return nil // a nested write lease has been taken, or the last lease of the hold has been unlocked
		case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return fmt.Errorf("%w: %w", ErrReleasePending, err)
		}
		return err
	}
	h.over = true
	h.stopTimers()
	h.tell(Event{Kind: EventReleased, Held: h.held()})
	l.cancel(context.Canceled)
	h.endUnlocked(context.Canceled)
	h.mu.Unlock()
	return h.release(ctx, early)
}

// tell reports an event of the hold. The caller holds h.mu, so that the grant is reported before the end.
func (h *Hold) tell(ev Event) {
	if h.g.Tell != nil {
		ev.Mode, ev.Token, ev.Node = h.mode, h.token, h.nodes[0].Path
		h.g.Tell(ev)
	}
}

func (h *Hold) modeNow() fence.Mode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode
}

func (h *Hold) nodesNow() []Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.nodes)
}

// held() returns how long the hold has lasted.
func (h *Hold) held() time.Duration { return h.s.Keeper.Now().Since(h.g.Since) }

// checkNow ends the hold if its deadline or its limit has passed, or if a lock of the set is lost.
func (h *Hold) checkNow() {
	if why := h.g.Epoch.WhyOver(); why != 0 {
		h.EpochOver(why)
	}
	for _, l := range h.g.Parts {
		if lost, ok := l.Loss(); ok {
			h.lose(lost.Reason, Node{Path: lost.Node, lock: lost.Path})
		}
	}
	if h.limited() && h.held() >= h.g.MaxHold {
		h.lose(MaxHold)
	}
}

// stopTimers stops the hold's timers. The caller holds h.mu.
func (h *Hold) stopTimers() {
	for _, t := range h.timers {
		t.Stop()
	}
	h.timers = nil
}

// abandon gives the nodes to the reaper and the local turn to the next contender.
func (h *Hold) abandon() {
	h.discard(nil)
	h.g.Leave()
}

// discard gives the nodes to the reaper. If unmark is given, the reaper also takes back the mark of a lock
// delay. The channel closes when the nodes are gone.
func (h *Hold) discard(unmark []zk.Op) <-chan struct{} {
	if h.g.Parts == nil {
		return h.g.Epoch.ReapMarked(pathsOf(h.nodesNow()), unmark)
	}
	gone := make(chan struct{})
	h.s.Keeper.Detached(func(ctx context.Context) {
		defer close(gone)
		_ = unlockEach(ctx, h.g.Parts)
	})
	return gone
}

func pathsOf(nodes []Node) []string {
	paths := make([]string, len(nodes))
	for i, n := range nodes {
		paths[i] = n.Path
	}
	return paths
}

func deletes(nodes []Node) []zk.Op {
	ops := make([]zk.Op, len(nodes))
	for i, n := range nodes {
		ops[i] = zk.Delete{Path: n.Path, Version: -1}
	}
	return ops
}

// has() reports whether a node still stands for the hold.
func (h *Hold) has(n Node) bool {
	return slices.ContainsFunc(h.nodesNow(), func(m Node) bool { return m.Path == n.Path })
}

// release gives the lock back. If ctx ends, or early is set, the release continues in the background. The
// hold was valid when its release began, so the work did not overlap with another holder's.
func (h *Hold) release(ctx context.Context, early bool) error {
	h.g.Epoch.Remove(h)
	var answered <-chan struct{}
	answer := func(bg context.Context) error {
		h.awaitChange(bg) // the nodes must be known
		_, answer := h.giveBack(early)
		return answer(bg)
	}
	if !h.changes() {
		answered, answer = h.giveBack(early)
	}
	if answered != nil && !early {
		select {
		case <-answered:
			if answer(ctx) == nil {
				return nil
			}
		case <-ctx.Done():
		}
	}
	var err error
	settled := h.s.Keeper.LeaveBehind(session.Dirs(h.nodesNow()), func(bg context.Context) {
		err = h.releaseErr(h.settle(answer(bg)))
		h.g.Leave()
	})
	if early {
		return nil
	}
	select {
	case <-settled:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrReleasePending, EndOf(ctx))
	}
}

// giveBack sends one request that removes all nodes and takes back the mark of a lock delay. It gives the
// local turn to the next contender before the answer. The channel closes when the answer has arrived. For a
// set the channel is nil, because answer() gives the locks of the set back.
func (h *Hold) giveBack(early bool) (answered <-chan struct{}, answer func(context.Context) error) {
	defer h.endLife()
	if h.g.Parts != nil {
		if early {
			for _, l := range h.g.Parts {
				_ = l.Release() // a part that is lost is free already
			}
			return nil, func(context.Context) error { return nil }
		}
		return nil, func(ctx context.Context) error { return unlockEach(ctx, h.g.Parts) }
	}
	h.mu.Lock()
	ops := append(deletes(h.nodes), h.unmark...)
	h.mu.Unlock()
	p := h.g.Epoch.Conn().Pipe()
	answered, wait := session.Ask(p, ops...)
	if early {
		p.SendSoon()
	} else {
		p.Send()
	}
	h.g.Leave()
	return answered, func(ctx context.Context) error {
		_, err := wait(ctx)
		return err
	}
}

// settle makes sure that the nodes are removed, even if the request failed.
func (h *Hold) settle(err error) error {
	nodes := h.nodesNow()
	refused, _ := errors.AsType[*zk.MultiError](err)
	switch {
	case err == nil, errors.Is(err, zk.ErrSessionExpired), errors.Is(err, zk.ErrNoNode) && len(nodes) == 1:
		return err
	case errors.Is(err, zk.ErrUncertain), errors.Is(err, zk.ErrThrottled), errors.Is(err, zk.ErrClosed),
		h.s.Keeper.Cleaning().Err() != nil,
		refused != nil && refused.Index >= len(nodes): // only the mark could not be written
		<-h.discard(h.unmark)
		if h.g.Epoch.WhyOver() == session.Expired {
			return zk.ErrSessionExpired
		}
		return nil
	}
	h.discard(h.unmark) // remove the other nodes even if one node is gone or may not be removed
	return err
}

// releaseErr turns the error of a release into the error for the user.
func (h *Hold) releaseErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return h.s.Cause(Loss{Path: h.g.Path, Node: h.nodes[0].Path, Reason: Removed})
	case errors.Is(err, zk.ErrSessionExpired) && h.g.Epoch.Remaining(h.s.Keeper.Now()) > 0:
		// The client did not miss its deadline, so the session may have ended during the work.
		return h.s.Cause(Loss{Path: h.g.Path, Node: h.nodes[0].Path, Reason: Expired})
	case errors.Is(err, zk.ErrSessionExpired):
		return nil // the node went with the session, after the work was done
	}
	return PublicErr(context.Background(), err)
}

// unlockEach unlocks all parts at the same time, and returns the first error.
func unlockEach(ctx context.Context, parts []*Lease) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, l := range parts {
		wg.Go(func() { errs[i] = l.Unlock(ctx) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// changes() reports whether a change is under way.
func (h *Hold) changes() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changing != nil
}
