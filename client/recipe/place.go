package recipe

import (
	"fmt"
	"iter"
	"math"
	"slices"
)

// Place is what one pass over a directory tells a contender: whether its node is there, and which
// contender it waits for. Long queues are listed at every turn, so the pass makes no copy, no order
// and nothing else that grows with the queue.
type Place struct {
	Found   bool      // the own node is there
	Blocker Contender // the one waited for, if blocked: one only, so that no release wakes a herd
	Blocked bool
	Before  Contender   // the last one ahead of the blocker, if ahead is two or more
	Ahead   int         // how many contenders have to go first
	Few     []Contender // that have to go first, if there are at most MaxFew, in no order
	Others  []string    // children that are no contenders of this queue
}

// MaxFew bounds [Place.Few].
const MaxFew = 8

// Place finds a contender's place. A contender without a name stands for one that comes now.
func (q Rule) Place(names iter.Seq[string], own Contender) (Place, error) {
	var p Place
	var seen census
	alike := LikenessOf(own)
	for name := range names {
		c, ok := alike.Read(name)
		if !ok {
			var err error
			if c, ok, err = q.member(name); err != nil {
				return p, err
			}
		}
		if !ok {
			p.Others = append(p.Others, name)
			continue
		}
		seen.add(c)
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

// likeness reads names that differ from an own one only in id and number. In a long queue nearly
// all names do, and a pass over them is the cost of a turn.
type likeness struct {
	own  Contender
	tail string // what is between id and number
}

const (
	idBegins = len("_c_")
	idEnds   = idBegins + 36
)

func LikenessOf(own Contender) *likeness {
	if own.Maker != MakerSelf || len(own.Name) < idEnds+10 || own.Name[:idBegins] != "_c_" {
		return &likeness{}
	}
	if seq, ok := ParseSeq(own.Name[len(own.Name)-10:]); !ok || seq != own.Seq {
		return &likeness{} // it has a sign before its ten digits
	}
	return &likeness{own: own, tail: own.Name[idEnds : len(own.Name)-10]}
}

func (l *likeness) Read(name string) (Contender, bool) {
	end := len(name) - 10
	if l.tail == "" || len(name) != len(l.own.Name) || name[idEnds:end] != l.tail || name[:idBegins] != "_c_" ||
		!isSelfUUID(name[idBegins:idEnds]) {
		return Contender{}, false
	}
	n := uint64(0)
	for _, digit := range []byte(name[end:]) {
		if digit -= '0'; digit > 9 {
			return Contender{}, false
		}
		n = n*10 + uint64(digit)
	}
	return Contender{Name: name, Maker: MakerSelf, Kind: l.own.Kind, Seq: int32(n)}, n <= math.MaxInt32
}

// EndIsFinal reports whether no other node takes the place of c when c goes. A downgrade puts a
// read node in the place of a write lock.
func (q Rule) EndIsFinal(c Contender) bool {
	return q.Kind == RoleRead || c.Kind == RoleRead || c.Kind == RoleLatch || c.Kind == RoleLock &&
		q.Layout == LayoutCurator
}

// Holds reports whether c holds the lock, judged by the queue alone.
func (q Rule) Holds(names iter.Seq[string], c Contender) bool {
	for name := range names {
		o, ok, err := q.member(name)
		if err == nil && ok && excludes(o.Kind, c.Kind) && Compare(o, c) < 0 {
			return false
		}
	}
	return true
}

// member reads the name of a child, and reports whether it is a contender of this queue. A
// contender that cannot exist beside this queue is an error.
func (q Rule) member(name string) (Contender, bool, error) {
	c, layout, ok := ParseName(name)
	switch {
	case IsPolicyNode(name):
		return c, false, notOf(name, q.Layout) // it may hold, and looks at nodes of its own kind only
	case !ok || c.Kind == RoleLease:
		return c, false, nil
	case layout == q.Layout:
	case q.Layout == LayoutCurator && layout == LayoutKazoo && c.Kind == RoleLock && c.Maker == MakerKazoo &&
		!q.RW:
		c.guest = true // a kazoo lock configured to look at this package's too
	default:
		return c, false, notOf(name, q.Layout)
	}
	return c, true, nil
}

func notOf(name string, l Layout) error {
	return fmt.Errorf("%w: %s is no %v node", ErrMixedLayout, name, l)
}

// census collects the facts that decide whether the contenders of a queue see each other.
type census struct {
	foreign, late bool
	kazoo, peers  bool      // kinds of makers that may not see each other
	families      [3]string // a contender of each family
	stranger      Contender // one of another program
}

func (s *census) add(c Contender) {
	s.late = s.late || c.Seq < 0 || c.Seq > maxForeignSeq
	s.kazoo = s.kazoo || c.guest
	if f := &s.families[c.Kind.family()]; *f == "" {
		*f = c.Name
	}
	if c.Maker == MakerSelf {
		return
	}
	s.foreign = true
	s.peers = s.peers || !c.guest
	if s.stranger.Name == "" {
		s.stranger = c
	}
}

// check fails if a contender cannot read or order the names of all others.
func (s *census) check(q Rule) error {
	switch {
	case s.kazoo && s.peers && q.Layout == LayoutCurator:
		return fmt.Errorf("%w: kazoo and Curator cannot see each other", ErrMixedLayout)
	case s.foreign && s.late:
		return ErrSequenceExhausted
	}
	return nil
}

// oneFamily fails if a contender of another program does not look at all the others. Contenders of
// this package do; those of Curator's recipes look only at their own family.
func (s *census) oneFamily(q Rule) error {
	if !s.foreign || q.Layout != LayoutCurator {
		return nil
	}
	f := s.stranger.Kind.family()
	if f != q.Kind.family() {
		return fmt.Errorf("%w: %s is of a %v of another program, which does not see a %v", ErrMixedLayout,
			s.stranger.Name, f, q.Kind.family())
	}
	for other, name := range s.families {
		if name != "" && family(other) != f {
			return fmt.Errorf("%w: %s is of another program, which does not see %s", ErrMixedLayout, s.stranger.Name,
				name)
		}
	}
	return nil
}

// family is the part of a directory that a program with Curator's recipes sees: each recipe looks
// only at its own nodes.
type family uint8

const (
	familyLock family = iota
	familyReadWrite
	familyLatch
)

func (k Role) family() family {
	switch k {
	case RoleRead, RoleWrite:
		return familyReadWrite
	case RoleLatch:
		return familyLatch
	}
	return familyLock
}

func (f family) String() string {
	return [...]string{"exclusive lock", "read-write lock", "leader latch"}[f]
}

// Rule is the rule of a queue in which every contender has a numbered node and waits for one node
// before it.
type Rule struct {
	Layout Layout
	Kind   Role
	RW     bool // reads and writes contend
}

// QueueOf returns the contenders among a directory's children, in order, and the names of the other
// children. With rw, reads and writes contend too, not only exclusive locks.
func QueueOf(l Layout, names []string, rw bool) (list []Contender, foreign []string, err error) {
	q := Rule{Layout: l, RW: rw}
	var seen census
	list = make([]Contender, 0, len(names))
	for _, name := range names {
		c, ok, e := q.member(name)
		switch {
		case e != nil:
			err = e
		case ok:
			list = append(list, c)
			seen.add(c)
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
