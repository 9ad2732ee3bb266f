// Package take asks for locks: a call contends in one session after another until it has its lock. It waits
// for its turn in the process, makes nodes, looks at the queue, lets package turns decide, waits, and looks
// again. It returns the first lease of a hold, or it leaves no node behind.
package take

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// Client has the parts that the calls of one client share.
type Client struct {
	hold.Shared
	owner       recipe.Owner // the part of the record that all nodes of the client share
	paces       paces
	localQueues localQueues
	deaths      deaths
}

// New returns the parts that the calls of a client share. The nodes of these calls store `owner`. cause()
// makes the error with which the program learns of the loss of a lock.
func New(k *session.Keeper, owner recipe.Owner, cause func(hold.Loss) error) *Client {
	return &Client{Shared: hold.Shared{Keeper: k, Cause: cause}, owner: owner,
		localQueues: localQueues{m: map[localKey][]chan struct{}{}}}
}

// Ask describes a call: the lock, and how the call wants it.
type Ask struct {
	Path  string // path of the lock, as the user names it
	Mode  fence.Mode
	RW    bool // the lock is a read-write lock
	Try   bool
	Value []byte // value of a candidate; nil: the call is not for leadership
	Terms *Terms
	Tell  func(hold.Event) // nil: no function listens
}

// Terms are the conditions of a lock. Package client sets them from its options.
type Terms struct {
	hold.Limits
	Reason        string
	ACL           []zk.ACL
	Layout        recipe.Layout
	Policy        recipe.Policy
	PolicySet     bool
	MaxWriterWait time.Duration
	LockDelay     time.Duration
	Reentrant     bool
	OwnPlace      bool
	NoRequeue     bool
	WaitSet       bool
	Wait          time.Duration
}

// Lasting reports whether the lock's directory must stay when it is empty. A lock delay keeps its mark in the
// directory's data, and kazoo does not make a missing directory a second time.
func (t *Terms) Lasting() bool { return t.LockDelay > 0 || t.Layout == recipe.LayoutKazoo }

// Errors of calls. Package client has them under the same names, and documents them.
var (
	ErrNodeRemoved    = errors.New("client: node removed by another client")
	ErrPolicyMismatch = errors.New("client: directory has another policy")
	ErrLimitMismatch  = errors.New("client: semaphore has another limit")
	ErrNoSlots        = errors.New("client: the permits have no numbers")
)

// attempt is one call that asks for a lock.
type attempt struct {
	Ask
	c       *Client
	dir     string // directory of the contenders
	start   time.Time
	task    string
	tasked  bool     // the caller's context names the task
	leave   func()   // gives the turn in the local queue to the next contender
	alone   bool     // the attempt is never nested, and it does not use the local queue
	permits bool     // the queue is for permits, so its first contender holds no permit yet
	dirs    []string // all directories in which the attempt makes nodes; nil: only dir
}

// data() returns the content of the attempt's node. The content of a candidate's node is the value. The owner
// record follows the value only if the candidate has a named task, which may hold other locks, or if the
// value alone would look like a record. Otherwise, programs that read the whole content, such as programs
// with Curator's recipes, see only the value.
func (a *attempt) data() []byte {
	switch {
	case a.Value == nil:
		return recipe.EncodeOwner(a.owner())
	case a.tasked && a.Terms.Layout == recipe.LayoutCurator, recipe.Mistakable(a.Value):
		return recipe.EncodeValue(a.Value, a.owner())
	}
	return a.Value
}

func (a *attempt) owner() recipe.Owner {
	o := a.c.owner
	o.Task, o.Reason, o.Revocable = a.task, a.Terms.Reason, a.Terms.Revocable
	if a.Terms.MaxHold > 0 {
		o.MaxHold, o.Grace = a.Terms.MaxHold.String(), a.Terms.GraceNow().String()
	}
	return o
}

// tell() reports an event of the attempt.
func (a *attempt) tell(ev hold.Event) {
	if a.Tell != nil {
		a.Tell(ev)
	}
}

