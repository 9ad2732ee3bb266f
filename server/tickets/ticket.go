package tickets

import (
	"iter"
	"math"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
)

// sight is the result of one look at the state of a ticket.
type sight struct {
	session session.Session // without a ticket if there is none with this secret
	over    session.EndedTicket

	node    string // path of the contender's node; empty: the node was removed
	dir     string
	own     recipe.Contender
	held    bool
	token   int64
	ahead   int // how many contenders must get the lock before this one
	of      int // how many contenders there are
	blocker string
	behind  *Holder
	asked   *recipe.Revocation
	mixed   error // why the ticket can never hold its lock: the path has a lock of another kind
	seen    int   // number of nodes that were read

	// obstacle is the node that keeps the ticket from its lock: while it exists, the ticket does not hold. It
	// has no path if the ticket waits for permits. Such a ticket waits as long as it has a node in the queue,
	// because the grant of its permits removes that node.
	obstacle obstacle

	slots   []int    // numbers of the ticket's permits
	noSlots string   // why the caller must not use `slots`
	grant   []byte   // the transaction that makes the ticket's permits; nil: the ticket must wait
	watch   []string // paths whose changes may change the sight, besides those of `node` and `blocker`
}

// obstacle is a node with its version; -1 stands for any version. A node whose name has no number may be
// removed and made again. Then a directory in `above` shows that by its counter.
type obstacle struct {
	path    string
	version int32
	above   []counted
}

// The type counted is a directory with the number that its next sequential node gets.
type counted struct {
	dir  string
	next int32
}

// obstacleIn returns a node as an obstacle. If the node's name has no number, it also stores the counters of
// `dirs`: the node's directory, and a directory above it that may be replaced, too.
func obstacleIn(n tree.Ref, dirs ...tree.Ref) obstacle {
	o := obstacle{path: n.Path(), version: -1}
	if recipe.Numbered(n.Name()) {
		return o // no other node gets this name, because it has a number
	}
	for _, dir := range dirs {
		o.above = append(o.above, counted{dir.Path(), dir.Counter()})
	}
	return o
}

// lives() reports whether there is such a ticket.
func (g *sight) lives() bool { return g.session.Ticket != nil }

// Holder describes the contender that a ticket waits for.
type Holder struct {
	Host   string `json:"host,omitempty"`
	User   string `json:"user,omitempty"`
	Reason string `json:"reason,omitempty"`
	Slot   int    `json:"slot,omitempty"` // the number of the holder's permit
	Since  int64  `json:"since"`
}

// look() reads the state of a ticket.
func look(st *state.State, secret session.Hash, now int64, ids []jute.ID) (g sight) {
	g.session, _ = st.Sessions().Ticket(secret)
	if !g.lives() {
		g.over, _ = st.Sessions().EndOfTicket(secret, now)
		return g
	}
	g.seen = looked(st.Tree(), g.session.Ticket.Path)
	if g.session.Ticket.Mode == permit {
		g.lookPermits(st.Tree(), ids)
		return g
	}
	nodes := st.Tree().SomeEphemeralsOf(g.session.ID, 1)
	if len(nodes) == 0 {
		return g
	}
	n, _ := st.Tree().Find(nodes[0])
	own, layout, ok := recipe.ParseName(n.Name())
	if !ok {
		return g
	}
	g.node, g.dir, g.own, g.token = nodes[0], bounds.ParentPath(nodes[0]), own, n.Stat().Czxid
	g.readNode(n)
	var p turns.Place
	p, g.of, g.obstacle, g.mixed = placeIn(st.Tree(), n.Parent(), rule(layout, own.Kind), own, g.token)
	switch {
	case g.mixed != nil:
	case !p.Found: // another client has changed what the names mean: the ticket's node no longer counts
		g.node = ""
	default:
		g.held, g.ahead = !p.Blocked, p.Ahead
	}
	if p.Blocked {
		g.blocker = recipe.Join(g.dir, p.Blocker.Name)
		g.obstacle = obstacle{path: g.blocker, version: -1}
		g.behind = holderOf(st.Tree(), g.blocker, ids)
	}
	return g
}

