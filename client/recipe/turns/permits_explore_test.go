package turns

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// The explorer of permits runs the contenders of a semaphore through every order of their steps. There are
// contenders without a place in the queue, heads of the queue that first count and then make their permits,
// and heads of Curator's recipe, which make their permit first. At any time a session may end, another client
// may remove a place in the queue, and the number of permits may change.

// pKind is how a contender takes permits.
type pKind uint8

const (
	pTry     pKind = iota // without a place in the queue
	pHead                 // the client counts first, while its place exists
	pCurator              // the client makes its permit first, and then counts
	pOld                  // counts first, and has no numbers, as release 0.1.0
)

func (k pKind) String() string { return [...]string{"try", "head", "curator", "old"}[k] }

// pMutation is a mistake that a client could make; the explorer must find each mistake.
type pMutation uint8

const (
	pRight       pMutation = iota
	pNoCheck               // a head makes its permits although its place is gone
	pBelieves              // a contender without a place holds what it has made, whatever others have
	pStays                 // a contender without a place is refused, but keeps its permits
	pHeadRemains           // a head that has its permits stays in the queue
)

type pContender struct {
	kind    pKind
	wants   int
	again   int // how often the contender chooses other numbers, if it has no place
	step    int
	slots   []int // the numbers that the client chose
	before  int   // how often the queue had changed when the client made its permits
	queued  int
	quiet   bool
	own     []string
	holding bool
	moved   bool // the client's place was removed, and the client took another
}

// pOver is the step of a contender that has ended.
const pOver = 9

type pState struct {
	limit, other int // the number of permits, and a number to which it may change; 0: none
	most         int // the largest number of permits so far
	ends, takes  int // how many sessions may still end, and how many places may still be removed
	next         int32
	changes      int // how often the queue has changed
	queue        []int
	permits      []string
	who          []pContender
}

func (s pState) copy() pState {
	s.queue, s.permits, s.who = slices.Clone(s.queue), slices.Clone(s.permits), slices.Clone(s.who)
	return s
}

func (s *pState) make(i int) {
	c := &s.who[i]
	c.own = nil
	for at := range c.wants {
		s.next++
		id := recipe.NewID(int64(i+1), uint64(s.next))
		name := recipe.PermitName(id, 0)
		if c.slots != nil {
			name = recipe.PermitName(id, c.slots[at])
		}
		c.own = append(c.own, fmt.Sprintf("%s%010d", name, s.next))
	}
	s.permits = append(s.permits, c.own...)
}

func (s *pState) drop(i int) {
	own := s.who[i].own
	s.permits = slices.DeleteFunc(s.permits, func(p string) bool { return slices.Contains(own, p) })
	s.who[i].own, s.who[i].holding = nil, false
}

func (s *pState) leave(i int) {
	if at := slices.Index(s.queue, i); at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
		s.changes++
	}
}

// end() ends a contender and removes its nodes.
func (s *pState) end(i int) {
	s.drop(i)
	s.leave(i)
	s.who[i].step = pOver
}

type pExplorer struct {
	mutation pMutation
	seen     map[string]bool
	most     int // how many permits were held together at most
}

// step() does the next step of a contender, and reports whether there was one.
func (x *pExplorer) step(s *pState, i int) bool {
	c := &s.who[i]
	if c.step == pOver {
		return false
	}
	if c.kind == pTry {
		return x.try(s, i)
	}
	first := len(s.queue) > 0 && s.queue[0] == i
	do, err := DecidePermits(s.limit, len(s.permits), c.wants)
	switch c.step {
	case 0:
		s.queue = append(s.queue, i)
		s.changes++
	case 1: // the head counts, or makes its permit
		switch {
		case !first && slices.Contains(s.queue, i):
			return false
		case !first: // the client's place was removed: the client takes another
			c.step, c.moved = 0, true
			return true
		case c.kind == pCurator:
			s.make(i)
		case err != nil: // the number of permits has become too small
			s.end(i)
			return true
		case do == Wait:
			return false
		}
		if c.kind == pHead {
			c.slots = FreeSlots(s.limit, s.permits, c.wants, 0)
		}
	case 2:
		switch {
		case c.kind == pCurator && len(s.permits) > s.limit:
			return false
		case c.kind == pCurator:
		case !first && x.mutation != pNoCheck: // the head's place is gone, so the transaction fails
			c.step, c.moved = 0, true
			return true
		default:
			s.make(i)
		}
		c.holding = true
	case 3:
		if x.mutation != pHeadRemains {
			s.leave(i)
		}
	case 4:
		s.drop(i)
		c.step = pOver
		return true
	}
	c.step++
	return true
}

