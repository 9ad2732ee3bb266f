package look

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
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

// The newest scan is dropped some time after it was made, however many scans came before it.
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

// The type looked is a source that has only a state.
type looked struct {
	st    *state.State
	times int
	after func() // runs after each look
	none  bool   // whether there is no state
}

func (l *looked) View(f func(*state.State)) bool {
	l.times++
	if l.none {
		return false
	}
	f(l.st)
	if l.after != nil {
		l.after()
	}
	return true
}

func (l *looked) Watching(int64, string) (watching, known bool) { return false, false }

func (l *looked) Watchers(string, int) []int64 { return nil }

// If a scan took long, it is still used for some time after a change. So scans cost only a small share of the
// time.
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

// A scan reads the state in pieces. After a change between two pieces, the next request makes a new scan.
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
		s.Took = 0 // a scan that took long would be used longer
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
	if expect.Equal(t, len(found), 2, "length of %v", found) {
		expect.Equal(t, found[a.ID].ID, a.ID, "ID")
		expect.Equal(t, found[b.ID].ID, b.ID, "ID")
	}
}

// The look drops a suspected cycle if one of its nodes does not exist. It keeps the other cycles in their
// order.
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
	g.CycleCount = 5 // five cycles; g.Cycles describes only two
	v.Confirmed(&g)
	expect.Equal(t, g.CycleCount, 4)
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
	if expect.Equal(t, len(g.Cycles), 1, "number of cycles %v", g.Cycles) {
		expect.Equal(t, g.Cycles[0].Parties[0], 2, "parties")
	}
	g.Edges = g.Edges[2:]
	g.Edges[1].ToToken = 5 // as if the node had been created again
	expect.Equal(t, len(v.Confirmed(&g).Cycles), 0)
}

// Only a limited number of nodes is looked up under the state lock. Cycles with further nodes stay suspected.
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

// A reader that may not see all names sees only the locks that every client may list.
func TestLocksThatNotEveryClientMayList(t *testing.T) {
	l := &looked{st: state.New("c")}
	owner := []jute.ACL{{Perms: jute.PermAll, ID: acl.DigestID("ci:secret")}}
	for i, node := range []struct {
		path  string
		acl   []jute.ACL
		flags int32
	}{
		{"/open", jute.WorldAnyone, 0}, {"/open/lock-0000000000", jute.WorldAnyone, jute.FlagEphemeral},
		{"/shut", owner, 0}, {"/shut/lock-0000000000", jute.WorldAnyone, jute.FlagEphemeral},
	} {
		body := jute.AppendString(jute.AppendString(nil, node.path), "")
		body = jute.AppendInt(jute.AppendACL(body, node.acl), node.flags)
		c := tree.Change{Zxid: int64(i + 1), Session: 1, IDs: acl.Super}
		_, code, _ := l.st.Tree().Apply(&c, jute.OpCreate, body, nil)
		must.Equal(t, code, jute.OK)
	}
	v := New(l, false)
	s := must.Get(v.Locks(t.Context()))(t)
	defer v.scans.drop.Stop()
	expect.Equal(t, s.Total, 2, "ephemeral nodes")
	expect.That(t, !s.NoPrefixes, "the children of the root are hidden")
	for all, want := range map[bool]string{true: "[/open /shut] 0", false: "[/open] 1"} {
		list, graph, hidden := s.Seen(all)
		var paths []string
		for i := range list {
			paths = append(paths, list[i].Path)
		}
		slices.Sort(paths)
		expect.Equal(t, fmt.Sprint(paths, hidden), want)
		expect.That(t, graph() != nil, "no graph")
	}
	q, _, err := v.At(t.Context(), "/shut")
	must.OK(t, err)
	expect.Equal(t, fmt.Sprint(q.Path, len(q.Holders)), "/shut1")
	_, _, err = v.At(t.Context(), "/none")
	expect.Has(t, fmt.Sprint(err), "there is no node /none")
}

// A look fails if there is no state, or if it takes too long.
func TestLooksThatFail(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		none bool
		ctx  context.Context
		want error
	}{{true, t.Context(), ask.ErrNotServing}, {false, ended, ask.ErrSlow}} {
		v := New(&looked{st: state.New("c"), none: c.none}, false)
		expect.Is(t, expect.Err(v.Locks(c.ctx)), c.want)
		_, _, err := v.At(c.ctx, "/")
		expect.Is(t, err, c.want)
	}
}

// A scan tells of locks that are held twice, and of holders whose maximum hold is over.
func TestTroublesOfAScan(t *testing.T) {
	over := recipe.Entry{Owner: &recipe.Owner{Over: true}}
	var found Troubles
	found.find([]recipe.Queue{{Lock: recipe.Lock{HeldTwice: true}}, {Holders: []recipe.Entry{over, {}, over}}})
	expect.Equal(t, fmt.Sprint(found.Twice, found.Over), "1 2")
	v := New(&looked{st: state.New("c")}, false)
	expect.That(t, v.Told() == nil, "troubles before the first scan")
	s := must.Get(v.Locks(t.Context()))(t)
	defer v.scans.drop.Stop()
	expect.That(t, v.Told() != nil && !v.Told().At.Before(s.At), "the troubles of the scan are not told")
}
