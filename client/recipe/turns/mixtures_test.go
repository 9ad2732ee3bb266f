package turns

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// sorts are the kinds of names that contenders of numbered queues give themselves.
var sorts = []struct{ name, head string }{
	{"lock", recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, recipe.NewID(1, 1), "")},
	{"read", recipe.NodeName(recipe.LayoutCurator, recipe.RoleRead, recipe.NewID(1, 2), "")},
	{"write", recipe.NodeName(recipe.LayoutCurator, recipe.RoleWrite, recipe.NewID(1, 3), "")},
	{"latch", recipe.NodeName(recipe.LayoutCurator, recipe.RoleLatch, recipe.NewID(1, 4), "")},
	{"Curator's lock", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-"},
	{"Curator's read", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-__READ__"},
	{"Curator's write", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-__WRIT__"},
	{"Curator's latch", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-latch-"},
	{"kazoo's lock", "f65a711639a74cab9e5222dd97208501__lock__"},
	{"read in kazoo's layout", recipe.NodeName(recipe.LayoutKazoo, recipe.RoleRead, recipe.NewID(1, 5), "")},
	{"lock in kazoo's layout", recipe.NodeName(recipe.LayoutKazoo, recipe.RoleLock, recipe.NewID(1, 6), "")},
	{"read with its host", recipe.NodeName(recipe.LayoutHost, recipe.RoleRead, recipe.NewID(1, 7), "h")},
	{"write with its host", recipe.NodeName(recipe.LayoutHost, recipe.RoleWrite, recipe.NewID(1, 8), "h")},
}

// ruleOf returns the rule of a queue with layout l for a contender with role k.
func ruleOf(l recipe.Layout, k recipe.Role) Rule {
	return Rule{Layout: l, Kind: k, RW: k.Family() == recipe.FamilyReadWrite}
}

// The lock view shows what the clients of a queue decide. The test covers all queues of up to four contenders
// that do not refuse each other.
func TestQueueViewIsWhatClientsDecide(t *testing.T) {
	race.Alone(t)
	queues, refused := 0, 0
	for n := 1; n <= 4; n++ {
		states := 1
		for range n {
			states *= len(sorts)
		}
		for state := range states {
			var names []string
			what := ""
			for i := range n {
				s := sorts[state%len(sorts)]
				state /= len(sorts)
				names = append(names, fmt.Sprintf("%s%010d", s.head, i))
				what += " " + s.name + ";"
			}
			if !comparePlaces(t, what, names) {
				refused++
			}
			queues++
		}
	}
	t.Logf("%d queues, %d of them with a contender that is refused", queues, refused)
	expect.That(t, queues-refused > 1000, "%d queues without a refusal, want more than 1000", queues-refused)
}

// comparePlaces compares, for each contender of package client, what the view shows with the place that its
// client finds. It returns true if no contender is refused.
func comparePlaces(t *testing.T, what string, names []string) bool {
	t.Helper()
	places := map[string]Place{}
	for _, name := range names {
		c, layout, _ := recipe.ParseName(name)
		if c.Maker != recipe.MakerSelf {
			continue
		}
		p, err := ruleOf(layout, c.Kind).Place(slices.Values(names), c)
		if err != nil {
			return false
		}
		places[name] = p
	}
	d := &Dir{Path: "/l", Total: len(names)}
	for i, name := range names {
		d.Nodes = append(d.Nodes, recipe.Node{Name: name, Session: int64(i + 1), Czxid: int64(100 + i)})
	}
	q := Assemble([]*Dir{d}, nil)[0]
	if _, layout, _ := recipe.ParseName(names[0]); len(places) > 0 {
		list, _, err := QueueOf(layout, names, true)
		if err == nil {
			expect.Equal(t, Holders(list), len(q.Holders), "%s: holders of the queue", what)
		}
	}
	for name, p := range places {
		e := q.Find(name)
		must.That(t, e != nil, "%s: %s is not shown", what, name)
		expect.Equal(t, q.Holds(name), !p.Blocked, "%s: that %s is shown as a holder", what, name)
		first := map[string]bool{} // all contenders that must go first, directly or through others
		for todo := e.BlockedBy; len(todo) > 0; todo = todo[1:] {
			if on := q.Find(todo[0]); on != nil && !first[on.Node] {
				first[on.Node] = true
				todo = append(slices.Clone(todo), on.BlockedBy...)
			}
		}
		for _, c := range p.Few {
			expect.That(t, first[c.Name], "%s: %s lets %s go first, and is shown to wait for %v", what, name,
				c.Name, e.BlockedBy)
		}
		for _, b := range e.BlockedBy {
			ahead := slices.ContainsFunc(p.Few, func(c recipe.Contender) bool { return c.Name == b })
			expect.That(t, ahead, "%s: %s is shown to wait for %s, and does not", what, name, b)
		}
	}
	return true
}

// Kin.Blind returns exactly those kins that package client refuses in the queue of its own contender. The
// exception is kazoo's lock, whose name does not say whether it looks at package client's nodes.
func TestKinsAreWhatClientsDecide(t *testing.T) {
	for _, own := range sorts {
		c, layout, _ := recipe.ParseName(own.head + "0000000002")
		if c.Maker != recipe.MakerSelf {
			continue
		}
		for _, other := range sorts {
			first := other.head + "0000000001"
			_, err := ruleOf(layout, c.Kind).Place(slices.Values([]string{first}), c)
			guest := other.name == "kazoo's lock" && layout == recipe.LayoutCurator &&
				c.Kind.Family() != recipe.FamilyReadWrite
			refused := recipe.KinOf(c.Name).Blind().Has(recipe.KinOf(first))
			expect.Equal(t, refused, err != nil || guest, "%s behind %s", own.name, other.name)
			before := recipe.KinOf(first).Blind().Has(recipe.KinOf(c.Name))
			expect.Equal(t, before, refused, "%s before %s", own.name, other.name)
		}
	}
}

// The lock view and the client agree on the holders. In random queues, Assemble finds the holders that
// Rule.Place lets go first. For each waiter, Assemble shows the nodes that it waits for, and the node that
// Rule.Place watches is one of them.
func TestHoldersAreThoseWhoseTurnItIs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for round := range 2000 {
		layout := []recipe.Layout{recipe.LayoutCurator, recipe.LayoutKazoo, recipe.LayoutHost}[r.IntN(3)]
		rw := r.IntN(3) > 0
		first := []int32{0, 2147483640, -2147483648}[r.IntN(3)]
		d := &Dir{Path: "/l"}
		var names []string
		for i := range 1 + r.IntN(8) {
			role := recipe.RoleLock
			if rw {
				role = []recipe.Role{recipe.RoleRead, recipe.RoleWrite}[r.IntN(2)]
			}
			id := recipe.NewID(int64(i+1), r.Uint64())
			name := recipe.NodeName(layout, role, id, "host") + fmt.Sprintf("%010d", first+int32(i))
			d.Nodes = append(d.Nodes, recipe.Node{Name: name, Session: int64(i + 1), Czxid: int64(100 + i)})
			names = append(names, name)
		}
		d.Total = len(d.Nodes)
		r.Shuffle(len(d.Nodes), func(i, j int) { d.Nodes[i], d.Nodes[j] = d.Nodes[j], d.Nodes[i] })
		queues := Assemble([]*Dir{d}, nil)
		must.Equal(t, len(queues), 1, "round %d: len(queues)", round)
		must.Equal(t, len(queues[0].Holders)+len(queues[0].Waiters), len(names),
			"round %d", round)
		q := queues[0]
		for i, name := range names {
			c, _, ok := recipe.ParseName(name)
			must.That(t, ok, "%s is no contender", name)
			rule := Rule{Layout: layout, Kind: c.Kind, RW: rw}
			p, err := rule.Place(slices.Values(names), c)
			must.OK(t, err, "round %d", round)
			must.That(t, p.Found, "round %d: %s: %+v %v: want p.Found", round, name, p, err)
			e := q.Find(name)
			holds := slices.ContainsFunc(q.Holders, func(e recipe.Entry) bool { return e.Node == name })
			expect.Equal(t, holds, !p.Blocked, "round %d: %v: that %s is shown as a holder", round, names, name)
			if p.Blocked && !slices.Contains(e.BlockedBy, p.Blocker.Name) {
				t.Errorf("round %d: %v: %s watches %s and waits for %v", round, names, name, p.Blocker.Name, e.BlockedBy)
			}
			expect.Equal(t, e.Session, recipe.Session(i+1), "the session of %s", name)
			expect.Equal(t, e.Token, int64(100+i), "the token of %s", name)
			expect.Equal(t, e.Maker, recipe.MakerSelf, "the maker of %s", name)
			expect.Equal(t, e.Layout, layout, "the layout of %s", name)
			expect.Equal(t, e.Mode, c.Kind.Mode(), "the mode of %s", name)
		}
	}
}