// try() does the next step of a contender without a place in the queue.
func (x *pExplorer) try(s *pState, i int) bool {
	c := &s.who[i]
	switch c.step {
	case 0:
		do, err := DecidePermits(s.limit, len(s.permits), c.wants)
		if err != nil || do == Wait || len(s.queue) > 0 {
			c.step = pOver
			return true
		}
		c.before = s.changes
		c.slots = FreeSlots(s.limit, s.permits, c.wants, 0)
	case 1:
		s.make(i)
	case 2:
		c.queued, c.quiet = len(s.queue), c.before == s.changes
	case 3:
		verdict := TryPermits(s.limit, s.permits, c.own, c.queued, c.quiet)
		if x.mutation == pBelieves {
			verdict = PermitsGranted
		}
		switch {
		case verdict == PermitsGranted:
			c.holding = true
		case verdict == PermitsTaken && c.again > 0:
			c.again--
			c.step = 0
			s.drop(i)
			return true
		default:
			if x.mutation != pStays {
				s.drop(i)
			}
			c.step = pOver
			return true
		}
	case 4:
		s.drop(i)
		c.step = pOver
		return true
	}
	c.step++
	return true
}

var (
	errMany    = errors.New("more permits are held than there are")
	errNumber  = errors.New("a number is held twice, is larger than any limit, or is missing")
	errLeft    = errors.New("a contender that has ended left something")
	errHidden  = errors.New("a permit that is held is not shown as one")
	errForever = errors.New("nobody can go on")
)

// judge() returns an error if the state breaks a rule.
func (x *pExplorer) judge(s *pState) error {
	held, taken, wrong := 0, map[int]bool{}, false
	for i, c := range s.who {
		if c.step == pOver && (len(s.who[i].own) > 0 || slices.Contains(s.queue, i)) {
			return errLeft
		}
		if !c.holding {
			continue
		}
		held += len(c.own)
		for _, name := range c.own {
			slot := recipe.SlotOf(name)
			numbered := c.kind == pTry || c.kind == pHead
			wrong = wrong || slot > 0 && taken[slot] || slot > s.most || (slot > 0) != numbered
			taken[slot] = true
		}
	}
	if x.most = max(x.most, held); held > s.most {
		return errMany
	}
	if wrong {
		return errNumber
	}
	return s.shown()
}

// shown() compares what is held with what the view shows.
func (s *pState) shown() error {
	queue := &Dir{Path: "/s/locks", Total: len(s.queue)}
	for at, i := range s.queue {
		name := recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.NewID(int64(i+1), 1),
			"") + fmt.Sprintf("%010d", at)
		queue.Nodes = append(queue.Nodes, recipe.Node{Name: name, Session: int64(i + 1), Czxid: int64(at + 1)})
	}
	permits := &Dir{Path: "/s/leases", Total: len(s.permits)}
	for _, name := range s.permits {
		p, _, _ := recipe.ParseName(name)
		n := recipe.Node{Name: name, Czxid: int64(100 + p.Seq)}
		for i, c := range s.who {
			if slices.Contains(c.own, name) {
				n.Session = int64(i + 1)
			}
		}
		permits.Nodes = append(permits.Nodes, n)
	}
	permits.Sem, permits.SemData, permits.Part = "/s", fmt.Sprint(s.limit), PermitsPart
	queue.Sem, queue.SemData, queue.Part = "/s", fmt.Sprint(s.limit), QueuePart
	all := Assemble([]*Dir{permits, queue}, nil)
	for _, c := range s.who {
		if !c.holding || c.kind == pCurator && s.limit < s.most {
			continue // the client may have counted before the number was lowered, which the view cannot know
		}
		for _, name := range c.own {
			if len(all) != 1 || !all[0].Holds("leases/"+name) {
				return errHidden
			}
		}
	}
	return nil
}

