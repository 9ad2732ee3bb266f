package take

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// queue is a recipe in which every contender has a numbered node and waits for one node before its own.
type queue struct{ turns.Rule }

// InQueue takes a lock that has a queue. The rule says for which node a contender waits.
func (c *Client) InQueue(ctx context.Context, ask Ask, rule turns.Rule) (*hold.Lease, error) {
	return c.acquire(ctx, &attempt{Ask: ask, dir: ask.Path, alone: ask.Value != nil}, queue{rule}.run)
}

// run() takes a place in the queue and waits there.
func (q queue) run(ctx context.Context, e *session.Epoch, a *attempt) (*hold.Grant, error) {
	if a.Try {
		if err := q.precheck(ctx, e, a); err != nil {
			return nil, err
		}
	}
	asked, on := a.c.Keeper.Now(), a.c.Keeper.Connections()
	id := newNodeID(e.ID())
	made, names, err := e.Create(ctx, q.node(a, id))
	if err != nil {
		return nil, err
	}
	w := newWaiter(e, a, q, made[0])
	w.id = id
	w.asked, w.made, w.took = asked, on, a.c.Keeper.Now().Mono-asked.Mono
	a.queued(w.Made)
	g, err := w.wait(ctx, names)
	if err == nil {
		return g, nil
	}
	gone := w.e.ReapMarked([]string{w.Path}, w.unmark)
	if errors.Is(err, hold.ErrNotAcquired) {
		// A call that is refused must not leave a node behind, because others would wait for the node.
		session.AwaitGone(ctx, gone)
	}
	return nil, lostPlace(err)
}

// node() describes the node of a new contender.
func (q queue) node(a *attempt, id recipe.ID) session.Node {
	n := session.Node{Lasting: a.Terms.Lasting(), List: true}
	path := recipe.Join(a.dir, recipe.NodeName(q.Layout, q.Kind, id, a.c.owner.Host))
	n.Create = zk.Create{Path: path, Data: a.data(), ACL: a.Terms.ACL, Mode: zk.EphemeralSequential}
	return n
}

// precheck looks at the queue for a call that may not wait. If another contender is ahead, the call is
// refused before it writes anything.
func (q queue) precheck(ctx context.Context, e *session.Epoch, a *attempt) error {
	return tryLook(ctx, e, a.dir, func() error {
		names, err := e.Conn().Names(ctx, a.dir)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		p, err := q.Place(names.All(), recipe.Contender{})
		if err == nil {
			err = alone(ctx, e, a.dir, turns.UseQueue, p.Others)
		}
		if err == nil && p.Blocked {
			a.waitsInQueue("", &names, p)
			err = hold.ErrNotAcquired
		}
		return err
	})
}

// waiter is a contender with a node of its own, until the node is given up or becomes a hold.
type waiter struct {
	session.Made
	c     *Client
	e     *session.Epoch
	a     *attempt
	own   *zk.Watch // watches the waiter's own node; nil: no watch was set yet
	since uint64    // number of the connection on which `own` was set

	q    queue
	id   recipe.ID        // id of the waiter's own node
	self recipe.Contender // the waiter itself, as the name of its node describes it

	asked  session.Reading // a time just before the client asked the server for the place
	made   uint64          // the number of the connection on which the place was requested
	waited bool            // the contender had to wait for another one
	late   bool            // the grant may have come some time after the request for the place
	unmark []zk.Op         // lock delay: operations that remove this contender's mark from the directory

	born    time.Time     // when the client learned of its place
	took    time.Duration // how long the waiter needed to get the place
	begun   time.Time     // when the first wait began
	ahead   int           // how many contenders were ahead when the first wait began
	armed   *zk.Watch     // a watch set in advance on the node at armedAt; nil: none
	armedAt string

	watchesOwn bool // the next call of watchNode must also watch the waiter's own node
}

func newWaiter(e *session.Epoch, a *attempt, q queue, own session.Made) *waiter {
	w := &waiter{Made: own, c: a.c, e: e, a: a, q: q, born: time.Now()}
	w.self, _, _ = recipe.ParseName(own.Name)
	return w
}

