// Package hold keeps one grant of a lock until it is lost or given back: the nodes that stand for it, the
// leases that the program has, what ends it (the loss of a node or of the session, a limit, a request to give
// it back), and the changes between reader and writer. It does not know how a lock is asked for.
package hold

import (
	"context"
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
	Cause  func(Loss) error // makes the error that tells the program of a loss
	named  named
}

// Node is a node that stands for a hold.
type Node struct {
	Path  string
	Watch *zk.Watch // the watch set on the node before the grant; may be nil
	// Place is true for a queue node that the hold keeps beside the node that represents it.
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
	Since session.Reading // when the hold began; no other client sees it begin earlier
	Limits

	Unmark     []zk.Op  // removes the mark that this hold's lock delay left in the directory
	Unnumbered error    // for permits, why their numbers must not be used
	Parts      []*Lease // one lease for each lock, if the grant is a set of locks
	Candidate  bool     // the hold is an election's candidate, so its holder may change the data of the node

	// AsReader describes the node that stands for a read hold in the place of the node at `old`; nil if the lock
	// has no readers.
	AsReader func(e *session.Epoch, old string) session.Node
	// Upgrade turns the read hold into the write hold; nil if the lock has no upgrades.
	Upgrade func(ctx context.Context, h *Hold, try bool) error
	Leave   func()      // gives the turn in the local queue to the next contender
	Tell    func(Event) // nil: no function listens
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
	graceful bool // the hold is lost, but its nodes stay until the grace is over or Unlock is called
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

// enter() adds the hold to its session, and makes its first lease.
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
		return nil, zk.ErrSessionExpired // the hold was lost before it had its first lease
	}
	return l, nil
}

// tell() reports an event of the hold. The caller holds h.mu, so that the grant is reported before the end.
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

// checkNow ends the hold if its deadline or its limit has passed, or, for a set of locks, if one of them is
// lost.
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

// changes() reports whether a change is under way.
func (h *Hold) changes() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changing != nil
}
