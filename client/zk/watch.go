package zk

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// doW is like do(), for a read that sets a watch.
func doW[T any](ctx context.Context, c *Conn, r *Reply[T]) (T, *Watch, error) {
	v, err := do(ctx, c, r)
	if err != nil {
		return v, nil, err
	}
	return v, r.watch, nil
}

// watches are the watches of a session. Conn.mu is held in all methods. Only the goroutine that reads from
// the server adds and fires watches. So whenever it has read an answer, this table is as the server's table
// was when the server sent that answer.
type watches struct {
	once map[watchKey]*Watch
	subs map[string][]*Subscription // key: the path from the server's root

	// `deep` has the paths at which the server has a recursive watch. A ZooKeeper before 3.9 keeps only one
	// persistent watch of a session at a path. So a recursive watch also serves the other subscriptions of its
	// path. The server does not report a changed list of children to a recursive watch, so fire() derives that
	// event from the events of the children. A later ZooKeeper does report it. `derived` is the path of the last
	// event if fire() derived it: the same event from the server is then a duplicate.
	deep    map[string]bool
	derived string
}

// arm() records a watch that the server has set.
func (t *watches) arm(r *call, missing bool) {
	k := watchKey{r.target, r.kind}
	w := t.once[k]
	if w == nil {
		w = &Watch{key: k, fired: make(chan struct{})}
		t.once[k] = w
	}
	w.missing = missing
	r.watch = w
}

// fire() delivers an event to the watches and subscriptions of a node. A deletion fires both kinds.
func (t *watches) fire(full string, ev Event) {
	if ev.Type != EventChildrenChanged {
		t.fireOne(watchKey{full, watchData}, ev)
	}
	if ev.Type == EventChildrenChanged || ev.Type == EventDeleted {
		t.fireOne(watchKey{full, watchChildren}, ev)
	}
	if len(t.subs) == 0 {
		return
	}
	known := ev.Type == EventChildrenChanged && t.derived == full
	t.derived = ""
	for _, s := range t.subs[full] {
		if ev.Type != EventChildrenChanged || !s.recursive && !known {
			s.put(ev)
		}
	}
	for p := full; p != "/" && ev.Type != EventChildrenChanged; {
		p = path.Dir(p)
		for _, s := range t.subs[p] {
			if s.recursive {
				s.put(ev)
			}
		}
	}
	lists := ev.Type == EventCreated || ev.Type == EventDeleted // whether the list of children above has changed
	if dir := path.Dir(full); lists && dir != full && t.deep[dir] {
		t.derived = dir
		for _, s := range t.subs[dir] {
			if !s.recursive {
				s.put(Event{EventChildrenChanged, s.Path})
			}
		}
	}
}

func (t *watches) fireOne(k watchKey, ev Event) {
	if w := t.once[k]; w != nil {
		delete(t.once, k)
		w.event = ev
		close(w.fired)
	}
}

// absent() is called when an answer says that a node does not exist. If the Conn still has watches of this
// node, the server did not report the deletion, because the session may not read the node. The server will
// never fire these watches, so absent() fires them.
func (t *watches) absent(full string, ev Event) {
	for _, kind := range []watchKind{watchData, watchChildren} {
		if w := t.once[watchKey{full, kind}]; w != nil && !w.missing {
			t.fireOne(w.key, ev)
		}
	}
}

// end() fires all watches and ends all subscriptions, because the session is over.
func (t *watches) end(c chroot) {
	for k := range t.once {
		t.fireOne(k, Event{EventOver, c.own(k.path)})
	}
	for _, list := range t.subs {
		for _, s := range list {
			s.put(Event{EventOver, s.Path})
		}
	}
	t.subs = nil
}

// lost() fires watches that the Conn could not set again.
func (t *watches) lost(c chroot, set *jute.SetWatches) {
	for _, list := range [][]string{set.Data, set.Exist} {
		for _, p := range list {
			t.fireOne(watchKey{p, watchData}, Event{EventLost, c.own(p)})
		}
	}
	for _, p := range set.Child {
		t.fireOne(watchKey{p, watchChildren}, Event{EventLost, c.own(p)})
	}
}

// endSubscriptions ends the subscriptions of a path, because the server no longer has their watch.
func (t *watches) endSubscriptions(full string) {
	for _, s := range t.subs[full] {
		s.closed = true
		s.put(Event{EventLost, s.Path})
	}
	delete(t.subs, full)
	delete(t.deep, full)
}

// setWatchesLimit bounds the bytes of paths in one request, so that the request is not too long for the
// server.
const setWatchesLimit = 128 << 10

// again() returns the requests that set all watches on another connection. It sends EventResumed to all
// subscriptions.
func (t *watches) again(zxid int64) []*jute.SetWatches {
	var all []*jute.SetWatches
	size := setWatchesLimit
	put := func(path string) *jute.SetWatches {
		if size += len(path) + 4; size > setWatchesLimit {
			all, size = append(all, &jute.SetWatches{RelativeZxid: zxid}), len(path)
		}
		return all[len(all)-1]
	}
	for k, w := range t.once {
		s := put(k.path)
		switch {
		case k.kind == watchChildren:
			s.Child = append(s.Child, k.path)
		case w.missing:
			s.Exist = append(s.Exist, k.path)
		default:
			s.Data = append(s.Data, k.path)
		}
	}
	for path, list := range t.subs {
		s := put(path)
		if t.deep[path] {
			s.Recursive = append(s.Recursive, path)
		} else {
			s.Persistent = append(s.Persistent, path)
		}
		for _, sub := range list {
			sub.put(Event{EventResumed, sub.Path})
		}
	}
	return all
}