// walk() goes through all states that follow the state s.
func (x *pExplorer) walk(s pState) error {
	key := fmt.Sprint(s)
	if x.seen[key] {
		return nil
	}
	x.seen[key] = true
	if err := x.judge(&s); err != nil {
		return fmt.Errorf("%w: %+v", err, s)
	}
	stuck, over := true, true
	for i := range s.who {
		over = over && s.who[i].step == pOver
		if next := s.copy(); x.step(&next, i) {
			stuck = false
			if err := x.walk(next); err != nil {
				return err
			}
		}
	}
	if stuck && !over {
		return fmt.Errorf("%w: %+v", errForever, s)
	}
	for _, next := range s.troubles() {
		if err := x.walk(next); err != nil {
			return err
		}
	}
	return nil
}

// troubles() returns the states after each event that may happen at any time: a session ends, a place is
// removed, or the number of permits changes.
func (s *pState) troubles() (all []pState) {
	for i, c := range s.who {
		if s.ends > 0 && c.step > 0 && c.step < pOver {
			next := s.copy()
			next.ends--
			next.end(i)
			all = append(all, next)
		}
		if s.takes > 0 && c.kind == pHead && slices.Contains(s.queue, i) {
			next := s.copy()
			next.takes--
			next.leave(i)
			all = append(all, next)
		}
	}
	if s.other > 0 {
		next := s.copy()
		next.limit, next.other, next.most = s.other, 0, max(s.most, s.other)
		all = append(all, next)
	}
	return all
}

// pCases calls f with semaphores. The argument `all` says how many permits are held together at some time.
func pCases(f func(name string, s pState, all int)) {
	who := func(list ...pContender) []pContender { return list }
	try, head := pContender{kind: pTry, wants: 1}, pContender{kind: pHead, wants: 1}
	stubborn, curator, old := try, pContender{kind: pCurator, wants: 1}, pContender{kind: pOld, wants: 1}
	stubborn.again = 1
	two := func(c pContender) pContender { c.wants = 2; return c }
	for _, x := range []struct {
		limit int
		who   []pContender
	}{
		{1, who(try, try, head)}, {2, who(try, try, two(head))}, {2, who(two(try), head, head)},
		{2, who(try, try, curator)}, {2, who(try, two(head), curator)}, {2, who(try, old, head)},
		{2, who(stubborn, stubborn, stubborn)}, {3, who(two(stubborn), stubborn, head)},
		{1, who(head, head, head)}, {1, who(curator, curator, head)}, {2, who(old, curator, head)},
	} {
		for _, trouble := range []string{"", "an end", "a place removed", "more permits", "fewer permits"} {
			s := pState{limit: x.limit, most: x.limit, who: slices.Clone(x.who)}
			all := x.limit
			switch trouble {
			case "an end":
				s.ends = 1
			case "a place removed":
				s.takes = 1
			case "more permits":
				s.other = x.limit + 1
				all = 0 // in some mixtures the contenders want fewer permits, so `all` is not checked
			case "fewer permits":
				s.other = x.limit - 1
			}
			if trouble == "fewer permits" && s.other == 0 {
				continue
			}
			name := fmt.Sprintf("%d permits", x.limit)
			for _, c := range x.who {
				name += fmt.Sprintf(" %v of %d", c.kind, c.wants)
			}
			f(strings.TrimSpace(name+" "+trouble), s, all)
		}
	}
}

// In every order of steps, the permits that are held are not more than the semaphore has, and their numbers
// differ. The view shows the permits that are held. Contenders that end leave nothing, all contenders come to
// an end, and all permits can be held at once.
func TestPermitExplorerFindsNoFault(t *testing.T) {
	race.Alone(t)
	every, n := 1, 0
	if testing.Short() {
		every = 7
	}
	pCases(func(name string, s pState, all int) {
		if n++; n%every != 0 {
			return
		}
		t.Run(name, func(t *testing.T) {
			x := &pExplorer{seen: map[string]bool{}}
			must.OK(t, x.walk(s))
			if all > 0 {
				expect.Equal(t, x.most, all, "permits that are held together")
			}
			t.Logf("%d states", len(x.seen))
		})
	})
}

// The explorer finds each mistake that a client could make.
func TestPermitExplorerFindsEachMutation(t *testing.T) {
	race.Alone(t)
	for m, want := range map[pMutation]error{pNoCheck: errMany, pBelieves: errMany, pStays: errLeft,
		pHeadRemains: errLeft} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			var found error
			pCases(func(_ string, s pState, _ int) {
				if found == nil {
					found = (&pExplorer{mutation: m, seen: map[string]bool{}}).walk(s)
				}
			})
			expect.Is(t, found, want)
		})
	}
}
