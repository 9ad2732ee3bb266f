package conn

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree/bounds"
)

// The server answers addWatch, removeWatches and checkWatches as ZooKeeper does.
func TestRequestsAboutWatches(t *testing.T) {
	s, c := quiet(t, options.Options{})
	st := state.New("test")
	const persistent, recursive = jute.AddWatchPersistent, jute.AddWatchRecursive
	for i, x := range []struct {
		op   jute.OpCode
		body wire.Body
		want jute.ErrCode
	}{
		{jute.OpAddWatch, wire.PathInt("/p", persistent), jute.OK},
		{jute.OpAddWatch, wire.PathInt("/r", recursive), jute.OK},
		{jute.OpAddWatch, wire.PathInt("/p", 2), jute.MarshallingError},
		{jute.OpAddWatch, wire.PathInt("/p", -1), jute.MarshallingError},
		{jute.OpAddWatch, wire.PathInt("p", persistent), jute.BadArguments},
		{jute.OpAddWatch, wire.PathInt("", persistent), jute.BadArguments},
		{jute.OpAddWatch, wire.Path("/p"), jute.MarshallingError},
		{jute.OpAddWatch, wire.Body{}.Null().Int(0), jute.MarshallingError},
		{jute.OpCheckWatches, wire.PathInt("/p", jute.WatcherPersistent), jute.OK},
		{jute.OpCheckWatches, wire.PathInt("/p", jute.WatcherPersistentRecursive), jute.NoWatcher},
		{jute.OpCheckWatches, wire.PathInt("/r", jute.WatcherPersistentRecursive), jute.OK},
		{jute.OpCheckWatches, wire.PathInt("/p", 99), jute.MarshallingError},
		{jute.OpCheckWatches, wire.PathInt("p", jute.WatcherAny), jute.MarshallingError},
		{jute.OpCheckWatches, wire.PathInt("", jute.WatcherAny), jute.NoWatcher},
		{jute.OpRemoveWatches, wire.PathInt("p", jute.WatcherAny), jute.NoWatcher},
		{jute.OpRemoveWatches, wire.PathInt("/p", 99), jute.MarshallingError},
		{jute.OpRemoveWatches, wire.PathInt("/p", jute.WatcherAny), jute.OK},
		{jute.OpRemoveWatches, wire.PathInt("/p", jute.WatcherAny), jute.NoWatcher},
		{jute.OpCheckWatches, wire.PathInt("/p", jute.WatcherAny), jute.NoWatcher},
		{jute.OpCheckWatches, wire.PathInt("/r", jute.WatcherAny), jute.OK},
	} {
		at := len(c.out.Look().Buf)
		cost := c.reads.cost
		must.That(t, c.watchOp(st, int32(i), x.op, x.body), "request %d ends the connection", i)
		f := must.Get(wire.DecodeFrame(c.out.Look().Buf[at+4:]))(t)
		record := ""
		if x.want == jute.OK && x.op == jute.OpAddWatch {
			record = "\x00\x00\x00\x00"
		}
		expect.Equal(t, f.Code, x.want, "%v %q: f.Code", x.op, x.body)
		expect.Equal(t, string(f.Body), record, "%v %q: string(f.Body)", x.op, x.body)
		expect.Equal(t, f.Xid, int32(i), "%v %q: f.Xid", x.op, x.body)
		expect.Equal(t, c.reads.cost-cost, int64(bounds.WatchSteps("/p")), "the steps of request %d", i)
	}
	expect.Equal(t, s.Watches.Figures().All, 1, "watches are left")
}