// RemoveWatches makes the server forget every watch of a node, so that a long-lived session does not collect
// watches of nodes that it no longer needs. Callers that still wait get EventLost. Subscriptions of the node
// also get EventLost, and end.
func (c *Conn) RemoveWatches(ctx context.Context, path string) error {
	r, full := &Reply[struct{}]{}, c.root.full(path)
	b := jute.AppendString(r.begin(jute.OpRemoveWatches, path, len(full)), full)
	r.end(jute.AppendInt(b, jute.WatcherAny))
	r.repeat = true
	r.settled = func(err error) {
		// ErrNoWatcher is a success: a server drops a watch without a word if the session may not read the node.
		if err == nil || errors.Is(err, ErrNoWatcher) {
			c.watches.lost(c.root, &jute.SetWatches{Data: []string{full}, Child: []string{full}})
			c.watches.endSubscriptions(full)
		}
	}
	_, err := do(ctx, c, r)
	if errors.Is(err, ErrNoWatcher) {
		return nil
	}
	return err
}

// Subscription reports every change of a node, and of every node below it if the subscription is recursive.
// It reports them in the order in which they happen, until it is closed. It keeps the events until the
// program reads them.
type Subscription struct {
	Path      string
	c         *Conn
	full      string
	recursive bool

	// c.mu guards the fields below.
	events []Event
	more   chan struct{} // wakes a caller of Next(); has room for one value
	closed bool
}

// Subscribe watches a node persistently. The node need not exist.
func (c *Conn) Subscribe(ctx context.Context, path string, recursive bool) (*Subscription, error) {
	s := &Subscription{Path: path, c: c, full: c.root.full(path), recursive: recursive, more: make(chan struct{},
		1)}
	replaced, err := s.watch(ctx, recursive)
	if replaced {
		_, err = s.watch(ctx, true)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		s.drop()
		return nil, err
	}
	for _, o := range c.watches.subs[s.full] {
		if replaced && o != s { // o may have missed changes
			o.put(Event{EventResumed, o.Path})
		}
	}
	return s, nil
}

// watch() sets the watch of a subscription. The watch is recursive if `deep` is true or the server already
// has a recursive watch at the path. The result `replaced` is true if this call set a watch that is not
// recursive while another call set a recursive one: the server may have replaced the recursive watch.
func (s *Subscription) watch(ctx context.Context, deep bool) (replaced bool, err error) {
	c := s.c
	c.mu.Lock()
	deep = deep || c.watches.deep[s.full]
	c.mu.Unlock()
	mode := jute.AddWatchPersistent
	if deep {
		mode = jute.AddWatchRecursive
	}
	took := false
	r := &Reply[struct{}]{}
	b := jute.AppendString(r.begin(jute.OpAddWatch, s.Path, len(s.full)), s.full)
	r.end(jute.AppendInt(b, mode))
	r.repeat = true
	r.settled = func(err error) {
		t := &c.watches
		if err != nil || s.closed && len(t.subs[s.full]) == 0 {
			return
		}
		if t.subs == nil {
			t.subs, t.deep = map[string][]*Subscription{}, map[string]bool{}
		}
		if deep {
			t.deep[s.full] = true // also if s is closed: other subscriptions at this node use the watch
		}
		switch {
		case s.closed:
		case !deep && t.deep[s.full]:
			took = true
		default:
			t.subs[s.full] = append(t.subs[s.full], s)
		}
	}
	if _, err = do(ctx, c, r); err != nil {
		return false, err
	}
	return took, nil
}

// put() adds an event. c.mu is held.
func (s *Subscription) put(ev Event) {
	s.events = append(s.events, ev)
	s.wake()
}

// wake() makes a waiting caller of Next() check for events again.
func (s *Subscription) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// drop() removes the subscription from the table; the caller holds c.mu. `last` reports whether it was the
// last subscription of its path.
func (s *Subscription) drop() (last bool) {
	s.closed = true
	s.wake()
	subs := s.c.watches.subs
	rest := slices.DeleteFunc(subs[s.full], func(x *Subscription) bool { return x == s })
	if len(rest) > 0 {
		subs[s.full] = rest
		return false
	}
	delete(subs, s.full)
	return true
}

// Next waits for the next event. After EventOver it returns the error of the session. After EventLost or
// Close it returns ErrClosed.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		s.c.mu.Lock()
		if len(s.events) > 0 {
			ev := s.events[0]
			if s.events = s.events[1:]; len(s.events) > 0 {
				s.wake() // one wake-up may stand for several events: another caller of Next takes the next one
			}
			s.c.mu.Unlock()
			return ev, nil
		}
		closed := s.closed
		s.c.mu.Unlock()
		if closed {
			s.wake() // the other callers of Next must return, too
			return Event{}, ErrClosed
		}
		select {
		case <-s.more:
		case <-s.c.life.Done():
			s.c.mu.Lock()
			left := len(s.events)
			s.c.mu.Unlock()
			if left == 0 {
				return Event{}, s.c.Err()
			}
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close ends the subscription. If it is the last one of its node, the server forgets every watch of
// that node.
func (s *Subscription) Close(ctx context.Context) error {
	s.c.mu.Lock()
	was := s.closed
	last := s.drop()
	s.c.mu.Unlock()
	if was || !last {
		return nil
	}
	return s.c.RemoveWatches(ctx, s.Path)
}

// eventOf reads a notification.
func (c *Conn) eventOf(d *jute.Decoder) (full string, ev Event, err error) {
	t := d.Int()
	d.Int() // skip the state of the session, which is always the same
	path, _ := d.String()
	full = strings.Clone(path)
	return full, Event{EventType(t), c.root.own(full)}, d.Err()
}
