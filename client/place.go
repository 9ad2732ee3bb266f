package client

import (
	"fmt"

	"github.com/zlockd/zlockd/client/zk"
)

// place is what one pass over a directory tells a contender: whether it is there,
// and whom it waits for. Long queues are listed at every turn, so the pass makes no
// copy, no order and nothing else that grows with the queue.
type place struct {
	found   bool      // the own node is there
	blocker contender // the one waited for, if blocked: one only, so that no release wakes a herd
	blocked bool
	before  contender // the last one ahead of the blocker, if ahead is two or more
	ahead   int       // who would have to go first
	others  []string  // children that are no contenders of this queue
}

// place finds a contender's place. A contender without a name is one that would
// come now.
func (q queue) place(names zk.Names, own contender) (place, error) {
	var p place
	var seen census
	alike := likenessOf(own)
	for name := range names.All() {
		c, ok := alike.read(name)
		if !ok {
			var err error
			if c, ok, err = q.member(name); err != nil {
				return p, err
			}
		}
		if !ok {
			p.others = append(p.others, name)
			continue
		}
		seen.add(c)
		if own.name != "" && c.name == own.name {
			p.found = true
			continue
		}
		if !q.excludedBy(c) || own.name != "" && compareContenders(c, own) > 0 {
			continue
		}
		p.ahead++
		switch {
		case !p.blocked || compareContenders(c, p.blocker) > 0:
			p.before, p.blocker, p.blocked = p.blocker, c, true
		case p.ahead == 2 || compareContenders(c, p.before) > 0:
			p.before = c
		}
	}
	if err := seen.check(q); err != nil {
		return p, err
	}
	return p, seen.oneFamily(q)
}

// likeness reads the names that differ from an own one in id and number only: in a
// long queue nearly all do, and a pass over it is what a turn costs.
type likeness struct {
	own  contender
	tail string // what is between id and number
}

const (
	idBegins = len("_c_")
	idEnds   = idBegins + 36
)

func likenessOf(own contender) likeness {
	if own.maker != makerSelf || len(own.name) < idEnds+10 || own.name[:idBegins] != "_c_" {
		return likeness{}
	}
	if seq, ok := parseSeq(own.name[len(own.name)-10:]); !ok || seq != own.seq {
		return likeness{} // it has a sign before its ten digits
	}
	return likeness{own: own, tail: own.name[idEnds : len(own.name)-10]}
}

func (l likeness) read(name string) (contender, bool) {
	end := len(name) - 10
	if l.tail == "" || len(name) != len(l.own.name) || name[idEnds:end] != l.tail || name[:idBegins] != "_c_" || !isSelfUUID(name[idBegins:idEnds]) {
		return contender{}, false
	}
	seq, ok := parseSeq(name[end:])
	return contender{name: name, maker: makerSelf, kind: l.own.kind, seq: seq}, ok
}

// endIsFinal reports whether nothing takes the place of c when it goes. A write lock
// may be downgraded, which puts a read node there.
func (q queue) endIsFinal(c contender) bool {
	return q.kind == kindRead || c.kind == kindRead || c.kind == kindLatch || c.kind == kindLock && q.layout == LayoutCurator
}

// excludedBy reports whether a contender that waits for those before it waits for c.
func (q queue) excludedBy(c contender) bool { return q.kind != kindRead || c.kind.exclusive() }

// holds reports whether c holds the lock, going by the queue alone.
func (q queue) holds(names zk.Names, c contender) bool {
	for name := range names.All() {
		o, ok, err := q.member(name)
		if err == nil && ok && (c.kind.exclusive() || o.kind.exclusive()) && compareContenders(o, c) < 0 {
			return false
		}
	}
	return true
}

// member reads the name of a child, and says whether it is a contender of this
// queue. A contender that cannot be one beside it is an error.
func (q queue) member(name string) (contender, bool, error) {
	c, layout, ok := parseName(name)
	switch {
	case isPolicyNode(name):
		return c, false, notOf(name, q.layout) // it may hold, and looks at nodes of its own kind only
	case !ok || c.kind == kindLease:
		return c, false, nil
	case layout == q.layout:
	case q.layout == LayoutCurator && layout == LayoutKazoo && c.kind == kindLock && c.maker == makerKazoo && !q.rw:
		c.guest = true // a kazoo lock that was told to look at ours too
	default:
		return c, false, notOf(name, q.layout)
	}
	return c, true, nil
}

func notOf(name string, l Layout) error {
	return fmt.Errorf("%w: %s is no %v node", ErrMixedLayout, name, l)
}

// census is what of a queue's contenders decides whether they see each other.
type census struct {
	foreign, late bool
	kazoo, peers  bool      // kinds of makers that may not see each other
	families      [3]string // a contender of each family
	stranger      contender // one of another program
}

func (s *census) add(c contender) {
	s.late = s.late || c.seq < 0 || c.seq > maxForeignSeq
	s.kazoo = s.kazoo || c.guest
	if f := &s.families[c.kind.family()]; *f == "" {
		*f = c.name
	}
	if c.maker == makerSelf {
		return
	}
	s.foreign = true
	s.peers = s.peers || !c.guest
	if s.stranger.name == "" {
		s.stranger = c
	}
}

// check fails if some contender cannot read, or not order, the names of all others.
func (s *census) check(q queue) error {
	switch {
	case s.kazoo && s.peers && q.layout == LayoutCurator:
		return fmt.Errorf("%w: kazoo and Curator cannot see each other", ErrMixedLayout)
	case s.foreign && s.late:
		return ErrSequenceExhausted
	}
	return nil
}

// oneFamily fails if a contender of another program does not look at all the
// others. Those of this package do; who follows Curator's recipes looks at its own.
func (s *census) oneFamily(q queue) error {
	if !s.foreign || q.layout != LayoutCurator {
		return nil
	}
	f := s.stranger.kind.family()
	if f != q.kind.family() {
		return fmt.Errorf("%w: %s is of a %v of another program, which does not see a %v", ErrMixedLayout, s.stranger.name, f, q.kind.family())
	}
	for other, name := range s.families {
		if name != "" && family(other) != f {
			return fmt.Errorf("%w: %s is of another program, which does not see %s", ErrMixedLayout, s.stranger.name, name)
		}
	}
	return nil
}

// family is what programs that follow Curator's recipes see of a directory: each
// recipe looks at its own.
type family uint8

const (
	familyLock family = iota
	familyReadWrite
	familyLatch
)

func (k nodeKind) family() family {
	switch k {
	case kindRead, kindWrite:
		return familyReadWrite
	case kindLatch:
		return familyLatch
	}
	return familyLock
}

func (f family) String() string {
	return [...]string{"exclusive lock", "read-write lock", "leader latch"}[f]
}
