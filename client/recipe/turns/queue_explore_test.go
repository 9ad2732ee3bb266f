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

// The explorer of numbered queues runs a few contenders through every order of their steps. A contender makes
// its node, lists the directory, acts on that list (which may be old), waits, holds the lock, and gives it
// back. At any time its session may end, and another client may remove its node. Rule.Place, EndIsFinal and
// EndsAreFinal decide, as they do for package client.

// qProgram is what a contender does.
type qProgram struct {
	name       string
	rule       Rule
	head       string // beginning of its node's name
	downgrades bool   // turns its write lock into a read lock before it gives it back
	tries      bool   // looks before it makes its node, and gives up where others wait
}

func qOf(name string, l recipe.Layout, k recipe.Role) qProgram {
	return qProgram{name: name, rule: ruleOf(l, k), head: recipe.NodeName(l, k, recipe.ID{}, "h")}
}

// qMutation is a mistake that a client could make; the explorer must find each mistake.
type qMutation uint8

const (
	qRight       qMutation = iota
	qTrusts                // treats the end of any contender as final
	qNeverLooks            // does not look whether its own node is still there
	qListsFirst            // acts on a list that is older than its node
	qWatchesLate           // waits for a node that was gone before the watch was set
	qSeesAFew              // overlooks all but the last contender ahead
	qStays                 // a contender that is refused does not remove its node
	qMutations
)

type qPhase uint8

const (
	qIdle    qPhase = iota
	qMade           // has a node
	qListed         // has a list
	qWaits          // waits for the node whose bit is in the field `on`
	qHolds          // holds the lock
	qReads          // holds the lock that it has downgraded
	qEnded          // the client gave the lock back, died, or saw that its node was removed
	qWatches        // found out whom to wait for, and must still set the watch
	qLooks          // has listed before it makes its node, because it may not wait
)

// The node of contender i is bit i of a set. The read node that takes its place is bit i+4.
type qClient struct {
	phase qPhase
	seq   int8
	list  uint8   // the nodes that the client saw
	on    int8    // the bit of the node for which the client waits
	few   [4]int8 // if `spare` is set, the nodes to wait for after `on`, as bits, the last one first; -1: none
	spare bool    // the client need not list again when all nodes of `few` are gone
	woken bool    // the node for which the client waits is gone
	there bool    // the client's own node was there when the client was woken
	taken bool    // the client's node was removed too late for the client to see that before the grant
}

type qState struct {
	who   [4]qClient
	nodes uint8
	next  int8
	ends  int8 // how many sessions may still end
	takes int8 // how many nodes may still be removed
}

type qExplorer struct {
	programs []qProgram
	mutation qMutation
	ends     int8 // how many sessions may end
	takes    int8 // how many nodes may be removed
	seen     map[qState]bool
	todo     []qState
	named    [8][4]string
	shown    map[qNodes]uint8 // the holders that the view shows
}

// qNodes are the nodes of a state.
type qNodes struct {
	set  uint8
	seqs [4]int8
}

// name() returns the name of the node with the given bit.
func (x *qExplorer) name(s *qState, bit int8) string {
	name := &x.named[bit][s.who[bit%4].seq]
	if *name == "" {
		*name = x.nameOf(s, bit)
	}
	return *name
}

func (x *qExplorer) nameOf(s *qState, bit int8) string {
	i := bit % 4
	p := x.programs[i]
	head := p.head
	if bit >= 4 {
		head = recipe.NodeName(p.rule.Layout, recipe.RoleRead, recipe.ID{}, "h")
	}
	// The id makes the names of the contenders differ.
	head = strings.Replace(head, recipe.ID{}.UUID(), recipe.NewID(int64(i+1), 1).UUID(), 1)
	head = strings.Replace(head, recipe.ID{}.Hex(), recipe.NewID(int64(i+1), 1).Hex(), 1)
	return fmt.Sprintf("%s%010d", head, s.who[i].seq)
}

