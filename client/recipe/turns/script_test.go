package turns

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/script"
)

// TestScripts runs testdata/*.txt. A script consists of blocks. A block has commands, a line ----, the text
// that the commands print, and an empty line. Lines with # are comments. All blocks of a script are about one
// lock, whose contenders are letters:
//
//	A lock         A makes a numbered node; the map roles has the words for "lock"
//	policy fair    the lock has a policy
//	A wants write  A contends under the policy: it decides, acts and decides again until it holds or waits
//	A again        A looks again
//	A overdue      readers have overtaken A for as long as they may
//	A upgrades     A wants to become the writer
//	A downgrades   A becomes a reader, in the place of a writer
//	permits 2      the lock is a semaphore
//	A takes 1      A, the head of its queue, wants a permit
//	A goes         A gives back, gives up or dies
//
// A block prints what the contenders do, and then the lock: for each contender what the lock view shows,
// what its client watches, and why it is refused.
func TestScripts(t *testing.T) {
	script.Each(t, "testdata/*.txt", func(t *testing.T, file string) {
		s := &scene{t: t, who: map[byte]*actor{}}
		script.Play(t, file, s.block)
	})
}

// roles are the kinds of contenders of a numbered queue, each with the beginning of its node's name.
var roles = map[string]string{
	"lock":       recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.ID{}, ""),
	"read":       recipe.NodeName(recipe.LayoutCurator, recipe.RoleRead, recipe.ID{}, ""),
	"write":      recipe.NodeName(recipe.LayoutCurator, recipe.RoleWrite, recipe.ID{}, ""),
	"latch":      recipe.NodeName(recipe.LayoutCurator, recipe.RoleLatch, recipe.ID{}, ""),
	"old-permit": recipe.NodeName(recipe.LayoutCurator, recipe.RoleLease, recipe.ID{}, ""),
	"kazoo-read": recipe.NodeName(recipe.LayoutKazoo, recipe.RoleRead, recipe.ID{}, ""),
	"kazoo-lock": recipe.NodeName(recipe.LayoutKazoo, recipe.RoleLock, recipe.ID{}, ""),
	"host-read":  recipe.NodeName(recipe.LayoutHost, recipe.RoleRead, recipe.ID{}, "h"),
	"host-write": recipe.NodeName(recipe.LayoutHost, recipe.RoleWrite, recipe.ID{}, "h"),
	// The roles of other programs' contenders, whose ids have another version.
	"curator's-lock": "_c_THEIRS-lock-", "curator's-latch": "_c_THEIRS-latch-",
	"curator's-permit": "_c_THEIRS-lease-",
	"curator's-read":   "_c_THEIRS-__READ__", "curator's-write": "_c_THEIRS-__WRIT__",
	"kazoo's-lock": "HEXES__lock__",
}

// actor is a contender.
type actor struct {
	letter  byte
	id      recipe.ID
	nodes   []recipe.Node
	reads   bool
	rises   bool // wants to become the writer
	overdue bool
}

type scene struct {
	t      *testing.T
	who    map[byte]*actor
	next   int32
	zxid   int64
	policy recipe.Policy
	rec    *recipe.Record // the record of a lock with a policy
	limit  int            // the number of permits of a semaphore
	out    strings.Builder
}

func (s *scene) block(commands string) string {
	s.out.Reset()
	for line := range strings.SplitSeq(commands, "\n") {
		if words := strings.Fields(line); len(words) > 1 && line[0] != '#' {
			s.run(words)
		}
	}
	s.show()
	return s.out.String()
}

func (s *scene) run(words []string) {
	switch words[0] {
	case "policy":
		s.policy = must.Get(recipe.ParsePolicy(words[1]))(s.t)
		rec := recipe.NewPolicyRecord(s.policy, 0)
		s.rec = &rec
		return
	case "permits":
		s.limit = must.Get(strconv.Atoi(words[1]))(s.t)
		return
	}
	letter := words[0][0]
	a := s.who[letter]
	if a == nil {
		a = &actor{letter: letter, id: recipe.NewID(int64(letter), 7)}
		s.who[letter] = a
	}
	switch words[1] {
	case "wants":
		if a.reads = words[2] == "read"; !a.reads { // a writer needs a place before anything can be decided
			s.enqueue(a)
		}
		s.decide(a)
	case "again":
		s.decide(a)
	case "overdue":
		a.overdue = true
		s.decide(a)
	case "upgrades":
		a.rises = true
		s.decide(a)
	case "downgrades":
		s.downgrade(a)
	case "takes":
		s.take(a, must.Get(strconv.Atoi(words[2]))(s.t))
	case "goes":
		delete(s.who, letter)
	default:
		head, known := roles[words[1]]
		must.That(s.t, known, "%v is no command", words)
		s.number(a, head)
	}
}

