package recipe

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A queue that was encoded as JSON and decoded again has the same contents.
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
	must.OK(t, json.Unmarshal(b, &back))
	expect.Equal(t, fmt.Sprintf("%+v", back.Holders), fmt.Sprintf("%+v", q.Holders), "the holders")
	expect.Equal(t, back.Lock.Layout(), "curator+kazoo", "the layouts")
	expect.Equal(t, back.Waiters[0].Owner.Host, "h", "the waiter's host")
	expect.Equal(t, back.Next, -5, "the next number")
	expect.That(t, back.Waiters[0].Any, "the waiter waits for all holders, want any")
	for _, bad := range []string{`{"layout":"other"}`, `{"maker":"other"}`, `{"session":"other"}`,
		`{"session":"0x1ffffffffffffffff"}`} {
		expect.That(t, json.Unmarshal([]byte(bad), new(Entry)) != nil, "%s is understood", bad)
	}
	expect.Fails(t, expect.Err(ParseLayout("plain")), "package client makes locks of plain names")
	for _, l := range []Layout{LayoutCurator, LayoutKazoo, LayoutHost, LayoutPolicy, LayoutLatch} {
		got, err := ParseLayout(l.String())
		expect.OK(t, err, "the layout %v", l)
		expect.Equal(t, got, l, "the layout %v", l)
	}
}

// A contender can be asked to leave only if its program looks for such a request. Entry.Asked finds a request
// in each form in which it is written.
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
		expect.Equal(t, c.e.Askable(), c.askable, "%s: can be asked", name)
	}
}

// A queue finds a contender by its node, reports its oldest wait and hold, and names its recipes.
func TestReadsOfAQueue(t *testing.T) {
	q := Queue{
		Lock:         Lock{Kind: KindLock},
		Holders:      []Entry{{Node: "b", Since: 70, HeldSince: 90, Maker: MakerCurator}, {Node: "a", Since: 80}},
		Waiters:      []Entry{{Node: "c", Since: 65, Maker: MakerSelf}, {Node: "d", Since: 60}},
		Participants: []Entry{{Node: "f", Maker: MakerSelf}},
	}
	expect.Equal(t, q.OldestWait(), 60, "the oldest wait")
	expect.Equal(t, q.OldestHold(), 80, "the oldest hold")
	none := &Queue{}
	expect.Equal(t, none.OldestWait(), 0, "the oldest wait of an empty queue")
	expect.Equal(t, none.OldestHold(), 0, "the oldest hold of an empty queue")
	expect.That(t, none.Find("a") == nil, "an empty queue has the contender a")
	for _, node := range []string{"a", "b", "c", "d", "f"} {
		if e := q.Find(node); expect.That(t, e != nil, "%s is not found", node) {
			expect.Equal(t, e.Node, node, "the contender that is found")
		}
	}
	expect.That(t, q.Find("g") == nil, "a node that is not there is found")
	expect.That(t, q.Find("") == nil, "a node without a name is found")
	for want, q := range map[string]Queue{
		"Curator mutex or leader selector, zlock lock": q,
		"one ephemeral node":                           {Lock: Lock{Kind: KindSimple}},
		"not known":                                    {Lock: Lock{Kind: KindUnknown}},
		"sequential nodes":                             {Lock: Lock{Kind: KindParty}, Holders: q.Holders},
	} {
		expect.Equal(t, q.Recipe(), want)
	}
}

// A wait is certain only if both parties are tasks and the waiter waits for all of the holders.
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