// looked() returns how many nodes the server reads to look at a lock: the children of the lock's node, and of
// the queue and the permits if it is a semaphore.
func looked(t *tree.Tree, path string) (n int) {
	queue, permits := recipe.Join(path, recipe.QueueName), recipe.Join(path, recipe.PermitsName)
	for _, p := range []string{path, queue, permits} {
		if dir, there := t.Find(p); there {
			n += int(dir.Stat().NumChildren)
		}
	}
	return n
}

func rule(l recipe.Layout, k recipe.Role) turns.Rule {
	return turns.Rule{Layout: l, Kind: k, RW: k == recipe.RoleRead || k == recipe.RoleWrite}
}

// holderOf describes a contender, if these identities may read its node.
func holderOf(t *tree.Tree, path string, ids []jute.ID) *Holder {
	n, there := t.Find(path)
	if !there {
		return nil
	}
	h := &Holder{Since: n.Stat().Ctime}
	if data, allowed := n.Data(ids); allowed {
		if o, ok := recipe.ParseOwner([]byte(data)); ok {
			h.Host, h.User, h.Reason = cut(o.Host), cut(o.User), cut(o.Reason)
		}
	}
	return h
}

// readNode returns the data of the ticket's own node. If an operator has written there that the lock must be
// given back, readNode stores that in g.asked.
func (g *sight) readNode(n tree.Ref) []byte {
	text, _ := n.Data(acl.Super) // the ticket's own node: read it even if its ACL now forbids that
	data := []byte(text)
	if asked, ok := recipe.RevocationIn(data); ok {
		g.asked = &asked
	}
	return data
}

// placeIn finds a contender's place among the children of a directory. `own` is empty for a new contender.
// placeIn ignores children that came later: if one of these belongs to another kind of lock, that one is
// refused, and not this contender. But a later child that is not behind this contender, by its number, does
// count. If one child causes an error, the result `by` is that child.
func placeIn(t *tree.Tree, dir tree.Ref, q turns.Rule, own recipe.Contender, token int64) (
	p turns.Place, of int, by obstacle, err error) {
	more := true
	counted := func(yield func(string) bool) {
		var walk tree.ChildWalk
		walk.Next(dir, math.MaxInt, func(n tree.Ref) int {
			c, _, numbered := recipe.ParseName(n.Name())
			if numbered && n.Session() != 0 {
				of++
			}
			late := own.Name != "" && n.Stat().Czxid > token
			if more && (!late || numbered && !recipe.Before(own.Seq, c.Seq)) {
				if more = yield(n.Name()); !more {
					by = obstacleIn(n, dir)
				}
			}
			return 1
		})
	}
	if p, err = q.Place(iter.Seq[string](counted), own); err == nil {
		by, err = alone(t, dir, p.Others, token)
	}
	return p, of, by, err
}

// alone() returns an error if the path of a queue is also used for a lock of another kind. Then `by` is the
// node that shows it.
func alone(t *tree.Tree, dir tree.Ref, others []string, token int64) (by obstacle, err error) {
	if by, err = rivals(t, dir, turns.UseQueue, others, token); err != nil {
		return by, err
	}
	data, _ := dir.Data(acl.Super)
	if _, policy := recipe.ParsePolicyRecord([]byte(data)); policy && data != "" {
		return obstacle{path: dir.Path(), version: dir.Stat().Version}, recipe.ErrMixedLayout
	}
	return by, nil
}

// rivals() looks for a living contender of another kind of lock, and returns an error and its node. If
// `token` is not 0, contenders that came later do not count.
func rivals(t *tree.Tree, dir tree.Ref, own turns.Use, names []string, token int64) (by obstacle, _ error) {
	live := func(n tree.Ref) bool { return n.Session() != 0 && (token == 0 || n.Stat().Czxid < token) }
	for name, use := range own.Rivals(names) {
		n, there := t.Child(dir, name)
		if !there {
			continue
		}
		if use == turns.UsePermits {
			var walk tree.ChildWalk
			walk.Next(n, math.MaxInt, func(permit tree.Ref) int {
				if by.path == "" && live(permit) {
					by = obstacleIn(permit, n, dir)
				}
				return 1
			})
		} else if live(n) {
			by = obstacleIn(n, dir)
		}
		if by.path != "" {
			return by, recipe.ErrMixedLayout
		}
	}
	return by, nil
}

