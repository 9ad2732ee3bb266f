package tree

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestDirAgainstSlice makes random changes to a directory that grows large and
// shrinks again, and compares it with a plain slice that does the same.
func TestDirAgainstSlice(t *testing.T) {
	seed := maphash.MakeSeed()
	r := rand.New(rand.NewPCG(1, 2))
	d := &dir{}
	var plain []*node
	largest := 0
	for i := range 60_000 {
		grow := 3 * (1 + i/20_000%2) // of 8: shrink, grow, shrink
		switch {
		case r.IntN(8) < grow || len(plain) == 0:
			n := &node{name: fmt.Sprint("node-", i)}
			plain = append(plain, n)
			d.add(seed, n)
		case r.IntN(2) == 0: // removed and put back: a failed multi
			p := r.IntN(len(plain))
			n := plain[p]
			d.remove(seed, d.nodes[p].name)
			must.That(t, d.find(seed, n.name) < 0, "still there")
			d.restore(seed, n, p)
		default:
			p := r.IntN(len(plain))
			last := len(plain) - 1
			plain[p] = plain[last]
			plain = plain[:last]
			d.remove(seed, d.nodes[p].name)
		}
		must.That(t, len(d.nodes) == len(plain) && d.find(seed, "nobody") < 0,
			"%v %v", len(d.nodes), len(plain))
		if len(plain) > 0 {
			p := r.IntN(len(plain))
			must.That(t, d.nodes[p] == plain[p] && d.find(seed, plain[p].name) == p,
				"step %d: child %d of %d is not where it should be", i, p, len(plain))
		}
		largest = max(largest, len(plain))
	}
	expect.That(t, largest >= 1000, "the directory never grew: %v", largest)
	for len(d.nodes) > 0 {
		d.remove(seed, d.nodes[len(d.nodes)-1].name)
	}
	if d.names != 0 || d.slots != nil || cap(d.nodes) > 64 {
		t.Errorf("an empty directory keeps %d bytes of names, %d slots and room for %d", d.names, len(d.slots),
			cap(d.nodes))
	}
}

// TestChangesOfATreeReachWatches joins the two halves: what a tree tells of
// its changes and what a connection with a watch hears.
func TestChangesOfATreeReachWatches(t *testing.T) {
	tr, w, zxid := New(), NewWatches[string](), int64(0)
	for _, k := range []WatchKind{Persistent, Recursive} {
		w.Add("conn", "/p", k)
	}
	w.Add("conn", "/", Child)

	create := func(path string, flags int32) []byte {
		b := jute.AppendBuffer(jute.AppendString(nil, path), nil)
		return jute.AppendInt(jute.AppendACL(b, jute.WorldAnyone), flags)
	}
	remove := func(path string) []byte { return jute.AppendInt(jute.AppendString(nil, path), -1) }
	set := func(path string) []byte {
		return jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, path), []byte("x")), -1)
	}
	multi := func(parts ...[]byte) (b []byte) {
		for i, op := range []jute.OpCode{jute.OpCreate, jute.OpDelete}[:len(parts)] {
			b = append(jute.AppendMultiHeader(b, op, false, -1), parts[i]...)
		}
		return jute.AppendMultiHeader(b, -1, true, -1)
	}
	for _, step := range []struct {
		name string
		op   jute.OpCode
		body []byte
		want []string
	}{
		{"create", jute.OpCreate, create("/p", 0), []string{"NodeCreated /p", "NodeChildrenChanged /"}},
		{"setData", jute.OpSetData, set("/p"), []string{"NodeDataChanged /p"}},
		{"failed create", jute.OpCreate, create("/p", 0), nil},
		{"setACL", jute.OpSetACL, jute.AppendInt(jute.AppendACL(jute.AppendString(nil, "/p"), jute.WorldAnyone),
			-1), nil},
		{"failed multi", jute.OpMulti, multi(create("/p/x", 0), remove("/none")), nil},
		{"multi", jute.OpMulti, multi(create("/p/x", 0), remove("/p/x")), []string{
			"NodeCreated /p/x", "NodeChildrenChanged /p", "NodeDeleted /p/x", "NodeChildrenChanged /p"}},
		{"ephemeral", jute.OpCreate, create("/p/e", 1), []string{"NodeCreated /p/e", "NodeChildrenChanged /p"}},
		{"close", jute.OpCloseSession, nil, []string{"NodeDeleted /p/e", "NodeChildrenChanged /p"}},
	} {
		zxid++
		c := &Change{Zxid: zxid, Time: 1, Session: 7}
		if step.op == jute.OpCloseSession {
			tr.CloseSession(c, 7)
		} else {
			tr.Apply(c, step.op, step.body, nil)
		}
		got := fired(w, c.Events)["conn"]
		expect.List(t, got, step.want, "%s: told %q", step.name, got)
	}
}