// granted() returns the grant that the attempt has got.
func (a *attempt) granted(e *session.Epoch, token fence.Token, nodes ...hold.Node) *hold.Grant {
	g := &hold.Grant{Epoch: e, Path: a.Path, Nodes: nodes, Mode: a.Mode, Token: token, Asked: a.start,
		Since: a.c.Keeper.Now(), Limits: a.Terms.Limits, Candidate: a.Value != nil,
		Leave: a.leave, Tell: a.Tell}
	if a.RW {
		g.AsReader = a.asReader
	}
	return g
}

// newNodeID returns a fresh id for an attempt of session sid.
func newNodeID(sid int64) recipe.ID {
	var r [8]byte
	rand.Read(r[:]) // never fails
	return recipe.NewID(sid, binary.BigEndian.Uint64(r[:]))
}

// queued() reports that the attempt has its place in the queue.
func (a *attempt) queued(n session.Made) {
	a.tell(hold.Event{Kind: hold.EventQueued, Node: n.Path, Mode: a.Mode, Waited: time.Since(a.start)})
}

// requeueError says that the attempt has lost its place. The field `why` is ErrSessionExpired or
// ErrNodeRemoved.
type requeueError struct{ why error }

func (r *requeueError) Error() string { return "client: place in the queue lost: " + r.why.Error() }

// lostPlace turns the end of the session into the loss of the place.
func lostPlace(err error) error {
	if errors.Is(err, zk.ErrSessionExpired) {
		return &requeueError{zk.ErrSessionExpired}
	}
	return err
}

// A way is a function that takes the lock for an attempt in one session.
type way func(ctx context.Context, e *session.Epoch, a *attempt) (*hold.Grant, error)

// compete() runs the attempt in one session after another until it gets a lease or an error. An
// attempt that lost its place takes a new one, unless its options forbid that.
func (a *attempt) compete(ctx context.Context, run way) (*hold.Lease, error) {
	for {
		e, err := a.c.Keeper.Await(ctx)
		if err != nil {
			return nil, err
		}
		g, err := run(ctx, e, a)
		var l *hold.Lease
		if err == nil {
			l, err = a.c.Begin(ctx, g)
			err = lostPlace(err)
		}
		lost, hadPlace := errors.AsType[*requeueError](err)
		switch {
		case hadPlace && a.Terms.NoRequeue:
			return nil, lost.why
		case hadPlace:
			a.tell(hold.Event{Kind: hold.EventRequeued, Mode: a.Mode, Waited: time.Since(a.start),
				Err: lost.why})
		case !errors.Is(err, zk.ErrSessionExpired) || a.Terms.NoRequeue:
			return l, err
		}
	}
}

// acquire() is the common part of all locks: reentrancy, the local queue, the grant and the retries.
func (c *Client) acquire(ctx context.Context, a *attempt, run way) (l *hold.Lease, err error) {
	defer func() { err = hold.ErrorAt(a.Path, err) }()
	a.c, a.start, a.leave = c, time.Now(), func() {}
	if a.Terms.Layout == recipe.LayoutLatch && a.Value == nil || a.Terms.PolicySet && !a.RW && a.dirs == nil {
		return nil, fmt.Errorf("%w: a lock of this kind with the layout %v", hold.ErrUnsupported,
			a.Terms.Layout)
	}
	ctx, end := c.Keeper.During(ctx)
	defer end()
	if ctx.Err() != nil {
		return nil, hold.EndOf(ctx)
	}
	if a.Terms.WaitSet && a.Terms.Wait == 0 {
		a.Try = true
	}
	if l, err := a.nested(ctx); l != nil || err != nil {
		if err != nil && a.Try {
			err = fmt.Errorf("%w: %w", hold.ErrNotAcquired, err)
		}
		return l, err
	}
	if a.Terms.Wait > 0 {
		late := fmt.Errorf("%w within %v", hold.ErrNotAcquired, a.Terms.Wait)
		limited, cancel := context.WithTimeoutCause(ctx, a.Terms.Wait, late)
		defer cancel()
		ctx = limited
	}
	a.tasked = hold.TaskIn(ctx) != ""
	a.task = hold.TaskOf(ctx)
	ctx = hold.Task(ctx, a.task)
	// In Curator's layout, a call for permits that may not wait takes no place in the queue.
	outside := a.Try && a.Mode == fence.Permit && a.Terms.Layout == recipe.LayoutCurator
	if a.Mode != fence.Shared && !a.Terms.OwnPlace && !a.alone && !outside {
		a.leave, err = c.localQueues.enter(ctx, localKey{a.Terms.Layout, a.dir}, a.Try)
		if err != nil {
			return nil, err
		}
	}
	dirs := a.dirs
	if dirs == nil {
		dirs = []string{a.dir}
	}
	c.Keeper.Enter(dirs...)
	defer c.Keeper.Leave(dirs...)
	if l, err = a.compete(ctx, run); err != nil {
		a.leave()
		return nil, hold.PublicErr(ctx, err)
	}
	return l, nil
}

