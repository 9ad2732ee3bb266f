package turns

import (
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// blocked() reports whether a contender without a node would have to wait, according to its list.
func (x *qExplorer) blocked(s *qState, i int) bool {
	names, _ := x.names(s, s.who[i].list)
	p, err := x.programs[i].rule.Place(slices.Values(names), recipe.Contender{})
	if err != nil {
		panic(err) // cannot happen: the programs see each other
	}
	return p.Blocked
}

// trouble() lets a session end, or another client remove a node.
func (x *qExplorer) trouble(s qState, c int) {
	own := s.who[c].phase
	if own == qIdle || own == qEnded {
		return
	}
	if dead := s; dead.ends > 0 {
		dead.ends--
		x.end(&dead, c)
		x.add(dead)
	}
	for _, bit := range []int8{int8(c), int8(c) + 4} {
		if robbed := s; robbed.takes > 0 && robbed.nodes&(1<<bit) != 0 {
			robbed.takes--
			c := &robbed.who[c]
			late := c.phase == qListed || c.phase == qWaits && c.woken
			c.taken = late || c.phase == qHolds || c.phase == qReads
			x.remove(&robbed, bit)
			x.add(robbed)
		}
	}
}

// end() ends a contender and removes its nodes.
func (x *qExplorer) end(s *qState, c int) {
	s.who[c] = qClient{phase: qEnded, seq: s.who[c].seq}
	for _, bit := range []int8{int8(c), int8(c) + 4} {
		if s.nodes&(1<<bit) != 0 {
			x.remove(s, bit)
		}
	}
}

// step() does the next step of a contender, and reports whether it has one.
func (x *qExplorer) step(s *qState, i int) bool {
	c := &s.who[i]
	switch c.phase {
	case qIdle, qLooks:
		if x.programs[i].tries && c.phase == qIdle {
			c.phase, c.list = qLooks, s.nodes
			break
		}
		if c.phase == qLooks && x.blocked(s, i) {
			c.phase, c.list = qEnded, 0
			break
		}
		c.list = 0
		c.phase, c.seq = qMade, s.next
		if x.mutation == qListsFirst {
			c.phase, c.list = qListed, s.nodes|1<<i
			if s.next > 0 {
				c.list = 1 << i // the list as it was before the other contenders came
			}
		}
		s.nodes |= 1 << i
		s.next++
	case qMade:
		c.phase, c.list = qListed, s.nodes
	case qListed:
		x.decide(s, i)
	case qWatches:
		c.phase = qWaits
		if s.nodes&(1<<c.on) == 0 && x.mutation != qWatchesLate {
			c.woken, c.there = true, s.nodes&(1<<i) != 0
		}
	case qWaits:
		if !c.woken {
			return false
		}
		x.wake(s, i)
	case qHolds:
		if !x.programs[i].downgrades {
			x.end(s, i)
			break
		}
		c.phase = qReads
		if s.nodes&(1<<i) != 0 { // otherwise the client sees that its hold was taken
			s.nodes |= 1 << (i + 4)
			x.remove(s, int8(i))
		} else {
			x.end(s, i)
		}
	case qReads:
		x.end(s, i)
	case qEnded:
		return false
	}
	return true
}

// decide() acts on a contender's list.
func (x *qExplorer) decide(s *qState, i int) {
	c := &s.who[i]
	p, bit := x.place(s, i, c.list)
	c.list = 0
	switch {
	case !p.Found:
		x.end(s, i)
	case !p.Blocked:
		c.phase = qHolds
	case x.programs[i].tries && x.mutation == qStays:
		c.phase = qEnded
	case x.programs[i].tries:
		x.end(s, i)
	default:
		q := x.programs[i].rule
		c.phase, c.on, c.few = qWatches, bit(p.Blocker.Name), [4]int8{-1, -1, -1, -1}
		c.spare = q.EndsAreFinal(p.Few) || x.mutation == qTrusts
		if !c.spare || x.mutation == qSeesAFew {
			break
		}
		slices.SortFunc(p.Few, recipe.Compare)
		for n, o := range p.Few[:len(p.Few)-1] {
			c.few[n] = bit(o.Name)
		}
	}
}

// wake() continues with a contender whose wait is over.
func (x *qExplorer) wake(s *qState, i int) {
	c := &s.who[i]
	there := c.there || x.mutation == qNeverLooks
	spare, few, taken := c.spare, c.few, c.taken
	*c = qClient{phase: qMade, seq: c.seq}
	switch {
	case !spare || !there:
	case few == [4]int8{-1, -1, -1, -1}:
		c.phase, c.taken = qHolds, taken
	default:
		last := 3
		for few[last] < 0 {
			last--
		}
		c.phase, c.on, c.spare = qWatches, few[last], true
		few[last] = -1
		c.few = few
	}
}
