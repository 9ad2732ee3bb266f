package recipe

import (
	"fmt"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// sorts are the kinds of names that contenders of numbered queues give themselves.
var sorts = []struct{ name, head string }{
	{"lock", NodeName(LayoutCurator, RoleLock, NewID(1, 1), "")},
	{"read", NodeName(LayoutCurator, RoleRead, NewID(1, 2), "")},
	{"write", NodeName(LayoutCurator, RoleWrite, NewID(1, 3), "")},
	{"latch", NodeName(LayoutCurator, RoleLatch, NewID(1, 4), "")},
	{"Curator's lock", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-"},
	{"Curator's read", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-__READ__"},
	{"Curator's write", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-__WRIT__"},
	{"Curator's latch", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-latch-"},
	{"kazoo's lock", "f65a711639a74cab9e5222dd97208501__lock__"},
	{"read in kazoo's layout", NodeName(LayoutKazoo, RoleRead, NewID(1, 5), "")},
	{"lock in kazoo's layout", NodeName(LayoutKazoo, RoleLock, NewID(1, 6), "")},
	{"read with its host", NodeName(LayoutHost, RoleRead, NewID(1, 7), "h")},
	{"write with its host", NodeName(LayoutHost, RoleWrite, NewID(1, 8), "h")},
}

// What the lock view says of a queue is what its clients decide: in all queues of up to four contenders
// of any kinds that do not refuse each other.
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

// comparePlaces compares what the view says of each contender of ours with the place that its client
// finds. It reports whether none of them is refused.
func comparePlaces(t *testing.T, what string, names []string) bool {
	t.Helper()
	places := map[string]Place{}
	for _, name := range names {
		c, layout, _ := ParseName(name)
		if c.Maker != MakerSelf {
			continue
		}
		p, err := Rule{Layout: layout, Kind: c.Kind, RW: c.Kind.ofRW()}.Place(slices.Values(names), c)
		if err != nil {
			return false
		}
		places[name] = p
	}
	d := &Dir{Path: "/l", Total: len(names)}
	for i, name := range names {
		d.Nodes = append(d.Nodes, Node{Name: name, Session: int64(i + 1), Czxid: int64(100 + i)})
	}
	q := Assemble([]*Dir{d}, nil)[0]
	if _, layout, _ := ParseName(names[0]); len(places) > 0 {
		list, _, err := QueueOf(layout, names, true)
		if err == nil {
			expect.Equal(t, Holders(list), len(q.Holders), "%s: holders of the queue", what)
		}
	}
	for name, p := range places {
		e := q.Find(name)
		must.That(t, e != nil, "%s: %s is not shown", what, name)
		expect.Equal(t, q.Holds(name), !p.Blocked, "%s: that %s is shown as a holder", what, name)
		first := map[string]bool{} // all that must go first, through those that wait themselves
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
			ahead := slices.ContainsFunc(p.Few, func(c Contender) bool { return c.Name == b })
			expect.That(t, ahead, "%s: %s is shown to wait for %s, and does not", what, name, b)
		}
	}
	return true
}