// nested() returns the lease that the attempt gets if its context already holds the path. Otherwise it
// returns nil.
func (a *attempt) nested(ctx context.Context) (*hold.Lease, error) {
	if a.Mode == fence.Permit || a.alone {
		return nil, nil // a context may take more permits, or stand for election twice
	}
	return a.c.Nested(ctx, a.Path, a.Mode, a.Terms.Reentrant)
}

// localQueues has one queue within the process for each path. The exclusive contenders for the path wait in
// this queue, so that only one of them at a time has a node in the server's queue. A turn gives only the
// right to compete at the server. Each hold has a node of its own: no attempt takes over the node of another.
type localQueues struct {
	mu sync.Mutex
	m  map[localKey][]chan struct{} // the contenders that wait while another has the turn
}

type localKey struct {
	layout recipe.Layout
	path   string
}

// enter() waits for the turn, and returns a function that passes the turn to the next contender. This
// function may be called more than once. If `try` is set, enter() takes the turn only if no other contender
// has it.
func (g *localQueues) enter(ctx context.Context, key localKey, try bool) (leave func(), err error) {
	leave = sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.pass(key)
	})
	g.mu.Lock()
	waiting, busy := g.m[key]
	if !busy || try {
		defer g.mu.Unlock()
		if busy {
			return nil, hold.ErrNotAcquired
		}
		g.m[key] = nil
		return leave, nil
	}
	turn := make(chan struct{})
	g.m[key] = append(waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return leave, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.m[key], turn); i >= 0 {
		g.m[key] = slices.Delete(g.m[key], i, i+1)
	} else {
		g.pass(key) // the turn came just when ctx ended, so pass it on
	}
	return nil, hold.EndOf(ctx)
}

// pass() gives the turn to the next contender. The caller holds g.mu.
func (g *localQueues) pass(key localKey) {
	waiting := g.m[key]
	if len(waiting) == 0 {
		delete(g.m, key)
		return
	}
	close(waiting[0])
	g.m[key] = waiting[1:]
}

// contender is one attempt in one session, for recipes that need more than one list to decide: a lock with a
// policy, an upgrade, permits. A queue of numbered nodes has a loop of its own, waiter.wait, which needs
// fewer lists.
type contender[T any] interface {
	// next() looks at the queue, and returns what the contender must do according to package turns.
	next(ctx context.Context) (turns.Step, error)
	// act() carries out the decision, and waits if the decision says so. If it returns neither a result nor an
	// error, the contender looks again.
	act(ctx context.Context, step turns.Step) (*T, error)
}

// contend() looks, decides and acts until the contender has its lock. After each event it looks again, so no
// event alone grants the lock.
func contend[T any](ctx context.Context, c contender[T]) (*T, error) {
	for {
		step, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		if got, err := c.act(ctx, step); got != nil || err != nil {
			return got, err
		}
	}
}
