package tree

import (
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
)

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
		if got := fired(w, c.Events)["conn"]; !slices.Equal(got, step.want) {
			t.Errorf("%s: told %q, want %q", step.name, got, step.want)
		}
	}
}
