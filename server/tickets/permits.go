package tickets

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
)

// A ticket for permits of a semaphore first gets a place in the queue. The permits replace this place when it
// is the first and enough permits are free. No server does that by itself: the next one that is asked about
// the ticket sends a transaction, which removes the place and makes the permits. It decides as package client
// does for the first contender of a queue. A request that only tries gets no permits while another contender
// waits.

// semaphore holds the permits of a semaphore in the state.
type semaphore struct {
	path    string
	rec     recipe.Record
	version int32
	dir     tree.Ref // the directory of the permits
	there   bool
	permits []string
	err     error    // set if the path has another kind of lock
	rival   obstacle // the node that shows the other kind of lock; set together with err
}

// semaphoreAt reads a semaphore. If the caller holds permits, `token` is their token. Then semaphoreAt
// ignores contenders of another kind that came later: those are the ones that are refused.
func semaphoreAt(t *tree.Tree, path string, token int64) (s semaphore) {
	s.path = path
	dir, there := t.Find(path)
	if !there {
		return s
	}
	var ok bool
	data, _ := dir.Data(acl.Super)
	s.rec, ok = recipe.ParseRecord([]byte(data))
	s.version = dir.Stat().Version
	if s.dir, s.there = t.Child(dir, recipe.PermitsName); s.there {
		s.permits = childrenOf(s.dir)
	}
	if token == 0 && (!ok || s.rec.Layout != "") {
		s.err = recipe.ErrMixedLayout
	} else {
		s.rival, s.err = rivals(t, dir, turns.UsePermits, childrenOf(dir), token)
	}
	return s
}

func childrenOf(dir tree.Ref) (names []string) {
	var walk tree.ChildWalk
	walk.Next(dir, math.MaxInt, func(n tree.Ref) int {
		names = append(names, n.Name())
		return 1
	})
	return names
}

// grants() reports whether n permits are free. The semaphore's own number of permits applies; `limit` is used
// if none is stored.
func (s *semaphore) grants(limit, n int) (bool, error) {
	if limit = cmp.Or(s.rec.Limit, limit); limit == 0 {
		return false, fmt.Errorf("%w of %s is not stored yet: give limit=", errLimit, s.path)
	}
	do, err := turns.DecidePermits(limit, len(s.permits), n)
	if err != nil {
		return false, fmt.Errorf("%w of %s is %d, and %d are asked for", errLimit, s.path, limit, n)
	}
	return do == turns.Grant, nil
}

// byNumber sorts the permits by their numbers.
func (s *semaphore) byNumber() {
	slices.SortFunc(s.permits, func(a, b string) int {
		return cmp.Or(cmp.Compare(recipe.SlotOf(a), recipe.SlotOf(b)), cmp.Compare(a, b))
	})
}

// first() returns the holder of the permit with the lowest number.
func (s *semaphore) first(t *tree.Tree, ids []jute.ID) *Holder {
	if len(s.permits) == 0 {
		return nil
	}
	s.byNumber()
	return holderOf(t, recipe.Join(s.dir.Path(), s.permits[0]), ids)
}

// numbers() returns the numbers of the permits that a ticket holds. `none`, if not empty, says why the caller
// must not use the numbers.
func (s *semaphore) numbers(t *tree.Tree, own []string, token int64) (slots []int, none string) {
	for _, name := range s.permits {
		n, there := t.Child(s.dir, name)
		switch slot := recipe.SlotOf(name); {
		case slot == 0 && there && n.Stat().Czxid < token:
			return nil, fmt.Sprintf("%s is a permit of another program and has no number", n.Path())
		case slot > 0 && slices.Contains(own, name):
			slots = append(slots, slot)
		}
	}
	slices.Sort(slots)
	return slots, ""
}

// lookPermits reads the state of a ticket for permits.
func (g *sight) lookPermits(t *tree.Tree, ids []jute.ID) {
	k := g.session.Ticket
	var own []string
	place := ""
	for _, path := range t.SomeEphemeralsOf(g.session.ID, int(k.Permits)+1) {
		if bounds.ParentPath(path) == recipe.Join(k.Path, recipe.QueueName) {
			place = path
		} else {
			own = append(own, recipe.Base(path))
		}
	}
	switch {
	case place != "":
		g.lookPlace(t, place, ids)
	case len(own) == int(k.Permits):
		g.lookHeld(t, own)
	} // otherwise g.node stays empty: another client has removed a node of the ticket
}

// lookHeld reads the permits that a ticket has.
func (g *sight) lookHeld(t *tree.Tree, own []string) {
	g.dir = recipe.Join(g.session.Ticket.Path, recipe.PermitsName)
	g.node = recipe.Join(g.dir, own[0])
	for _, name := range own {
		n, _ := t.Find(recipe.Join(g.dir, name))
		g.token = n.Stat().Czxid
		g.watch = append(g.watch, n.Path())
		g.readNode(n)
	}
	s := semaphoreAt(t, g.session.Ticket.Path, g.token)
	g.slots, g.noSlots = s.numbers(t, own, g.token)
	g.held, g.mixed, g.obstacle = s.err == nil, s.err, s.rival
}

