package recipe

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The lock view and the client decide alike who holds: in random queues, the holders
// that Assemble finds are those that Rule.Place lets go first, and of each waiter the
// node that Place watches is among those that it is shown to wait for.
func TestHoldersAreThoseWhoseTurnItIs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for round := range 2000 {
		layout := []Layout{LayoutCurator, LayoutKazoo, LayoutHost}[r.IntN(3)]
		rw := r.IntN(3) > 0
		first := []int32{0, 2147483640, -2147483648}[r.IntN(3)]
		d := &Dir{Path: "/l"}
		var names []string
		for i := range 1 + r.IntN(8) {
			role := RoleLock
			if rw {
				role = []Role{RoleRead, RoleWrite}[r.IntN(2)]
			}
			name := NodeName(layout, role, NewID(int64(i+1), r.Uint64()), "host") + fmt.Sprintf("%010d",
				first+int32(i))
			d.Nodes = append(d.Nodes, Node{Name: name, Session: int64(i + 1), Czxid: int64(100 + i)})
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
			c, _, ok := ParseName(name)
			must.That(t, ok, "%s is no contender", name)
			rule := Rule{Layout: layout, Kind: c.Kind, RW: rw}
			p, err := rule.Place(slices.Values(names), c)
			must.OK(t, err, "round %d", round)
			must.That(t, p.Found, "round %d: %s: %+v %v: want p.Found", round, name, p, err)
			e := q.Find(name)
			holds := slices.ContainsFunc(q.Holders, func(e Entry) bool { return e.Node == name })
			expect.Equal(t, holds, !p.Blocked, "round %d: %v: that %s is shown as a holder", round, names, name)
			if p.Blocked && !slices.Contains(e.BlockedBy, p.Blocker.Name) {
				t.Errorf("round %d: %v: %s watches %s and waits for %v", round, names, name, p.Blocker.Name, e.BlockedBy)
			}
			expect.Equal(t, e.Session, Session(i+1), "the session of %s", name)
			expect.Equal(t, e.Token, int64(100+i), "the token of %s", name)
			expect.Equal(t, e.Maker, MakerSelf, "the maker of %s", name)
			expect.Equal(t, e.Layout, layout, "the layout of %s", name)
			expect.Equal(t, e.Mode, c.Kind.Mode(), "the mode of %s", name)
		}
	}
}

// What an answer says of a queue and a graph is what its reader gets.
func TestAnswersAreReadAsTheyWereWritten(t *testing.T) {
	q := Queue{Lock: Lock{Path: "/l", Kind: KindRWLock, Layouts: []Layout{LayoutCurator, LayoutKazoo},
		Mixed: true, Policy: "fair", Limit: 3, Next: -5, Total: 9},
		Holders: []Entry{{Node: "a", Position: 0, Mode: Shared, Layout: LayoutLone, Maker: MakerZooKeeper,
			Session: -1, Token: 1<<53 + 1, Since: 5, HeldSince: 6, Hidden: true, Data: "x"}},
		Waiters: []Entry{{Node: "b", Position: 1, BlockedBy: []string{"a"}, Any: true, Watch: true,
			Owner: &Owner{Version: 1, Host: "h"}}},
		Participants: []Entry{{Node: "c"}}, Others: []string{"d"},
	}
	b := must.Get(json.Marshal(q))(t)
	for _, s := range []string{`"layouts":["curator","kazoo"]`, `"session":"0xffffffffffffffff"`,
		`"token":"9007199254740993"`, `"maker":"zookeeper"`, `"layout":"lone"`} {
		expect.Has(t, string(b), s, "%s lacks", b)
	}
	var back Queue
	if err := json.Unmarshal(b, &back); err != nil || fmt.Sprintf("%+v", back.Holders) != fmt.Sprintf("%+v",
		q.Holders) || back.Lock.Layout() != "curator+kazoo" || back.Waiters[0].Owner.Host != "h" ||
		back.Next != -5 || !back.Waiters[0].Any {
		t.Errorf("%v\n%+v\n%+v", err, back, q)
	}
	for _, bad := range []string{`{"layout":"other"}`, `{"maker":"other"}`, `{"session":"other"}`,
		`{"session":"0x1ffffffffffffffff"}`} {
		expect.That(t, json.Unmarshal([]byte(bad), new(Entry)) != nil, "%s is understood", bad)
	}
	expect.Fails(t, expect.Err(ParseLayout("plain")), "package client makes locks of plain names")
	for _, l := range []Layout{LayoutCurator, LayoutKazoo, LayoutHost, LayoutPolicy, LayoutLatch} {
		if got, err := ParseLayout(l.String()); got != l || err != nil {
			t.Errorf("%v is read as %v, %v", l, got, err)
		}
	}
}

