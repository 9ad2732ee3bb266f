package turns

import (
	"fmt"
	"math"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// Rule is the rule of a queue in which every contender has a numbered node and waits for one node
// before it.
type Rule struct {
	Layout recipe.Layout
	Kind   recipe.Role
	RW     bool // the contenders are readers and writers
}

// excludes() reports whether a contender must wait for another one ahead of it. The argument `waits` is the
// role of the contender, and `ahead` is the role of the other one. Every queue has this rule.
func excludes(ahead, waits recipe.Role) bool {
	return waits != recipe.RoleRead || ahead.Exclusive()
}

// member() reads the name of a child, and reports whether it is a contender of this queue. A contender that
// cannot exist beside this queue is an error.
func (q Rule) member(name string) (c recipe.Contender, guest, ok bool, err error) {
	c, layout, ok := recipe.ParseName(name)
	switch {
	case recipe.IsPolicyNode(name):
		// a contender with a policy may hold the lock without seeing this queue
		return c, false, false, notOf(name, q.Layout)
	case !ok || c.Kind == recipe.RoleLease:
		return c, false, false, nil
	case layout == q.Layout:
		return c, false, true, nil
	case q.Layout == recipe.LayoutCurator && layout == recipe.LayoutKazoo && c.Kind == recipe.RoleLock &&
		c.Maker == recipe.MakerKazoo && !q.RW:
		return c, true, true, nil
	}
	return c, false, false, notOf(name, q.Layout)
}

func notOf(name string, l recipe.Layout) error {
	return fmt.Errorf("%w: %s is not a %v node", recipe.ErrMixedLayout, name, l)
}

// EndIsFinal reports whether no other node takes the place of c after c has gone. A downgrade replaces a
// write node with a read node.
func (q Rule) EndIsFinal(c recipe.Contender) bool {
	return q.Kind == recipe.RoleRead || c.Kind == recipe.RoleRead || c.Kind == recipe.RoleLatch ||
		c.Kind == recipe.RoleLock && q.Layout == recipe.LayoutCurator
}

// EndsAreFinal reports whether few contenders are ahead and none of them is replaced when it goes. Then the
// contender after them has its turn once all of them are gone, if its own node still exists.
func (q Rule) EndsAreFinal(few []recipe.Contender) bool {
	return len(few) > 0 && !slices.ContainsFunc(few, func(c recipe.Contender) bool { return !q.EndIsFinal(c) })
}

// census collects facts that decide whether the contenders of a queue see each other.
type census struct {
	foreign, late bool
	kazoo, peers  bool             // the queue has contenders of kazoo, and of programs that may not see them
	families      [3]string        // a contender of each family
	stranger      recipe.Contender // a contender of another program
}

// add() counts a contender of the queue. A guest is a kazoo lock that is configured to look at
// package client's nodes too.
func (s *census) add(c recipe.Contender, guest bool) {
	s.late = s.late || c.Seq < 0 || c.Seq > maxForeignSeq
	s.kazoo = s.kazoo || guest
	if f := &s.families[c.Kind.Family()]; *f == "" {
		*f = c.Name
	}
	if c.Maker == recipe.MakerSelf {
		return
	}
	s.foreign = true
	s.peers = s.peers || !guest
	if s.stranger.Name == "" {
		s.stranger = c
	}
}

// check() returns an error if a contender cannot read or order the names of all others.
func (s *census) check(q Rule) error {
	switch {
	case s.kazoo && s.peers && q.Layout == recipe.LayoutCurator:
		return fmt.Errorf("%w: kazoo and Curator cannot see each other", recipe.ErrMixedLayout)
	case s.foreign && s.late:
		return recipe.ErrSequenceExhausted
	}
	return nil
}

// oneFamily returns an error if a contender of another program does not look at all the others. Contenders of
// package client do; contenders of Curator's recipes look only at their own family.
func (s *census) oneFamily(q Rule) error {
	if !s.foreign || q.Layout != recipe.LayoutCurator {
		return nil
	}
	f := s.stranger.Kind.Family()
	if f != q.Kind.Family() {
		return fmt.Errorf("%w: %s belongs to a %v of another program, which does not see a "+
			"%v", recipe.ErrMixedLayout,
			s.stranger.Name, f, q.Kind.Family())
	}
	for other, name := range s.families {
		if name != "" && recipe.Family(other) != f {
			return fmt.Errorf("%w: %s belongs to another program, which does not see %s", recipe.ErrMixedLayout,
				s.stranger.Name, name)
		}
	}
	return nil
}

// maxForeignSeq is a million less than the last number up to which clients that compare names as text order
// contenders as this package does. The million leaves room for nodes that are being created.
const maxForeignSeq = math.MaxInt32 - 1_000_000