func (x *qExplorer) names(s *qState, set uint8) (names []string, bits []int8) {
	for bit := range int8(8) {
		if set&(1<<bit) != 0 {
			names, bits = append(names, x.name(s, bit)), append(bits, bit)
		}
	}
	return names, bits
}

// place() returns the place that a contender finds in a list.
func (x *qExplorer) place(s *qState, c int, set uint8) (Place, func(string) int8) {
	names, bits := x.names(s, set)
	own, _, _ := recipe.ParseName(x.name(s, int8(c)))
	p, err := x.programs[c].rule.Place(slices.Values(names), own)
	if err != nil {
		panic(err) // cannot happen: the programs see each other
	}
	return p, func(name string) int8 { return bits[slices.Index(names, name)] }
}

func (x *qExplorer) add(s qState) {
	if !x.seen[s] {
		x.seen[s] = true
		x.todo = append(x.todo, s)
	}
}

// remove() deletes a node and wakes the contenders that wait for it.
func (x *qExplorer) remove(s *qState, bit int8) {
	s.nodes &^= 1 << bit
	for i := range x.programs {
		if c := &s.who[i]; c.phase == qWaits && c.on == bit && !c.woken {
			c.woken, c.there = true, s.nodes&(1<<i) != 0
		}
	}
}

// explore() returns the first fault of any order of steps, and how many states there are.
func (x *qExplorer) explore() (int, error) {
	x.seen, x.shown = map[qState]bool{}, map[qNodes]uint8{}
	x.add(qState{ends: x.ends, takes: x.takes})
	for len(x.todo) > 0 {
		s := x.todo[len(x.todo)-1]
		x.todo = x.todo[:len(x.todo)-1]
		if err := x.judge(&s); err != nil {
			return len(x.seen), fmt.Errorf("%w: %s", err, x.show(&s))
		}
		stuck := true
		for c := range x.programs {
			if next := s; x.step(&next, c) {
				stuck = false
				x.add(next)
			}
			x.trouble(s, c)
		}
		over := true
		for c := range x.programs {
			over = over && s.who[c].phase == qEnded
		}
		if stuck && !over {
			return len(x.seen), fmt.Errorf("%w: %s", errStuck, x.show(&s))
		}
	}
	return len(x.seen), nil
}

var (
	errTwo    = errors.New("two contenders hold what they exclude each other from")
	errStuck  = errors.New("nobody can go on")
	errShown  = errors.New("a holder is not shown as one")
	errWakens = errors.New("a contender waits for one that is not there")
)

// judge() returns an error if the state breaks a rule.
func (x *qExplorer) judge(s *qState) error {
	held := uint8(0)
	for i := range x.programs {
		c := &s.who[i]
		bit := int8(i)
		if c.phase == qReads {
			bit += 4
		}
		there := s.nodes&(1<<bit) != 0
		if (c.phase == qHolds || c.phase == qReads) && (there || !c.taken) {
			held |= 1 << bit
		}
		if c.phase == qWaits && !c.woken && s.nodes&(1<<c.on) == 0 {
			return errWakens
		}
	}
	names, _ := x.names(s, held)
	for _, a := range names {
		for _, b := range names {
			one, _, _ := recipe.ParseName(a)
			two, _, _ := recipe.ParseName(b)
			if a != b && excludes(one.Kind, two.Kind) {
				return errTwo
			}
		}
	}
	if held &= s.nodes; held&^x.view(s) != 0 {
		return errShown
	}
	return nil
}

// view() returns the set of holders that the view shows.
func (x *qExplorer) view(s *qState) (holders uint8) {
	key := qNodes{set: s.nodes}
	for i := range s.who {
		key.seqs[i] = s.who[i].seq
	}
	holders, known := x.shown[key]
	if known || s.nodes == 0 {
		return holders
	}
	names, bits := x.names(s, s.nodes)
	d := &Dir{Path: "/l", Total: len(names)}
	for i, n := range names {
		d.Nodes = append(d.Nodes, recipe.Node{Name: n, Session: int64(i + 1)})
	}
	q := Assemble([]*Dir{d}, nil)[0]
	for i, n := range names {
		if q.Holds(n) {
			holders |= 1 << bits[i]
		}
	}
	x.shown[key] = holders
	return holders
}

