package look

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

func TestScanThatNobodyAsksForIsForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		age  time.Duration
		kept bool
	}{"just asked for": {keepScan / 2, true}, "old": {keepScan, false}} {
		s := &scans{newest: &Scan{At: time.Now().Add(-c.age)}}
		s.forget()
		must.That(t, s.mu.TryLock(), "%s: whoever asks next waits for ever", name)
		if kept := s.newest != nil; kept != c.kept {
			t.Errorf("%s: kept %v", name, kept)
		}
	}
	new(scans).forget()
}

// The newest scan is forgotten some time after it was made, however many came before it.
func TestEachScanIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(&looked{st: state.New("c")}, false)
		first := must.Get(v.Locks(t.Context()))(t)
		time.Sleep(keepScan - time.Second)
		second := must.Get(v.Locks(t.Context()))(t)
		expect.That(t, second != first, "a scan serves for %v", keepScan-time.Second)
		kept := func() bool {
			synctest.Wait()
			v.scans.mu.Lock()
			defer v.scans.mu.Unlock()
			return v.scans.newest == second
		}
		time.Sleep(keepScan - time.Second)
		expect.That(t, kept(), "the second scan is forgotten early")
		time.Sleep(2 * time.Second)
		expect.That(t, !kept(), "the second scan is kept for ever")
	})
}

// looked is a source whose state is looked at, and nothing else.
type looked struct {
	st    *state.State
	times int
	after func() // what happens after each look
}

func (l *looked) View(f func(*state.State)) bool {
	l.times++
	f(l.st)
	if l.after != nil {
		l.after()
	}
	return true
}

func (l *looked) Watching(int64, string) (watching, known bool) { return false, false }

func (l *looked) Watchers(string, int) []int64 { return nil }

// A scan that took long serves on for a while after a change, so that scans cost a small share of the time.
func TestACostlyScanServesForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &looked{st: state.New("c"), after: func() { time.Sleep(time.Second) }}
		v := New(l, false)
		look := func() *Scan { return must.Get(v.Locks(t.Context()))(t) }
		first := look()
		l.st.Raise(5)
		expect.That(t, look() == first, "a scan that took %v is made again at once", first.Took)
		time.Sleep(costShare * first.Took)
		expect.That(t, look() != first, "a scan serves for ever")
		v.scans.drop.Stop()
	})
}

// A scan reads the state in pieces. After a change between two pieces the next request has another scan.
func TestAChangeDuringAScanMakesItOld(t *testing.T) {
	l := &looked{st: state.New("c")}
	for zxid := range int64(10_000) {
		body := jute.AppendString(jute.AppendString(nil, fmt.Sprint("/lock", zxid)), "")
		body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), jute.FlagEphemeral)
		c := tree.Change{Zxid: zxid + 1, Session: 1}
		_, code, _ := l.st.Tree().Apply(&c, jute.OpCreate, body, nil)
		must.Equal(t, code, jute.OK)
	}
	v := New(l, false)
	l.after = func() {
		if l.times == 2 {
			l.st.Raise(5)
		}
	}
	look := func() *Scan {
		s := must.Get(v.Locks(t.Context()))(t)
		s.Took = 0 // what it cost does not keep it
		return s
	}
	first := look()
	must.That(t, l.times > 3, "the scan took %d looks", l.times)
	expect.That(t, look() != first, "the old scan serves on")
	v.scans.drop.Stop()
}

func TestSessionsAreLookedUpInPieces(t *testing.T) {
	l := &looked{st: state.New("c")}
	ids := map[int64]bool{}
	for id := range int64(2*SessionsAtOnce + 1) {
		ids[id] = true
	}
	New(l, false).Sessions(ids)
	expect.Equal(t, l.times, 3, "the state lock was taken %d times", l.times)
	l = &looked{st: state.New("c")}
	a := l.st.Sessions().Create(6000, [16]byte{}, 1, "10.0.0.1", 0)
	b := l.st.Sessions().Create(6000, [16]byte{}, 1, "10.0.0.2", 0)
	found := New(l, false).Sessions(map[int64]bool{a.ID: true, b.ID: true, b.ID + 7: true})
	expect.That(t, len(found) == 2 && found[a.ID].ID == a.ID && found[b.ID].ID == b.ID, "%+v", found)
}

// A cycle is suspected only while all its nodes exist; those that are left keep their order.
func TestCyclesThatNeverWereAreDropped(t *testing.T) {
	edge := func(from, to int, node string) recipe.Edge {
		return recipe.Edge{From: from, To: to, Cycle: true, FromNode: node, ToNode: "/zookeeper"}
	}
	g := recipe.Graph{
		Parties: []recipe.Party{{Cycle: 1}, {Cycle: 1}, {Cycle: 2}, {Cycle: 2}, {}},
		Cycles:  []recipe.Cycle{{Parties: []int{0, 1}}, {Parties: []int{2, 3}}},
		Edges: []recipe.Edge{edge(0, 1, "/zookeeper"), edge(1, 0, "/gone"), edge(2, 3, "/zookeeper"),
			edge(3, 2, "/zookeeper"), {From: 2, To: 4}, {From: 4, To: 0}},
	}
	v := New(&looked{st: state.New("c")}, false)
	v.Confirmed(&g)
	var parties []int
	var cycles []bool
	for _, p := range g.Parties {
		parties = append(parties, p.Cycle)
	}
	for _, e := range g.Edges {
		cycles = append(cycles, e.Cycle)
	}
	expect.List(t, parties, []int{0, 0, 1, 1, 0})
	expect.List(t, cycles, []bool{false, false, true, true, false, false})
	expect.That(t, len(g.Cycles) == 1 && g.Cycles[0].Parties[0] == 2, "%+v", g.Cycles)
	g.Edges = g.Edges[2:]
	g.Edges[1].ToToken = 5 // another node of that name
	expect.Equal(t, len(v.Confirmed(&g).Cycles), 0)
}

// Only so many nodes are looked up while the state cannot change. The cycles of the others stay suspected.
func TestNotAllNodesOfCyclesAreLookedUp(t *testing.T) {
	var g recipe.Graph
	const cycles = 2000
	for i := range cycles {
		g.Parties = append(g.Parties, recipe.Party{Cycle: i + 1})
		g.Cycles = append(g.Cycles, recipe.Cycle{Parties: []int{i}})
		g.Edges = append(g.Edges, recipe.Edge{From: i, To: i, Cycle: true, FromNode: "gone", ToNode: "gone"})
	}
	left := len(New(&looked{st: state.New("c")}, false).Confirmed(&g).Cycles)
	expect.That(t, left > cycles/2 && left < cycles, "%d of %d cycles are left", left, cycles)
}