// lookPlace looks at the queue in which a ticket for permits waits: whether it is its turn, and otherwise
// what it waits for.
func (g *sight) lookPlace(t *tree.Tree, place string, ids []jute.ID) {
	n, _ := t.Find(place)
	own, layout, ok := recipe.ParseName(n.Name())
	if !ok {
		return
	}
	g.node, g.own, g.dir = place, own, bounds.ParentPath(place)
	data := g.readNode(n)
	var p turns.Place
	p, g.of, _, g.mixed = placeIn(t, n.Parent(), rule(layout, own.Kind), own, n.Stat().Czxid)
	switch {
	case g.mixed != nil:
		return
	case !p.Found:
		g.node = ""
		return
	}
	g.ahead = p.Ahead + 1
	if p.Blocked {
		g.blocker = recipe.Join(g.dir, p.Blocker.Name)
		g.behind = holderOf(t, g.blocker, ids)
		return
	}
	k := g.session.Ticket
	s := semaphoreAt(t, k.Path, 0)
	if g.mixed = s.err; g.mixed != nil {
		return
	}
	o, _ := recipe.ParseOwner(data)
	free, err := s.grants(o.Limit, int(k.Permits))
	switch {
	case err != nil:
		g.mixed = err
	case free:
		g.grant = s.grant(place, o, int(k.Permits))
	default:
		g.behind = s.first(t, ids)
		g.watch = []string{recipe.Join(k.Path, recipe.PermitsName), k.Path}
	}
}

// grant() returns the transaction that replaces a place in the queue by n permits.
func (s *semaphore) grant(place string, o recipe.Owner, n int) (ops []byte) {
	create := func(op jute.OpCode, path string, data []byte, flags int32) {
		ops = jute.AppendMultiHeader(ops, op, false, -1)
		ops = jute.AppendBuffer(jute.AppendString(ops, path), data)
		ops = jute.AppendInt(jute.AppendACL(ops, jute.WorldAnyone), flags)
	}
	limit := cmp.Or(s.rec.Limit, o.Limit)
	dir := recipe.Join(s.path, recipe.PermitsName)
	if !s.there {
		create(jute.OpCreateContainer, dir, []byte{}, jute.FlagContainer)
	}
	o.Limit = 0
	data := recipe.EncodeOwner(o)
	for _, slot := range turns.FreeSlots(limit, s.permits, n, 0) {
		create(jute.OpCreate, recipe.Join(dir, recipe.PermitName(newID(), slot)), data,
			jute.FlagEphemeralSequential)
	}
	ops = jute.AppendMultiHeader(ops, jute.OpDelete, false, -1)
	ops = jute.AppendInt(jute.AppendString(ops, place), -1)
	if s.rec.Limit == 0 {
		s.rec.Limit = limit
		ops = jute.AppendMultiHeader(ops, jute.OpSetData, false, -1)
		ops = jute.AppendBuffer(jute.AppendString(ops, s.path), s.rec.Encode())
		ops = jute.AppendInt(ops, s.version)
	}
	return jute.AppendMultiHeader(ops, jute.OpError, true, -1)
}

// promote() gives a ticket the permits whose turn has come. It returns nil if the caller must look again:
// they may be there. It returns an answer if the ticket cannot have them.
func (s *Server) promote(ctx context.Context, q *Request, g *sight) *Answer {
	out, err := s.transact(ctx, g, q.IDs, g.grant)
	if err != nil {
		return unavailable(err)
	}
	switch out.Code {
	case jute.OK, jute.NoNode, jute.NodeExists, jute.BadVersion: // done, or something has changed: look again
		return nil
	}
	return refusal(&out)
}

// lookAtPermits tells what a request for permits of a semaphore would meet, before its ticket is opened.
func lookAtPermits(t *tree.Tree, q *Request) (c newcomer) {
	s := semaphoreAt(t, q.Path, 0)
	if c.err = s.err; c.err != nil {
		return c
	}
	free, err := s.grants(q.Limit, q.permits())
	if c.err = err; err != nil {
		return c
	}
	queue := recipe.Join(q.Path, recipe.QueueName)
	if dir, there := t.Find(queue); there {
		c.seen = dir.Stat().Pzxid
		var p turns.Place
		p, _, _, c.err = placeIn(t, dir, rule(recipe.LayoutCurator, recipe.RoleLock), recipe.Contender{}, 0)
		if p.Blocked {
			c.blocked, c.behind = true, holderOf(t, recipe.Join(queue, p.Blocker.Name), q.IDs)
		}
	}
	if !free && !c.blocked {
		c.blocked, c.behind = true, s.first(t, q.IDs)
	}
	return c
}

// describePermits returns the holders of a semaphore's permits, and how many contenders wait. `ok` is false
// if the path is not a semaphore.
func describePermits(t *tree.Tree, path string, ids []jute.ID) (l Lock, ok bool) {
	s := semaphoreAt(t, path, 0)
	if s.rec.Limit == 0 && !s.there || s.err != nil && len(s.permits) == 0 {
		return l, false
	}
	l = Lock{V: 1, Holders: []Holder{}, Limit: s.rec.Limit}
	if queue, there := t.Find(recipe.Join(path, recipe.QueueName)); there {
		l.Queued = len(childrenOf(queue))
	}
	s.byNumber()
	for _, name := range s.permits[:min(len(s.permits), shownHolders)] {
		if h := holderOf(t, recipe.Join(s.dir.Path(), name), ids); h != nil {
			h.Slot = recipe.SlotOf(name)
			l.Holders = append(l.Holders, *h)
		}
	}
	return l, true
}