// newcomer is what a new ticket would find at a lock.
type newcomer struct {
	role    recipe.Role
	seen    int64 // zxid of the last change of the lock's children; 0: the lock has no node yet
	blocked bool
	behind  *Holder
	err     error
}

// lookAt tells what a new ticket would find at a lock: whether it must wait, and for what.
func lookAt(t *tree.Tree, q *Request) (c newcomer) {
	c.role = recipe.RoleLock
	q.seen += looked(t, q.Path)
	switch q.Mode {
	case shared:
		c.role = recipe.RoleRead
	case permit:
		return lookAtPermits(t, q)
	}
	dir, there := t.Find(q.Path)
	if !there {
		return c
	}
	c.seen = dir.Stat().Pzxid
	if q.Mode == exclusive && q.Layout != recipe.LayoutKazoo && hasReaders(dir) {
		c.role = recipe.RoleWrite // Curator's readers and writers see no plain contender, so become a writer
	}
	p, _, _, err := placeIn(t, dir, rule(q.Layout, c.role), recipe.Contender{}, 0)
	c.blocked, c.err = p.Blocked, err
	if p.Blocked {
		c.behind = holderOf(t, recipe.Join(q.Path, p.Blocker.Name), q.IDs)
	}
	return c
}

// hasReaders reports whether a directory has contenders of a read-write lock.
func hasReaders(dir tree.Ref) (has bool) {
	var walk tree.ChildWalk
	walk.Next(dir, math.MaxInt, func(n tree.Ref) int {
		c, _, ok := recipe.ParseName(n.Name())
		has = has || ok && (c.Kind == recipe.RoleRead || c.Kind == recipe.RoleWrite)
		return 1
	})
	return has
}

// sequencer() returns a text by which a third party can check the ticket's hold of its lock.
func (g *sight) sequencer() string {
	mode, path := fence.Exclusive, g.session.Ticket.Path
	switch g.session.Ticket.Mode {
	case shared:
		mode = fence.Shared
	case permit:
		mode = fence.Permit
	}
	return fence.Sequencer{Path: path, Node: g.node[len(path)+1:], Mode: mode,
		Token: fence.Token(g.token)}.String()
}

// mayRead reports whether these identities may read a node. It also returns true if the node does not exist.
func mayRead(t *tree.Tree, path string, ids []jute.ID) bool {
	n, there := t.Find(path)
	if !there {
		return true
	}
	_, allowed := n.Data(ids)
	return allowed
}

// Lock is the answer of GET about a lock.
type Lock struct {
	V       int      `json:"v"`
	Holders []Holder `json:"holders"`
	Queued  int      `json:"queued"`
	Limit   int      `json:"limit,omitempty"` // the number of permits of a semaphore
}

// shownHolders bounds the holders that GET names.
const shownHolders = 20

// describe() returns the holders of a lock, and how many contenders wait.
func describe(t *tree.Tree, q *Request) Lock {
	q.seen += looked(t, q.Path)
	l, permits := describePermits(t, q.Path, q.IDs)
	if permits {
		return l
	}
	l = Lock{V: 1, Holders: []Holder{}}
	dir, there := t.Find(q.Path)
	if !there {
		return l
	}
	var names []string
	var walk tree.ChildWalk
	walk.Next(dir, math.MaxInt, func(n tree.Ref) int {
		if n.Session() != 0 {
			names = append(names, n.Name())
		}
		return 1
	})
	list, _, err := turns.QueueOf(recipe.LayoutCurator, names, true)
	if err != nil {
		return l
	}
	holders := turns.Holders(list)
	l.Queued = len(list) - holders
	for _, c := range list[:holders] {
		if len(l.Holders) == shownHolders {
			break
		}
		if h := holderOf(t, recipe.Join(q.Path, c.Name), q.IDs); h != nil {
			l.Holders = append(l.Holders, *h)
		}
	}
	return l
}

// cut() shortens a text that another client wrote.
func cut(s string) string { return recipe.CutText(s, maxText) }
