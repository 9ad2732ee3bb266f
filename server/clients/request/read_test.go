package request

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/watches"
)

// A read pays for its path, its answer, and the watch that it sets.
func TestStepsOfARead(t *testing.T) {
	ids := slices.Repeat([]jute.ID{{Scheme: "ip", ID: "127.0.0.1"}}, 6)
	path := strings.Repeat("/name", 20)
	read, watching := int64(bounds.ReadSteps(path, ids)), int64(bounds.WatchSteps(path))
	expect.Equal(t, (&Watch{Path: path}).Steps(ids, 1200), read+3)
	expect.Equal(t, (&Watch{Path: path, Set: true}).Steps(ids, 0), read+watching)
}

// A read sets a watch of the right kind on its path, and only in the cases that the protocol names.
func TestWatchesOfReads(t *testing.T) {
	st, ids := state.New("test").Tree(), []jute.ID{{Scheme: "ip", ID: "127.0.0.1"}}
	create := wire.Create("/few", nil, jute.WorldAnyone, 0)
	_, code, _ := st.Apply(&tree.Change{Zxid: 1}, jute.OpCreate, create, nil)
	must.Equal(t, code, jute.OK)
	for _, x := range []struct {
		op   jute.OpCode
		body wire.Body
		code jute.ErrCode
		want Watch
	}{
		{jute.OpGetData, wire.PathWatch("/few", true), jute.OK, Watch{true, "/few", watches.Data}},
		{jute.OpGetData, wire.PathWatch("/few", false), jute.OK, Watch{false, "/few", watches.Data}},
		{jute.OpGetData, wire.PathWatch("/none", true), jute.NoNode, Watch{false, "/none", watches.Data}},
		{jute.OpExists, wire.PathWatch("/few", true), jute.OK, Watch{true, "/few", watches.Data}},
		{jute.OpExists, wire.PathWatch("/none", true), jute.NoNode, Watch{true, "/none", watches.Data}},
		{jute.OpExists, wire.PathWatch("/\x00", true), jute.BadArguments, Watch{false, "/\x00",
			watches.Data}},
		{jute.OpGetChildren, wire.PathWatch("/few", true), jute.OK, Watch{true, "/few", watches.Child}},
		{jute.OpGetChildren2, wire.PathWatch("/few", true), jute.OK, Watch{true, "/few", watches.Child}},
		{jute.OpGetChildren2, wire.PathWatch("/none", true), jute.NoNode, Watch{false, "/none",
			watches.Child}},
		{jute.OpGetACL, wire.PathWatch("/few", true), jute.OK, Watch{false, "/few", watches.Data}},
		{jute.OpGetAllChildrenNumber, wire.PathWatch("/few", true), jute.OK, Watch{false, "/few",
			watches.Data}},
		{jute.OpGetEphemerals, wire.PathWatch("/few", true), jute.OK, Watch{false, "/few", watches.Data}},
		{jute.OpGetData, wire.Path("/few"), jute.MarshallingError, Watch{false, "/few", watches.Data}},
		{jute.OpGetData, wire.Body{}.Null().Bool(true), jute.MarshallingError, Watch{}},
		{jute.OpGetEphemerals, wire.Body{}.Null(), jute.OK, Watch{}},
		{jute.OpGetEphemerals, wire.Body{0}, jute.MarshallingError, Watch{}},
		{jute.OpMultiRead, wire.Multi(wire.Op{Type: jute.OpGetData, Body: wire.PathWatch("/few", false)}), jute.OK, Watch{}},
	} {
		b, w, _, code := AppendRecord(st, []byte("before"), 1, ids, x.op, x.body)
		expect.Equal(t, code, x.code, "%v %q: code", x.op, x.body)
		expect.Equal(t, w, x.want, "%v %q: w", x.op, x.body)
		expect.That(t, strings.HasPrefix(string(b), "before"),
			"%v %q: %v, %+v, %d bytes: want strings.HasPrefix(string(b), \"before\")",
			x.op, x.body, code, w, len(b))
		expect.Equal(t, len(b) > len("before"), code == jute.OK, "%v %q", x.op, x.body)
	}
}

// WatchOp decodes addWatch, removeWatches and checkWatches, and refuses wrong ones.
func TestRequestsAboutWatches(t *testing.T) {
	const add, remove, check = jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches
	about := func(path string, n int32) wire.Body { return wire.Body{}.Str(path).Int(n) }
	for _, x := range []struct {
		op   jute.OpCode
		body wire.Body
		code jute.ErrCode
		want Watch
	}{
		{add, about("/a", jute.AddWatchPersistent), jute.OK, Watch{true, "/a", watches.Persistent}},
		{add, about("/a", jute.AddWatchRecursive), jute.OK, Watch{true, "/a", watches.Recursive}},
		{add, about("/a", 9), jute.MarshallingError, Watch{Path: "/a"}},
		{add, about("a", jute.AddWatchPersistent), jute.BadArguments, Watch{Path: "a"}},
		{add, about("", jute.AddWatchPersistent), jute.BadArguments, Watch{}},
		{remove, about("/a", jute.WatcherAny), jute.OK, Watch{Path: "/a"}},
		{remove, about("a", jute.WatcherAny), jute.OK, Watch{Path: "a"}},
		{remove, about("/a", 99), jute.MarshallingError, Watch{Path: "/a"}},
		{check, about("/a", jute.WatcherAny), jute.OK, Watch{Path: "/a"}},
		{check, about("", jute.WatcherAny), jute.OK, Watch{}},
		{check, about("a", jute.WatcherAny), jute.MarshallingError, Watch{Path: "a"}},
		{check, wire.Body{}.Null().Int(jute.WatcherAny), jute.MarshallingError, Watch{}},
		{check, wire.Path("/a"), jute.MarshallingError, Watch{Path: "/a"}},
	} {
		w, _, code := WatchOp(x.op, x.body)
		expect.Equal(t, code, x.code, "%v %q: code", x.op, x.body)
		expect.Equal(t, w, x.want, "%v %q: w", x.op, x.body)
	}
}