// Only those contenders can be asked back whose program looks for it, and a wish is seen in every form.
func TestAskable(t *testing.T) {
	for name, c := range map[string]struct {
		e             Entry
		askable, wish bool
	}{
		"ours":             {Entry{Token: 1, Maker: MakerSelf, raw: `{"v":1}`}, true, false},
		"a value of ours":  {Entry{Token: 1, Maker: MakerSelf, raw: "10.0.0.1"}, true, false},
		"a record alone":   {Entry{Token: 1, raw: `{"v":1}`}, true, false},
		"asked":            {Entry{Token: 1, raw: `{"v":1,"revoke":{"by":"me"}}`}, true, true},
		"asked, as told":   {Entry{Token: 1, Owner: &Owner{Version: 1, Revoke: &Revocation{By: "me"}}}, true, true},
		"Curator":          {Entry{Token: 1, Maker: MakerCurator}, true, false},
		"Curator, asked":   {Entry{Token: 1, Maker: MakerCurator, raw: CuratorRevoke}, true, true},
		"Curator, as told": {Entry{Token: 1, Maker: MakerCurator, Data: CuratorRevoke}, true, true},
		"kazoo":            {Entry{Token: 1, Maker: MakerKazoo, raw: "me"}, false, false},
		"go-zookeeper":     {Entry{Token: 1, Maker: MakerGo}, false, false},
		"hidden":           {Entry{Token: 1, Maker: MakerSelf, Hidden: true}, false, false},
		"a watcher":        {Entry{Maker: MakerSelf, Watch: true}, false, false},
	} {
		_, asked := c.e.Asked()
		expect.Equal(t, asked, c.wish, "%s: asked", name)
		expect.Equal(t, c.e.Askable(), c.askable, "%s: c.e.Askable()", name)
	}
}

// A wait is certain only between tasks, and only for all of the holders.
func TestWaitsThatAreCertain(t *testing.T) {
	g := &Graph{Parties: []Party{{Task: "a"}, {Task: "b"}, {Session: 3}}}
	for e, want := range map[Edge]bool{
		{From: 0, To: 1}: false, {From: 0, To: 0}: false, {From: 0, To: 2}: true, {From: 2, To: 0}: true,
		{From: 0, To: 1, Any: true}: true, {From: 0, To: 1, Watch: true}: true,
	} {
		expect.Equal(t, g.Possible(&e), want, "%+v is only possible", e)
	}
	for p, want := range map[*Party]string{
		{Host: "h", PID: 3, Task: "t"}: "h[3]", {Host: "h", Task: "t"}: "h", {Task: "t", PID: 3}: "t",
		{Session: 255}: "0xff",
	} {
		expect.Equal(t, p.Label(), want, "%+v is called", p)
	}
}

func TestPaths(t *testing.T) {
	for _, c := range [][3]string{{"/", "a", "/a"}, {"/a", "b", "/a/b"}, {"/a/b", "c", "/a/b/c"}} {
		expect.Equal(t, Join(c[0], c[1]), c[2], "%v: Join(c[0], c[1])", c)
		expect.Equal(t, Parent(c[2]), c[0], "%v: Parent(c[2])", c)
		expect.Equal(t, Base(c[2]), c[1], "%v: Base(c[2])", c)
	}
	l := Lock{Path: "/s"}
	for node, want := range map[string]string{"": "/s", "a": "/s/a", "locks/a": "/s/locks/a",
		"/s-__lock__/a": "/s-__lock__/a"} {
		expect.Equal(t, l.Target(node), want, "%q is at", node)
	}
}