// number() makes a node with the next number.
func (s *scene) number(a *actor, head string) {
	theirs := fmt.Sprintf("%08d-4fbd-4f4b-8d0f-4e5a7a0c1d01", a.letter)
	head = strings.NewReplacer(recipe.ID{}.UUID(), a.id.UUID(), recipe.ID{}.Hex(), a.id.Hex(), "THEIRS", theirs,
		"HEXES", strings.ReplaceAll(theirs, "-", "")).Replace(head)
	s.add(a, fmt.Sprintf("%s%010d", head, s.next))
	s.next++
}

func (s *scene) add(a *actor, name string) {
	s.zxid++
	a.nodes = append(a.nodes, recipe.Node{Name: name, Session: int64(a.letter), Czxid: s.zxid, Ctime: s.zxid})
}

// tell() prints what a contender does.
func (s *scene) tell(a *actor, format string, args ...any) {
	fmt.Fprintf(&s.out, "%c %s\n", a.letter, fmt.Sprintf(format, args...))
}

func (s *scene) enqueue(a *actor) {
	n := recipe.PolicyNode{ID: a.id, Kind: recipe.QueueWrite, Seq: s.next}
	if a.reads {
		n.Kind = recipe.QueueRead
	}
	s.next++
	s.add(a, n.Name(true))
}

// all() returns the nodes of all contenders.
func (s *scene) all() (nodes []recipe.Node) {
	for _, letter := range slices.Sorted(maps.Keys(s.who)) {
		nodes = append(nodes, s.who[letter].nodes...)
	}
	return nodes
}

func (s *scene) names() (names []string) {
	for _, n := range s.all() {
		names = append(names, n.Name)
	}
	return names
}

// owner() returns the letter of a node's contender.
func (s *scene) owner(node string) string {
	for letter, a := range s.who {
		if slices.ContainsFunc(a.nodes, func(n recipe.Node) bool { return n.Name == recipe.Base(node) }) {
			return string(letter)
		}
	}
	return "?"
}

// step() returns the decision of a contender under the policy.
func (s *scene) step(a *actor) Step {
	v := PolicyView{Policy: s.policy, Door: s.rec.Mark(), Overdue: a.overdue}
	v.Nodes = must.Get(recipe.ParsePolicyNodes(s.names()))(s.t)
	switch {
	case a.rises:
		return DecideUpgrade(&v, a.id)
	case a.reads:
		return DecideRead(&v, a.id, len(a.nodes) > 0)
	}
	return DecideWrite(&v, a.id)
}

// decide() lets a contender act on fresh lists until it holds or waits.
func (s *scene) decide(a *actor) {
	for range 5 {
		switch step := s.step(a); step.Do {
		case Enqueue:
			s.tell(a, "takes a place")
			s.enqueue(a)
		case CloseDoor:
			s.tell(a, "closes the door")
			door := recipe.Door{Owner: a.id, Kind: recipe.DoorWrite}
			if a.rises {
				door.Kind = recipe.DoorUpgrade
			}
			s.mark(door)
		case ReopenDoor:
			s.tell(a, "opens the door again")
			s.mark(recipe.Door{})
		case Grant:
			s.tell(a, "is granted the lock")
			s.grant(a)
			return
		case Clash:
			s.tell(a, "clashes with another that upgrades")
			a.rises = false
			return
		case Wait:
			until := ""
			if step.Data {
				until += ", and for a change of the record"
			}
			if step.Timer {
				until += ", and until it is overdue"
			}
			s.tell(a, "watches %s%s", s.owner(step.On.Name(true)), until)
			return
		default:
			s.tell(a, "is removed")
			return
		}
	}
	s.t.Fatalf("%c never waits", a.letter)
}

func (s *scene) mark(d recipe.Door) {
	rec := s.rec.WithDoor(d)
	s.rec = &rec
}

func (s *scene) grant(a *actor) {
	txn := WriteGrant(a.id)
	switch {
	case a.rises:
		txn, a.rises = UpgradeGrant(a.id), false
	case a.reads:
		txn = ReadGrant(a.id, len(a.nodes) > 0)
	}
	a.nodes = slices.DeleteFunc(a.nodes, func(n recipe.Node) bool {
		p, _ := recipe.ParsePolicyNode(n.Name)
		return p.Kind == txn.Delete.Kind
	})
	s.add(a, txn.Create.Name(true))
}

// downgrade() replaces the node of a writer by a read node.
func (s *scene) downgrade(a *actor) {
	old := a.nodes[0].Name
	a.nodes = nil
	if s.rec != nil {
		a.id = recipe.NewID(int64(a.letter), 8)
		s.add(a, recipe.PolicyNode{ID: a.id, Kind: recipe.HoldRead}.Name(true))
		return
	}
	c, l, _ := recipe.ParseName(old)
	s.add(a, recipe.NodeName(l, recipe.RoleRead, a.id, "h")+fmt.Sprintf("%010d", c.Seq))
}