// wait() follows the rule of the queue: list the contenders, find the one to wait for, wait for its end, and
// list again. If few contenders are ahead and none of them leaves another node in its place, the waiter does
// not list again: it is enough that these contenders are gone and that the waiter's own node is still there.
func (w *waiter) wait(ctx context.Context, names *zk.Names) (*hold.Grant, error) {
	for {
		if names == nil {
			list, err := w.list(ctx)
			if err != nil {
				return nil, err
			}
			names = &list
		}
		p, err := w.q.Place(names.All(), w.self)
		if err != nil {
			return nil, err
		}
		switch {
		case !p.Found:
			return nil, w.displaced()
		case p.Blocked && w.a.Try:
			w.a.waitsInQueue(w.Path, names, p)
			return nil, hold.ErrNotAcquired
		case p.Blocked:
			w.a.waitsInQueue(w.Path, names, p)
			if !w.waited {
				w.waited, w.late, w.begun, w.ahead = true, true, time.Now(), p.Ahead
			}
			final := w.q.EndIsFinal(p.Blocker) && w.a.Terms.LockDelay == 0 && len(p.Others) == 0
			short := names.Len() <= shortList && w.q.Kind != recipe.RoleRead && w.c.paces.short(w.a.dir, w.took)
			if final && p.Ahead > 1 && short {
				if names, err = w.lookAhead(ctx, p); err != nil {
					return nil, err
				}
				continue
			}
			if final && (p.Ahead == 1 || names.Len() > crowdedFor*p.Ahead && w.q.EndsAreFinal(p.Few)) {
				few := inOrder(p.Few)
				names.Free()
				names = nil
				free, err := w.awaitFew(ctx, few)
				if err != nil {
					return nil, err
				}
				if free && w.e.Valid() {
					return w.first(ctx, turns.Place{}, nil)
				}
				continue
			}
			blocker := recipe.Join(w.a.dir, p.Blocker.Name)
			names.Free() // this also frees the names in p
			names = nil
			if _, err := w.await(ctx, blocker, p.Ahead, wakers{}); err != nil {
				return nil, err
			}
		case !w.e.Valid():
			w.late = true
			if err := w.e.AwaitValid(ctx); err != nil {
				return nil, err
			}
			names = nil
		default:
			// If a contender came or went after the waiter's own node was made, another waiter may have seen that
			// contender ahead of this one. So the hold begins only now, and not with the request for the place.
			w.late = w.late || names.Stat.Pzxid != w.Stat.Czxid
			g, err := w.first(ctx, p, names)
			if err == nil {
				names.Free()
			}
			return g, err
		}
	}
}

// crowdedFor is the length of a list that costs as much as one request about a single node.
const crowdedFor = 32

// inOrder returns copies of the contenders' names in the order of the queue.
func inOrder(few []recipe.Contender) []string {
	slices.SortFunc(few, recipe.Compare)
	names := make([]string, len(few))
	for i, c := range few {
		names[i] = strings.Clone(c.Name)
	}
	return names
}

// awaitFew waits until the few contenders ahead are gone. Call it only if none of them leaves another node in
// its place. If `free` is true, the waiter's own node was certainly there all the time, so no contender is
// ahead. Otherwise the waiter must list again.
func (w *waiter) awaitFew(ctx context.Context, few []string) (free bool, err error) {
	for _, name := range slices.Backward(few) {
		w.watchesOwn = true
		gone, err := w.await(ctx, recipe.Join(w.a.dir, name), len(few), wakers{})
		if !gone || err != nil {
			return false, err
		}
	}
	return w.stays(), nil
}

func (w *waiter) list(ctx context.Context) (zk.Names, error) {
	names, err := w.e.Conn().Names(ctx, w.a.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return names, w.displaced()
	}
	return names, err
}

// ownWatchEach extends hold.OwnWatch for each further contender ahead. A waiter far from its turn may wait
// longer, because its next list also shows whether its own node is there.
const ownWatchEach = 20 * time.Millisecond

// ownWatchIn returns how long a waiter waits before it watches its own node. The argument `timeout` is its
// session's timeout, and `ahead` is the number of contenders ahead of the waiter.
func ownWatchIn(timeout time.Duration, ahead int) time.Duration {
	return max(hold.OwnWatch, min(hold.OwnWatch+time.Duration(ahead-1)*ownWatchEach, timeout))
}

// wakers are further signals that end a wait for a node; each may be nil.
type wakers struct {
	timer <-chan time.Time
	fired <-chan struct{}
}

