package turns

import (
	"iter"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// Place is the result of one pass over a directory for a contender: whether its node is there, and for which
// contender it waits. Long queues are listed at every turn, so the pass neither copies nor sorts, and its
// memory does not grow with the queue.
type Place struct {
	Found   bool             // the contender's own node is in the list
	Blocker recipe.Contender // if Blocked: the one contender to wait for, so that a release wakes few waiters
	Blocked bool
	Before  recipe.Contender   // the last contender ahead of the blocker, if Ahead is two or more
	Ahead   int                // how many contenders must go first
	Few     []recipe.Contender // the contenders that must go first, if at most maxFew, in no order
	Others  []string           // children that are not contenders of this queue
}

// maxFew bounds [Place.Few].
const maxFew = 8

// Place finds a contender's place. An empty name stands for a new contender.
func (q Rule) Place(names iter.Seq[string], own recipe.Contender) (Place, error) {
	var p Place
	var seen census
	alike := recipe.LikenessOf(own)
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
			switch order := recipe.Compare(c, own); {
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
		if p.Ahead++; p.Ahead <= maxFew {
			p.Few = append(p.Few, c)
		}
		switch {
		case !p.Blocked || recipe.Compare(c, p.Blocker) > 0:
			p.Before, p.Blocker, p.Blocked = p.Blocker, c, true
		case p.Ahead == 2 || recipe.Compare(c, p.Before) > 0:
			p.Before = c
		}
	}
	if p.Ahead > maxFew {
		p.Few = nil
	}
	if err := seen.check(q); err != nil {
		return p, err
	}
	return p, seen.oneFamily(q)
}

// order is the rule of a queue for all contenders, in their order. [Rule.Place] is the fast form of the rule,
// for one contender and an unordered list. A test compares both forms.
type order struct {
	seen      int
	exclusive int // how many contenders there are up to the last exclusive one
}

// next() adds a contender with the role k to the queue, and returns the range of the contenders for which it
// waits. The contenders in this range must go first, and do not wait for each other. An exclusive contender
// waits for the shared contenders since the last exclusive one, or for that exclusive one if there are no
// shared ones. A shared contender waits for the last exclusive one.
func (t *order) next(k recipe.Role) (from, to int) {
	own, last := t.seen, max(t.exclusive-1, 0)
	t.seen++
	switch {
	case k == recipe.RoleRead:
		return last, t.exclusive
	case t.exclusive < own:
		last = t.exclusive
	}
	t.exclusive = t.seen
	return last, own
}

// Holders returns how many contenders of a queue hold the lock; they are the first ones.
func Holders(queue []recipe.Contender) int {
	var t order
	for i, c := range queue {
		if from, to := t.next(c.Kind); from < to {
			return i
		}
	}
	return len(queue)
}

// QueueOf returns the contenders among a directory's children, in order, and the names of the other children.
// If `rw` is set, the queue is for reads and writes, not only for exclusive locks.
func QueueOf(l recipe.Layout, names []string, rw bool) (
	list []recipe.Contender, foreign []string, err error,
) {
	q := Rule{Layout: l, RW: rw}
	var seen census
	list = make([]recipe.Contender, 0, len(names))
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
	slices.SortFunc(list, recipe.Compare)
	return list, foreign, seen.check(q)
}