// take() lets the head of a semaphore's queue take permits.
func (s *scene) take(a *actor, n int) {
	if len(a.nodes) == 0 {
		s.number(a, roles["lock"])
	}
	places, permits := s.sides()
	own, _, _ := recipe.ParseName(a.nodes[0].Name)
	p := must.Get(Rule{Layout: recipe.LayoutCurator}.Place(slices.Values(namesOf(places)), own))(s.t)
	if p.Blocked {
		s.tell(a, "watches %s", s.owner(p.Blocker.Name))
		return
	}
	switch do, err := DecidePermits(s.limit, len(permits), n); {
	case err != nil:
		s.tell(a, "is refused: %v", err)
		delete(s.who, a.letter)
	case do == Wait:
		s.tell(a, "watches the permits")
	default:
		slots := FreeSlots(s.limit, namesOf(permits), n, 0)
		beside := ""
		if other := Unnumbered(namesOf(permits)); other != "" {
			beside = ", which do not count beside " + s.owner(other) + "'s permit"
		}
		s.tell(a, "is granted %d, with the numbers %v%s", n, slots, beside)
		a.nodes = nil
		for _, slot := range slots {
			s.number(a, recipe.PermitName(recipe.ID{}, slot))
		}
	}
}

func namesOf(nodes []recipe.Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

// sides() returns the nodes of a semaphore's queue, and the nodes of its permits.
func (s *scene) sides() (places, permits []recipe.Node) {
	for _, n := range s.all() {
		if c, _, _ := recipe.ParseName(n.Name); c.Kind == recipe.RoleLease {
			permits = append(permits, n)
		} else {
			places = append(places, n)
		}
	}
	return places, permits
}

// show() prints the lock.
func (s *scene) show() {
	d := &Dir{Path: "/l", Nodes: s.all()}
	dirs := []*Dir{d}
	if s.rec != nil {
		d.Data = string(s.rec.Encode())
	}
	if s.limit > 0 {
		places, permits := s.sides()
		data := string(recipe.Record{Limit: s.limit}.Encode())
		dirs = []*Dir{
			{Path: "/l/locks", Nodes: places, Total: len(places), Sem: "/l", SemData: data, Part: QueuePart},
			{Path: "/l/leases", Nodes: permits, Total: len(permits), Sem: "/l", SemData: data,
				Part: PermitsPart},
		}
	}
	d.Total = len(d.Nodes)
	lines := map[string]bool{}
	for _, q := range Assemble(dirs, nil) {
		note := ""
		if q.HeldTwice {
			note = ", as another does beside it"
		}
		for _, e := range q.Holders {
			text := s.owner(e.Node) + " holds" + note
			if e.Slot > 0 {
				text += fmt.Sprintf(" number %d", e.Slot)
			}
			if len(e.BlockedBy) > 0 {
				text += ", waits for " + s.owners(e.BlockedBy)
			}
			lines[text] = true
		}
		for _, e := range q.Waiters {
			text := s.owner(e.Node) + " waits for " + s.owners(e.BlockedBy)
			if e.Any {
				text = s.owner(e.Node) + " waits for any of " + s.owners(e.BlockedBy)
			}
			lines[text] = true
		}
	}
	if s.rec == nil && s.limit == 0 {
		s.places(lines)
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintln(&s.out, line)
	}
}

// places() adds the places that the contenders of package client find in a numbered queue.
func (s *scene) places(lines map[string]bool) {
	for letter, a := range s.who {
		for _, n := range a.nodes {
			c, l, _ := recipe.ParseName(n.Name)
			if c.Maker != recipe.MakerSelf {
				continue
			}
			p, err := ruleOf(l, c.Kind).Place(slices.Values(s.names()), c)
			switch {
			case err != nil:
				lines[fmt.Sprintf("%c's client is refused", letter)] = true
			case p.Blocked:
				final := ""
				if !(Rule{Layout: l, Kind: c.Kind}).EndIsFinal(p.Blocker) {
					final = ", and lists again"
				}
				lines[fmt.Sprintf("%c's client watches %s%s", letter, s.owner(p.Blocker.Name), final)] = true
			default:
				lines[fmt.Sprintf("%c's client is granted the lock", letter)] = true
			}
		}
	}
}

func (s *scene) owners(nodes []string) string {
	if len(nodes) == 0 {
		return "nobody"
	}
	var list []string
	for _, n := range nodes {
		if o := s.owner(n); !slices.Contains(list, o) {
			list = append(list, o)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
