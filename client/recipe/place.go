package recipe

import (
	"fmt"
	"iter"
	"slices"
)

// Place is the result of one pass over a directory for a contender: whether its node is there, and for which
// contender it waits. Long queues are listed at every turn, so the pass neither copies nor sorts, and its
// memory does not grow with the queue.
type Place struct {
	Found   bool      // the own node is there
	Blocker Contender // if blocked, the contender to wait for; only one, so that a release wakes few waiters
	Blocked bool
	Before  Contender   // the last contender ahead of the blocker, if Ahead is two or more
	Ahead   int         // how many contenders must go first
	Few     []Contender // the contenders that must go first, if at most MaxFew, in no order
	Others  []string    // children that are not contenders of this queue
}

// MaxFew bounds [Place.Few].
const MaxFew = 8

// Place finds a contender's place. An empty name stands for a new contender.
func (q Rule) Place(names iter.Seq[string], own Contender) (Place, error) {
	var p Place
	var seen census
	alike := LikenessOf(own)
	for name := range names {
		c, ok := alike.Read(name)
		guest := false
		if !ok {
			var err error
			if c, guest, ok, err = q.member(name); err != nil {
				return p, err
			}
		}
		if !ok {
			p.Others = append(p.Others, name)
			continue
		}
		seen.add(c, guest)
		if own.Name != "" {
			switch order := Compare(c, own); {
			case order == 0:
				p.Found = true
				continue
			case order > 0:
				continue
			}
		}
		if !excludes(c.Kind, q.Kind) {
			continue
		}
		if p.Ahead++; p.Ahead <= MaxFew {
			p.Few = append(p.Few, c)
		}
		switch {
		case !p.Blocked || Compare(c, p.Blocker) > 0:
			p.Before, p.Blocker, p.Blocked = p.Blocker, c, true
		case p.Ahead == 2 || Compare(c, p.Before) > 0:
			p.Before = c
		}
	}
	if p.Ahead > MaxFew {
		p.Few = nil
	}
	if err := seen.check(q); err != nil {
		return p, err
	}
	return p, seen.oneFamily(q)
}

// EndIsFinal reports whether no other node takes the place of c after c has gone. A downgrade replaces a
// write node with a read node.
func (q Rule) EndIsFinal(c Contender) bool {
	return q.Kind == RoleRead || c.Kind == RoleRead || c.Kind == RoleLatch || c.Kind == RoleLock &&
		q.Layout == LayoutCurator
}

// EndsAreFinal reports whether few contenders are ahead and none of them is replaced when it goes. Then the
// contender behind them has its turn once each is gone, if its own node still exists.
func (q Rule) EndsAreFinal(few []Contender) bool {
	return len(few) > 0 && !slices.ContainsFunc(few, func(c Contender) bool { return !q.EndIsFinal(c) })
}

// member reads the name of a child, and reports whether it is a contender of this queue. A
// contender that cannot exist beside this queue is an error.
func (q Rule) member(name string) (c Contender, guest, ok bool, err error) {
	c, layout, ok := ParseName(name)
	switch {
	case IsPolicyNode(name):
		return c, false, false, notOf(name, q.Layout) // it may hold, but it sees only its own kind of nodes
	case !ok || c.Kind == RoleLease:
		return c, false, false, nil
	case layout == q.Layout:
		return c, false, true, nil
	case q.Layout == LayoutCurator && layout == LayoutKazoo && c.Kind == RoleLock && c.Maker == MakerKazoo &&
		!q.RW:
		return c, true, true, nil
	}
	return c, false, false, notOf(name, q.Layout)
}

func notOf(name string, l Layout) error {
	return fmt.Errorf("%w: %s is no %v node", ErrMixedLayout, name, l)
}

// Rule is the rule of a queue in which every contender has a numbered node and waits for one node
// before it.
type Rule struct {
	Layout Layout
	Kind   Role
	RW     bool // reads and writes contend
}

// order is the rule of a queue for all contenders, in their order. [Rule.Place] is its fast form, for one
// contender and a list without an order; a test compares the two.
type order struct {
	seen      int
	exclusive int // how many contenders there are up to the last exclusive one
}

// next returns the places of the contenders for which the next contender waits. Those contenders must go
// first, and do not wait for each other. An exclusive contender waits for the shared contenders since the
// last exclusive one, or for that exclusive one if there are no shared ones. A shared contender waits for the
// last exclusive one.
func (t *order) next(k Role) (from, to int) {
	own, last := t.seen, max(t.exclusive-1, 0)
	t.seen++
	switch {
	case k == RoleRead:
		return last, t.exclusive
	case t.exclusive < own:
		last = t.exclusive
	}
	t.exclusive = t.seen
	return last, own
}

// Holders returns how many contenders of a queue hold the lock; they are the first ones.
func Holders(queue []Contender) int {
	var t order
	for i, c := range queue {
		if from, to := t.next(c.Kind); from < to {
			return i
		}
	}
	return len(queue)
}

// QueueOf returns the contenders among a directory's children, in order, and the names of the other
// children. With rw, reads and writes contend too, not only exclusive locks.
func QueueOf(l Layout, names []string, rw bool) (list []Contender, foreign []string, err error) {
	q := Rule{Layout: l, RW: rw}
	var seen census
	list = make([]Contender, 0, len(names))
	for _, name := range names {
		c, guest, ok, e := q.member(name)
		switch {
		case e != nil:
			err = e
		case ok:
			list = append(list, c)
			seen.add(c, guest)
		default:
			foreign = append(foreign, name)
		}
	}
	if err != nil {
		return nil, foreign, err
	}
	slices.SortFunc(list, Compare)
	return list, foreign, seen.check(q)
}

// excludes reports whether a contender with the role waits must wait for a contender with the role ahead. It
// is the rule of every queue.
func excludes(ahead, waits Role) bool { return waits != RoleRead || ahead.Exclusive() }
