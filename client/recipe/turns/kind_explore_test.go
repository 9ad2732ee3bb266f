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

// The explorer of kinds runs contenders of several kinds of locks on one path through every order of their
// steps. A contender makes its node, lists the path, looks at each rival that Use.Rivals returns, and then
// holds, or is refused and takes its node back. A contender that may not wait also looks for rivals before it
// makes its node. The explorers of queues, policies and permits test how contenders of one kind exclude each
// other.

// kMutation is a mistake that a client could make; the explorer must find each mistake.
type kMutation uint8

const (
	kRight       kMutation = iota
	kLooksBefore           // looks for rivals only before it makes its node
	kTrustsList            // does not look whether a rival of the list is still there
	kStays                 // is refused, but does not remove its node
)

type kPhase uint8

const (
	kIdle    kPhase = iota
	kLooks          // may not wait, so it must list the path before it makes its node
	kPeers          // may not wait, and looks at the rivals of its list
	kMakes          // may make its node
	kMade           // has made its node
	kListed         // looks at the rivals of its list
	kHolds          // holds the lock
	kRefused        // was refused, and must still take its node back
	kEnded
)

// kClient is a contender. The bits of `rivals` are the rivals in its list at which it must still look.
type kClient struct {
	phase   kPhase
	rivals  uint8
	refused bool
}

type kState struct {
	who   [3]kClient
	nodes uint8
	dir   bool // the directory of permits exists; it stays when the last permit has gone
	ends  int8 // how many sessions may still end
}

type kExplorer struct {
	uses     []Use
	tries    uint8 // the contenders that may not wait, as bits
	mutation kMutation
	held     bool // a contender was granted in some state
}

var (
	errKinds   = errors.New("locks of two kinds are held")
	errAlone   = errors.New("a contender is refused that was alone")
	errChanged = errors.New("a refused contender leaves its node")
)

// name() returns the name of the child of the path that shows contender i to the other contenders.
func (x *kExplorer) name(i int) string {
	id := recipe.NewID(int64(i+1), 7)
	switch x.uses[i] {
	case UseQueue:
		return recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, id, "") + fmt.Sprintf("%010d", i)
	case UsePolicy:
		return recipe.PolicyNode{ID: id, Kind: recipe.HoldRead}.Name(true)
	case UsePermits:
		return recipe.PermitsName
	default: // UseBarePermits
		return id.Hex()
	}
}

// list() returns the rivals of contender i that a list of the path shows.
func (x *kExplorer) list(s *kState, i int) (rivals uint8) {
	var names []string
	for c := range x.uses {
		name := x.name(c)
		there := s.nodes&(1<<c) != 0 || name == recipe.PermitsName && s.dir
		if there && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for name := range x.uses[i].Rivals(names) {
		for c := range x.uses {
			if x.name(c) == name {
				rivals |= 1 << c
			}
		}
	}
	return rivals
}

// step() does the next step of a contender, and reports whether it has one.
func (x *kExplorer) step(s *kState, i int) bool {
	c, own := &s.who[i], uint8(1)<<i
	lives := s.nodes & c.rivals
	if x.mutation == kTrustsList {
		lives = c.rivals
	}
	switch c.phase {
	case kIdle:
		if c.phase = kMakes; x.tries&own != 0 || x.mutation == kLooksBefore {
			c.phase = kLooks
		}
	case kLooks:
		c.phase, c.rivals = kPeers, x.list(s, i)
	case kPeers:
		if c.phase, c.rivals = kMakes, 0; lives != 0 {
			c.phase, c.refused = kEnded, true
		}
	case kMakes:
		s.nodes |= own
		s.dir = s.dir || x.uses[i] == UsePermits
		if c.phase = kMade; x.mutation == kLooksBefore {
			c.phase = kHolds
		}
	case kMade:
		c.phase, c.rivals = kListed, x.list(s, i)
	case kListed:
		if c.phase, c.rivals = kHolds, 0; lives != 0 {
			c.phase, c.refused = kRefused, true
		}
	case kRefused, kHolds:
		if c.phase != kRefused || x.mutation != kStays {
			s.nodes &^= own
		}
		c.phase = kEnded
	default:
		return false
	}
	return true
}

// judge() returns an error if the state breaks a rule.
func (x *kExplorer) judge(s *kState) error {
	for i, c := range s.who[:len(x.uses)] {
		x.held = x.held || c.phase == kHolds
		if c.phase == kEnded && s.nodes&(1<<i) != 0 {
			return errChanged
		}
		alone := true
		for j, o := range s.who {
			alone = alone && (j == i || o.phase == kIdle)
		}
		if c.refused && alone {
			return errAlone
		}
		for j, o := range s.who[:i] {
			if c.phase == kHolds && o.phase == kHolds && x.uses[i] != x.uses[j] {
				return errKinds
			}
		}
	}
	return nil
}

// explore() returns the first fault of any order of steps, and how many states there are.
func (x *kExplorer) explore() (int, error) {
	for _, dir := range []bool{false, true} { // the directory of permits may be left from before
		seen := map[kState]bool{}
		todo := []kState{{ends: 1, dir: dir}}
		for len(todo) > 0 {
			s := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if seen[s] {
				continue
			}
			seen[s] = true
			if err := x.judge(&s); err != nil {
				return len(seen), fmt.Errorf("%w: %v, %+v", err, x.uses, s)
			}
			for i := range x.uses {
				if next := s; x.step(&next, i) {
					todo = append(todo, next)
				}
				if dead := s; dead.ends > 0 && s.who[i].phase > kIdle && s.who[i].phase < kEnded {
					dead.ends--
					dead.nodes &^= 1 << i
					dead.who[i] = kClient{phase: kEnded}
					todo = append(todo, dead)
				}
			}
		}
		if !x.held {
			return len(seen), errAlone
		}
	}
	return 0, nil
}

// kCases calls f with every mixture of up to three kinds. The contenders whose bits are set in `tries` may
// not wait: all of them, some or none.
func kCases(f func(uses []Use, tries uint8)) {
	kinds := []Use{UseQueue, UsePolicy, UsePermits, UseBarePermits}
	for i, a := range kinds {
		for tries := range uint8(2) {
			f([]Use{a}, tries)
		}
		for k, b := range kinds[:i+1] {
			for _, c := range kinds[:k+1] {
				for tries := range uint8(8) {
					f([]Use{a, b, c}, tries)
				}
			}
		}
	}
}

// Locks of different kinds on one path are never held at the same time, whatever the order of the steps. A
// contender without rivals gets its lock, and a contender that is refused leaves no node.
func TestKindExplorerFindsNoFault(t *testing.T) {
	race.Alone(t)
	kCases(func(uses []Use, tries uint8) {
		names := []string{"queue", "policy", "", "permits", "bare permits"}
		what := ""
		for i, u := range uses {
			if tries&(1<<i) != 0 {
				what += "try "
			}
			what += names[u] + " "
		}
		t.Run(strings.TrimSpace(what), func(t *testing.T) {
			_, err := (&kExplorer{uses: uses, tries: tries}).explore()
			must.OK(t, err)
		})
	})
}

// The explorer finds each mistake that a client could make.
func TestKindExplorerFindsEachMutation(t *testing.T) {
	race.Alone(t)
	for m, want := range map[kMutation]error{kLooksBefore: errKinds, kTrustsList: errAlone,
		kStays: errChanged} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			var found error
			kCases(func(uses []Use, tries uint8) {
				if found == nil {
					_, found = (&kExplorer{uses: uses, tries: tries, mutation: m}).explore()
				}
			})
			expect.Is(t, found, want)
		})
	}
}