// The names of nodes that may be contenders', and of those that are.
func TestContendersByName(t *testing.T) {
	const id, dashed = "0123456789abcdef0123456789abcdef", "01234567-89ab-4def-8123-456789abcdef"
	for name, want := range map[string]struct{ may, is bool }{
		"lock": {true, false}, "notes": {false, false}, "lock-0000000001": {true, true}, "lock0000000017": {
			true, true}, id: {true, false},
		id + "__party__": {true, false}, "q-" + dashed + "-R-0000000001": {true, true}, "h-" + dashed + "-W": {
			true, true}, "h-" + dashed: {false, false},
		"x-1-0000000001": {true, true}, "0000000001": {true, true}, "ready": {false, false}, "lock--2147483648": {
			true, true},
	} {
		expect.Equal(t, MayContend(name), want.may, "%s: MayContend(name)", name)
		expect.Equal(t, IsContender(name), want.is, "%s: IsContender(name)", name)
	}
	for name, want := range map[string]int32{"lock-0000000007": 7, "lock--2147483648": -2147483648,
		"item0000000009": 9, "job-2147483647": 2147483647} {
		if n, ok := Number(name); n != want || !ok {
			t.Errorf("%s has the number %d, %v", name, n, ok)
		}
	}
	_, ok := Number("h-" + dashed + "-W")
	expect.That(t, !ok, "a hold has a number")
	d := describe("block-0000000001")
	expect.Equal(t, d.layout, LayoutPlain, "d.layout")
	expect.That(t, d.word, "%+v: want d.word", d)
}

func TestIDsAreLowerCase(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for s, want := range map[string]bool{
		id: true, strings.ToUpper(id): false, id[1:]: false, id + "0": false, id[1:] + "g": false, id[1:] +
			"`": false, id[1:] + ":": false, id[1:] + "/": false,
	} {
		if _, ok := ParseHex(s); ok != want {
			t.Errorf("%s is an id: %v", s, ok)
		}
		if got := isSession("0x" + s[:16]); got != (strings.ToLower(s) == s) {
			t.Errorf("0x%s is a session: %v", s[:16], got)
		}
	}
}

func TestOwnerIsAShortRecord(t *testing.T) {
	record := func(size int) string {
		const begin, end = `{"v":1,"host":"h","reason":"`, `"}`
		return begin + strings.Repeat("x", size-len(begin)-len(end)) + end
	}
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"nothing":  {"", false},
		"text":     {"host 1", false},
		"a list":   {"[1]", false},
		"indented": {" " + record(100), false},
		"version":  {`{"v":2}`, false},
		"short":    {record(100), true},
		"longest":  {record(2 * MaxOwnerData), true},
		"longer":   {record(2*MaxOwnerData + 1), false},
	} {
		o, ok := (&Entry{raw: c.data}).Record()
		expect.Equal(t, ok, c.want, "%s: ok", name)
		expect.That(t, !ok || o.Host == "h",
			"%s: %v, %+v: want !ok || o.Host == \"h\"", name, ok, o)
	}
}

// A holder notes in its record that its time is over, and nothing else changes.
func TestMarkOver(t *testing.T) {
	record := EncodeOwner(Owner{Host: "h", MaxHold: "3s"})
	over := EncodeOwner(Owner{Host: "h", MaxHold: "3s", Over: true})
	for name, c := range map[string]struct{ data, want string }{
		"record":           {string(record), string(over)},
		"record and value": {"v\x00" + string(record), "v\x00" + string(over)},
		"noted":            {string(over), ""},
		"value":            {"v", ""},
		"nothing":          {"", ""},
	} {
		t.Run(name, func(t *testing.T) { expect.Equal(t, string(MarkOver([]byte(c.data))), c.want) })
	}
}

// A host may have no name.
func TestMakerWithoutHost(t *testing.T) {
	name := NodeName(LayoutHost, RoleRead, NewID(1, 2), "") + "0000000001"
	c, l, ok := ParseName(name)
	if expect.That(t, ok, "%s: %+v, %v, %v: want ok", name, c, l, ok) {
		expect.Equal(t, l, LayoutHost, "%s: l", name)
		expect.Equal(t, c.Maker, MakerSelf, "%s: c.Maker", name)
	}
}

