package turns

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// The lock view shows what the contenders of a lock with a policy decide, in all states of up to three
// contenders, with each policy and each door.
func TestPolicyViewIsWhatClientsDecide(t *testing.T) {
	race.Alone(t)
	forms := [][]recipe.PolicyRole{nil, {recipe.QueueRead}, {recipe.QueueWrite}, {recipe.HoldRead},
		{recipe.HoldWrite, recipe.QueueWrite}, {recipe.HoldWrite}}
	orders := [][3]int32{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	waits, states := 0, 0
	for n := range len(forms) * len(forms) * len(forms) {
		for _, order := range orders {
			for door := range 7 {
				for policy := range recipe.PolicyWriter + 1 {
					v := PolicyView{Policy: policy}
					for c, form := range []int{n % 6, n / 6 % 6, n / 36} { // one of the six forms for each contender
						for _, k := range forms[form] {
							id := recipe.NewID(int64(c+1), 7)
							v.Nodes = append(v.Nodes, recipe.PolicyNode{ID: id, Kind: k, Seq: order[c]})
						}
					}
					if door > 0 {
						v.Door = recipe.Door{Owner: recipe.NewID(int64(door+1)/2, 7),
							Kind: recipe.DoorWrite + recipe.DoorKind(door%2)}
					}
					waits += compareView(t, v)
					states++
				}
			}
		}
	}
	t.Logf("%d waits in %d states", waits, states)
	expect.That(t, waits > 10_000, "%d waits, want more than 10,000", waits)
}

// lookAt returns the lock that Assemble finds in a view.
func lookAt(v PolicyView) recipe.Queue {
	d := &Dir{Path: "/l", Total: len(v.Nodes)}
	d.Data = string(recipe.NewPolicyRecord(v.Policy, 0).WithDoor(v.Door).Encode())
	for _, n := range v.Nodes {
		d.Nodes = append(d.Nodes, recipe.Node{Name: n.Name(true), Session: 1})
	}
	return Assemble([]*Dir{d}, nil)[0]
}

// decision() lets a contender act on fresh lists until it waits or is granted. It returns this last step.
func decision(v PolicyView, id recipe.ID) Step {
	for range 3 {
		var s Step
		switch {
		case v.find(id, recipe.HoldRead) != nil:
			s = DecideUpgrade(&v, id)
		case v.find(id, recipe.QueueRead) != nil:
			s = DecideRead(&v, id, true)
		default:
			v.Overdue = v.Door == recipe.Door{Owner: id, Kind: recipe.DoorWrite}
			s = DecideWrite(&v, id)
		}
		if s.Do != CloseDoor {
			return s
		}
		v.Door = recipe.Door{Owner: id, Kind: recipe.DoorWrite}
	}
	return Step{}
}

// without() returns the view without those contenders for which gone() is true.
func without(v PolicyView, gone func(recipe.ID) bool) PolicyView {
	v.Nodes = slices.DeleteFunc(slices.Clone(v.Nodes), func(n recipe.PolicyNode) bool { return gone(n.ID) })
	return v
}

func compareView(t *testing.T, v PolicyView) (waits int) {
	if len(v.Nodes) == 0 {
		return 0
	}
	q := lookAt(v)
	id := func(name string) recipe.ID { n, _ := recipe.ParsePolicyNode(name); return n.ID }
	for _, list := range [][]recipe.Entry{q.Holders, q.Waiters} {
		for _, e := range list {
			own := id(e.Node)
			upgrades := v.Door == recipe.Door{Owner: own, Kind: recipe.DoorUpgrade} && strings.HasSuffix(e.Node, "-R")
			if q.Holds(e.Node) && !upgrades {
				must.Equal(t, len(e.BlockedBy), 0, "%+v: the holder %s waits for", v, e.Node)
				continue
			}
			// All contenders that must go first, directly or through others.
			first := map[recipe.ID]bool{}
			for todo := e.BlockedBy; len(todo) > 0; todo = todo[1:] {
				if on := q.Find(todo[0]); on != nil && !first[id(on.Node)] {
					first[id(on.Node)] = true
					todo = append(slices.Clone(todo), on.BlockedBy...)
				}
			}
			switch s := decision(v, own); s.Do {
			case Wait:
				waits++
				must.That(t, first[s.On.ID], "%+v: %s watches %s, and is shown to wait for %v", v, e.Node,
					s.On.Name(true), e.BlockedBy)
			case Grant:
				must.Equal(t, len(e.BlockedBy), 0, "%+v: %s is granted, and is shown to wait for %v", v, e.Node,
					e.BlockedBy)
			}
			if len(e.BlockedBy) == 0 {
				continue
			}
			must.That(t, !first[own], "%+v: %s waits for itself", v, e.Node)
			left := decision(without(v, func(id recipe.ID) bool { return first[id] }), own)
			overtaken := v.Door.Kind == recipe.DoorWrite || v.Policy == recipe.PolicyReader
			if overtaken && left.Do == Wait && !left.On.Kind.Hold() {
				continue // allowed: a contender that need not go first has closed the door, or readers overtake
			}
			must.Equal(t, fmt.Sprint(left.Do), fmt.Sprint(Grant), "%+v: %s, without %v, does", v, e.Node,
				e.BlockedBy)
			for _, b := range e.BlockedBy { // each blocker alone makes the contender wait
				only := decision(without(v, func(one recipe.ID) bool { return one != own && one != id(b) }), own)
				waits := only.Do == Wait || only.Do == ReopenDoor
				must.That(t, waits, "%+v: %s, with %s alone, does %d", v, e.Node, b, only.Do)
			}
		}
	}
	return waits
}

// Examples of what contenders of a lock with a policy wait for.
func TestPolicyVerdicts(t *testing.T) {
	for _, c := range []struct{ name, policy, nodes, door, want string }{
		{"writer: a reader behind a waiting writer", "writer", "A=hR B=qR1 C=qW2", "",
			"A holds; B waits for C; C waits for A"},
		{"fair: a reader before a waiting writer", "fair", "A=hW B=qR1 C=qW2", "",
			"A holds; B waits for A; C waits for A,B"},
		{"reader: a writer waits for all readers", "reader", "A=hR B=qR1 C=qW0", "",
			"A holds; B waits for -; C waits for A,B"},
		{"an upgrader waits for the other holds", "fair", "A=hR B=hR C=qR1", "A u",
			"A holds and waits for B; B holds; C waits for A"},
		{"a downgrade lets readers in, by turn", "writer", "A=hR B=qR1 C=qW2", "C w",
			"A holds; B waits for C; C waits for A"},
		{"writers wait in a row", "writer", "A=hR B=hR C=qW1 D=qW2", "C w",
			"A holds; B holds; C waits for A,B; D waits for C"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy, err := recipe.ParsePolicy(c.policy)
			must.OK(t, err)
			v := PolicyView{Policy: policy}
			letter := func(node string) string {
				n, _ := recipe.ParsePolicyNode(node)
				for s := range int64(26) {
					if recipe.NewID(s, 7) == n.ID {
						return string(rune('A' + s))
					}
				}
				return "?"
			}
			for word := range strings.FieldsSeq(c.nodes) {
				n := recipe.PolicyNode{ID: recipe.NewID(int64(word[0]-'A'), 7)}
				n.Kind = map[string]recipe.PolicyRole{"hR": recipe.HoldRead, "hW": recipe.HoldWrite,
					"qR": recipe.QueueRead,
					"qW": recipe.QueueWrite}[word[2:4]]
				_, _ = fmt.Sscan(word[4:], &n.Seq)
				v.Nodes = append(v.Nodes, n)
			}
			if c.door != "" {
				kind := map[string]recipe.DoorKind{"w": recipe.DoorWrite, "u": recipe.DoorUpgrade}[c.door[2:]]
				v.Door = recipe.Door{Owner: recipe.NewID(int64(c.door[0]-'A'), 7), Kind: kind}
			}
			q := lookAt(v)
			var got []string
			for _, list := range [][]recipe.Entry{q.Holders, q.Waiters} {
				for _, e := range list {
					var on []string
					for _, b := range e.BlockedBy {
						on = append(on, letter(b))
					}
					text := letter(e.Node)
					switch held := q.Holds(e.Node); {
					case held && on == nil:
						text += " holds"
					case held:
						text += " holds and waits for " + strings.Join(on, ",")
					case on == nil:
						text += " waits for -"
					default:
						text += " waits for " + strings.Join(on, ",")
					}
					got = append(got, text)
				}
			}
			slices.Sort(got)
			expect.Equal(t, strings.Join(got, "; "), c.want)
		})
	}
}
