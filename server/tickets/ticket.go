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
	session session.Session // zero value: there is no such ticket
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
	mixed   error // set if the path has another kind of lock, so that the ticket cannot hold it
	seen    int   // number of nodes that were read

	// While the node `obstacle` exists, the ticket does not get its lock. The path is empty for a ticket that
	// waits for permits. Such a ticket waits while its own node exists, because the grant of the permits
	// removes that node.
	obstacle obstacle

	slots   []int    // numbers of the ticket's permits
	noSlots string   // why the caller must not use `slots`
	grant   []byte   // the transaction that makes the ticket's permits; nil: the ticket must wait
	watch   []string // further paths whose changes may change the sight
}

// obstacle is a node with its version; -1 stands for any version. If the node's name has no number, the
// directories in `above` show whether the node is still the same.
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

// obstacleIn returns a node as an obstacle. `dirs` are the node's directory, and the directories above it
// that may be removed and made again.
func obstacleIn(n tree.Ref, dirs ...tree.Ref) obstacle {
	o := obstacle{path: n.Path(), version: -1}
	if recipe.Numbered(n.Name()) {
		return o // a number is in the name: no other node gets this name
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
	case !p.Found: // another client has changed the meaning of the directory's names
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

// looked() returns how many nodes are read for one look at a lock: all children of its directories.
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

// readNode returns the data of a node of the ticket, and notes whether an operator has asked the caller to
// give the lock back.
func (g *sight) readNode(n tree.Ref) []byte {
	text, _ := n.Data(acl.Super) // as the super user, because the node's ACL may have changed
	data := []byte(text)
	if asked, ok := recipe.RevocationIn(data); ok {
		g.asked = &asked
	}
	return data
}

// placeIn finds a contender's place among the children of a directory. `own` is empty for a new contender.
// placeIn ignores contenders that came later: if a later contender belongs to another kind of lock, that
// contender is refused, not this one. But a later node counts if its number is not higher, because then it is
// not behind this contender. If there is an error and one node causes it, the result `by` is that node.
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

// If a lock of another kind is taken at the path of a queue, alone() returns an error and the node that
// causes it.
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

// rivals() looks for a living child that belongs to another kind of lock, and returns an error and this
// child. If `token` is not 0, only children with lower tokens count.
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

// newcomer is the result of a look at a lock for a new ticket.
type newcomer struct {
	role    recipe.Role
	seen    int64 // zxid of the last change of the directory's children; 0: there is no directory
	blocked bool
	behind  *Holder
	err     error
}

// lookAt looks at a lock for a new ticket.
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
		c.role = recipe.RoleWrite // contenders of Curator's recipes see only contenders of the same recipe
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

// sequencer() returns a text that describes the hold of a ticket to a third party.
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