func (x *qExplorer) show(s *qState) string {
	text := fmt.Sprintf("%d: ", x.mutation)
	for i, p := range x.programs {
		text += fmt.Sprintf("%s %+v; ", p.name, s.who[i])
	}
	return text + fmt.Sprintf("nodes %08b", s.nodes)
}

// qCases calls f with groups of contenders that see each other.
func qCases(f func([]qProgram)) {
	down := func(p qProgram) qProgram {
		p.name, p.downgrades = p.name+" that downgrades", true
		return p
	}
	n := 0 // number of groups with a contender that may not wait; -short takes only some of them
	try := func(p qProgram) qProgram {
		p.name, p.tries = "try of a "+p.name, true
		return p
	}
	curator := []qProgram{qOf("lock", recipe.LayoutCurator, recipe.RoleLock),
		qOf("read", recipe.LayoutCurator, recipe.RoleRead),
		down(qOf("write", recipe.LayoutCurator, recipe.RoleWrite)),
		qOf("latch", recipe.LayoutCurator, recipe.RoleLatch)}
	kazoo := []qProgram{qOf("kazoo read", recipe.LayoutKazoo, recipe.RoleRead),
		qOf("kazoo lock", recipe.LayoutKazoo, recipe.RoleLock),
		down(qOf("kazoo write", recipe.LayoutKazoo, recipe.RoleWrite))}
	host := []qProgram{qOf("host read", recipe.LayoutHost, recipe.RoleRead),
		down(qOf("host write", recipe.LayoutHost, recipe.RoleWrite))}
	for _, of := range [][]qProgram{curator, kazoo, host} {
		for a := range of {
			for b := range of[:a+1] {
				for c := range of[:b+1] {
					f([]qProgram{of[a], of[b], of[c]})
				}
				for c := range of {
					if n++; !testing.Short() || n%17 == 0 {
						f([]qProgram{of[a], of[b], try(of[c])})
					}
				}
			}
		}
	}
	// In these groups of four contenders, no contender dies and no node is removed.
	f([]qProgram{curator[0], curator[0], curator[0], curator[0]})
	f([]qProgram{curator[2], curator[1], curator[1], curator[0]})
}

func newQExplorer(programs []qProgram, m qMutation) *qExplorer {
	x := &qExplorer{programs: programs, mutation: m}
	if len(programs) < 4 {
		x.ends, x.takes = 1, 1
	}
	return x
}

// In every order of their steps, two contenders of a queue that exclude each other never hold at the same
// time. Each waiter is woken, all contenders come to an end, and the view shows holders as holders.
func TestQueueExplorerFindsNoFault(t *testing.T) {
	race.Alone(t)
	all := 0
	qCases(func(programs []qProgram) {
		var names []string
		for _, p := range programs {
			names = append(names, p.name)
		}
		t.Run(strings.Join(names, ", "), func(t *testing.T) {
			n, err := newQExplorer(programs, qRight).explore()
			must.OK(t, err)
			all += n
		})
	})
	t.Logf("%d states", all)
	expect.That(t, all > 10_000, "%d states, want more than 10,000", all)
}

// The explorer finds each mistake that a client could make.
func TestQueueExplorerFindsEachMutation(t *testing.T) {
	for m := qRight + 1; m < qMutations; m++ {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			var found error
			qCases(func(programs []qProgram) {
				if found == nil {
					_, found = newQExplorer(programs, m).explore()
				}
			})
			must.That(t, found != nil, "no case finds it")
			t.Logf("%v", found)
		})
	}
}