// What the lock view tells of a queue as a whole.
func TestReadsOfAQueue(t *testing.T) {
	q := Queue{
		Lock:         Lock{Kind: KindLock},
		Holders:      []Entry{{Node: "b", Since: 70, HeldSince: 90, Maker: MakerCurator}, {Node: "a", Since: 80}},
		Waiters:      []Entry{{Node: "c", Since: 65, Maker: MakerSelf}, {Node: "d", Since: 60}},
		Participants: []Entry{{Node: "f", Maker: MakerSelf}},
	}
	if w, h := q.OldestWait(), q.OldestHold(); w != 60 || h != 80 {
		t.Errorf("the oldest wait is of %d, the oldest hold of %d", w, h)
	}
	none := (&Queue{})
	expect.Equal(t, none.OldestWait(), 0,
		"an empty queue has contenders: none.OldestWait()")
	expect.Equal(t, none.OldestHold(), 0,
		"an empty queue has contenders: none.OldestHold()")
	expect.That(t, none.Find("a") == nil,
		"an empty queue has contenders: want none.Find(\"a\") == nil")
	for _, node := range []string{"a", "b", "c", "d", "f"} {
		e := q.Find(node)
		if expect.That(t, e != nil, "%s is %+v: want e != nil", node, e) {
			expect.Equal(t, e.Node, node, "%s is %+v: e.Node", node, e)
		}
	}
	expect.That(t, q.Find("g") == nil,
		"a node that is not there was found: want q.Find(\"g\") == nil")
	expect.That(t, q.Find("") == nil,
		"a node that is not there was found: want q.Find(\"\") == nil")
	for want, q := range map[string]Queue{
		"Curator mutex or leader selector, zlock lock": q,
		"one ephemeral node":                           {Lock: Lock{Kind: KindSimple}},
		"not known":                                    {Lock: Lock{Kind: KindUnknown}},
		"sequential nodes":                             {Lock: Lock{Kind: KindParty}, Holders: q.Holders},
	} {
		if got := q.Recipe(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	for want, p := range map[string]Party{
		"h[7]": {Host: "h", PID: 7, Task: "t"}, "h": {Host: "h", Task: "t"}, "t": {PID: 7, Task: "t"},
		"0x1f": {Session: 31},
	} {
		if got := p.Label(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// A party that one of several holders can let go on is in no cycle, though it waits for one.
func TestCyclesHaveStuckPartiesOnly(t *testing.T) {
	entry := func(task string, session Session, blocked ...string) Entry {
		return Entry{Node: task, Session: session, Owner: &Owner{Task: task}, BlockedBy: blocked}
	}
	either := entry("b", 2, "c", "free")
	either.Any = true
	since := func(n int64, e Entry) Entry {
		e.Since = n
		return e
	}
	g := WaitGraph([]Queue{
		{Lock: Lock{Path: "/1"}, Holders: []Entry{entry("c", 3), entry("free", 5)}, Waiters: []Entry{since(4, either)}},
		{Lock: Lock{Path: "/2"}, Holders: []Entry{entry("b", 2), entry("d", 4)},
			Waiters: []Entry{since(5, entry("c", 3, "b", "d"))}},
		{Lock: Lock{Path: "/3"}, Holders: []Entry{entry("c", 3)}, Waiters: []Entry{since(6, entry("d", 4, "c"))}},
	})
	must.Equal(t, len(g.Cycles), 1, "cycles")
	var tasks []string
	for _, p := range g.Cycles[0].Parties {
		tasks = append(tasks, g.Parties[p].Task)
	}
	slices.Sort(tasks)
	expect.Equal(t, strings.Join(tasks, " "), "c d", "the cycle")
	var edges []string
	for _, e := range g.Edges {
		label := func(p int) string { return g.Parties[p].Task }
		edges = append(edges, fmt.Sprintf("%s>%s %v %v %d", label(e.From), label(e.To), e.Cycle, e.Any, e.Since))
	}
	expect.List(t, edges, []string{"c>d true false 5", "d>c true false 6", "b>c false true 4", "b>free false true 4",
		"c>b false false 5"}, "edges")
	expect.List(t, g.Cycles[0].Paths, []string{"/2", "/3"}, "g.Cycles[0].Paths")
	expect.Equal(t, g.Cycles[0].Since, 6, "g.Cycles[0].Since")
}

// A revocation leaves fields alone that this version does not know.
func TestAskBackKeepsTheRecord(t *testing.T) {
	data := AskBack([]byte(`value`+"\x00"+`{"v":1,"host":"h","new":5}`), MakerSelf, Revocation{By: "ann"})
	r, asked := RevocationIn(data)
	expect.That(t, asked, "%q: want asked", data)
	expect.Equal(t, r.By, "ann", "r.By")
	expect.That(t, strings.HasPrefix(string(data), "value\x00{"),
		"%q: want strings.HasPrefix(string(data), \"value\\x00{\")", data)
	expect.Has(t, string(data), `"new":5`)
}

func TestRecordsAreBounded(t *testing.T) {
	record := `{"zl":1,"holder":""}`
	_, short := ParseRecord([]byte(record))
	_, long := ParseRecord([]byte(record + strings.Repeat(" ", 2*MaxOwnerData)))
	expect.That(t, short && !long, "a record is read: %v, one that is too long: %v", short, long)
}