// await() waits until the node at `path` may be gone, and reports whether the node was certainly deleted. The
// argument `ahead` is the number of contenders up to that node. When the node's data or the connection
// changes, await() only sets the watch again.
func (w *waiter) await(ctx context.Context, path string, ahead int, also wakers) (gone bool, err error) {
	long := time.After(ownWatchIn(w.e.Timeout(), ahead))
	for {
		s, gone, err := w.watchNode(ctx, path)
		if gone || err != nil {
			return gone, err
		}
		safety := w.e.Recheck(s.Hidden)
		for again := false; !again; {
			select {
			case <-s.Watch.Fired():
				if ev := s.Watch.Event(); ev.Type == zk.EventDeleted && ev.Path == path {
					return true, nil
				}
				again = true
			case <-also.timer:
				return false, nil
			case <-also.fired:
				return false, nil
			case <-long:
				if err := w.watchOwn(ctx); err != nil {
					return false, err
				}
			case <-session.FiredOf(w.own):
				if err := w.lookOwn(ctx); err != nil {
					return false, err
				}
			case <-safety:
				st, err := w.e.Conn().Exists(ctx, path)
				if errors.Is(err, zk.ErrNoAuth) {
					continue // the watch is on the directory instead
				}
				if err != nil || st == nil {
					return st == nil, err
				}
			case <-w.e.Gone():
				return false, zk.ErrSessionExpired
			case <-ctx.Done():
				return false, hold.EndOf(ctx)
			}
		}
	}
}

// watchNode watches another contender's node, or reports that this node is gone. If w.watchesOwn is set,
// watchNode also watches the waiter's own node, unless that one is watched already. It sends both requests at
// once.
func (w *waiter) watchNode(ctx context.Context, path string) (s session.Seen, gone bool, err error) {
	own := w.watchesOwn && !w.stays()
	w.watchesOwn = false
	if w.armed != nil && w.armedAt == path {
		s.Watch, w.armed = w.armed, nil
		if own {
			err = w.lookOwn(ctx)
		}
		return s, false, err
	}
	if own {
		if s.Watch, _, err = w.watchBoth(ctx, path, false); s.Watch != nil || err != nil {
			return s, false, err
		}
	}
	s, err = w.e.See(ctx, path, true)
	if errors.Is(err, zk.ErrNoNode) {
		return s, true, nil
	}
	return s, false, err
}

// watchBoth watches another contender's node and the waiter's own node, and sends both requests at once. If
// `list` is set, a request that lists the directory follows. A result is nil if the caller must ask for it
// separately.
func (w *waiter) watchBoth(ctx context.Context, path string, list bool) (*zk.Watch, *zk.Names, error) {
	since := w.c.Keeper.Connections()
	pipe := w.e.Conn().Pipe()
	node, own := pipe.GetW(path), pipe.GetW(w.Path)
	var all *zk.Reply[zk.Names]
	if list {
		all = pipe.Names(w.a.dir)
	}
	pipe.Send()
	_, nodeErr := node.Wait(ctx)
	mine, err := own.Wait(ctx)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		err = w.lookOwn(ctx)
	} else {
		err = w.saw(session.Seen{Node: mine, Watch: own.Watch()}, err, since)
	}
	var watch *zk.Watch
	if nodeErr == nil {
		watch = node.Watch()
	}
	if list && err == nil {
		if names, listErr := all.Wait(ctx); listErr == nil {
			return watch, &names, nil
		}
	}
	return watch, nil, err
}

// first() makes the grant when no contender is ahead. The argument `names` is nil if the waiter did not need
// to list again.
func (w *waiter) first(ctx context.Context, p turns.Place, names *zk.Names) (*hold.Grant, error) {
	if err := alone(ctx, w.e, w.a.dir, turns.UseQueue, p.Others); err != nil {
		return nil, err
	}
	if w.made != w.c.Keeper.Connections() {
		// Another client may have replaced the waiter's own node by a node of the same name.
		if err := w.lookOwn(ctx); err != nil {
			return nil, err
		}
	}
	if w.a.Terms.LockDelay > 0 {
		if err := w.lockDelay(ctx, names.List()); err != nil {
			return nil, err
		}
	}
	g := w.a.granted(w.e, fence.Token(w.Stat.Czxid), hold.Node{Path: w.Path, Watch: w.own})
	g.Unmark = w.unmark
	if w.waited {
		w.c.paces.note(w.a.dir, time.Since(w.begun)/time.Duration(w.ahead))
	}
	if !w.late {
		g.Since = w.asked
	}
	if !w.e.Valid() {
		// The lock delay took so long that the session may have ended, so the attempt must start again.
		return nil, zk.ErrSessionExpired
	}
	return g, nil
}
