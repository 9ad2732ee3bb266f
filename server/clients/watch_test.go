package clients

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/watches"
)

// Each bound of watches holds for the watch that goes beyond it, and for none before.
func TestRoomForAWatchEndsAtEachBound(t *testing.T) {
	const each = 28 + 80 // a watch and its path
	long := strings.Repeat("x", 1000)
	add := func(s *Server, c *conn, n, size int) {
		for range n {
			s.watches.table.Add(c, fmt.Sprintf("%0*d", size, s.watches.table.Count()), watches.Data)
		}
	}
	for _, x := range []struct {
		name   string
		o      Options
		n      int // watches of 100 bytes with their paths that the connection has
		size   int // of their paths
		others int // watches of 1 KiB that another connection from another address has
		path   string
		want   bool
	}{
		{"in number", Options{MaxWatchesPerConn: 10}, 9, 10, 0, "/", true},
		{"beyond their number", Options{MaxWatchesPerConn: 10}, 10, 10, 0, "/", false},
		{"in the number of all", Options{MaxWatches: 10}, 4, 10, 5, "/", true},
		{"beyond the number of all", Options{MaxWatches: 10}, 4, 10, 6, "/", false},
		{"in bytes", Options{MaxWatchBytesPerConn: 10*(each+10) + 1000}, 10, 10, 0, long, true},
		{"beyond their bytes", Options{MaxWatchBytesPerConn: 10*(each+10) + 999}, 10, 10, 0, long, false},
		{"few beside many", Options{MaxWatchBytes: 1}, 5, 1000, 1000, long, true},
		{"many beside many", Options{MaxWatchBytes: 1}, 60, 1000, 1000, long, false},
		{"many in the bytes of all", Options{MaxWatchBytes: 60*(each+1000) + 96 + 1000}, 60, 1000, 0, long, true},
		{"many beyond the bytes of all", Options{MaxWatchBytes: 60*(each+1000) + 96 + 999}, 60, 1000, 0, long, false},
	} {
		s, c := quiet(t, x.o)
		add(s, c, x.n, x.size)
		add(s, connFrom(s, new(address)), x.others, 1024)
		s.watches.mu.Lock()
		got := s.watches.room(c, len(x.path))
		s.watches.mu.Unlock()
		expect.Equal(t, got, x.want, "%s", x.name)
		if x.o.MaxWatchBytes > 1 {
			expect.Equal(t, s.watches.table.Bytes(), int64(60*(each+1000)+96))
		}
		count := s.watches.table.Count()
		expect.Equal(t, s.watches.add(c, x.path, watches.Data), x.want, "%s", x.name)
		expect.Equal(t, c.isOpen(), x.want, "%s: c.isOpen()", x.name)
		expect.Equal(t, s.watches.table.Count() == count+1, x.want,
			"%s: s.watches.table.Count() == count+1", x.name)
	}
}

// What the connections from one address have is added up when one has grown by another step.
func TestWatchesOfAnAddressAreAddedUpInSteps(t *testing.T) {
	s, a := quiet(t, Options{})
	b := connFrom(s, a.from)
	from := a.from
	from.conns = map[*conn]struct{}{a: {}, b: {}}
	s.perAddr[a.host] = from
	b.host = a.host
	must.That(t, s.watches.add(b, "/b", watches.Data), "no room")
	const each = 28 + 80 + 1000
	for n := 1; n <= 200; n++ {
		before := from.account.Watches()
		must.That(t, s.watches.add(a, fmt.Sprintf("/%0999d", n), watches.Data), "no room for %d", n)
		had := each * (n - 1)
		if had+1000 > smallWatches && had/watchStep != (had+1000)/watchStep {
			expect.Equal(t, from.account.Watches(), int64(had+28+80+2), "after %d", n)
		} else {
			expect.Equal(t, from.account.Watches(), before, "after %d", n)
		}
	}
	s.watches.recount(from)
	expect.Equal(t, from.account.Watches(), int64(200*each+28+80+2))
	delete(from.conns, a)
	s.watches.drop(a)
	expect.Equal(t, from.account.Watches(), int64(28+80+2), "after the end of a connection with many")
	expect.That(t, !s.watches.add(a, "/late", watches.Data),
		"a watch of a dropped one: want !s.watches.add(a, \"/late\", watches.Data)")
	expect.Equal(t, s.watches.table.Count(), 1,
		"a watch of a dropped one: s.watches.table.Count()")
	from.account.SetWatches(99)
	delete(from.conns, b)
	s.watches.drop(b)
	expect.Equal(t, from.account.Watches(), 99, "after the end of a connection with few")
	expect.Equal(t, s.watches.table.Count()+int(s.watches.table.Bytes()), 0)
}

// A connection with very many watches leaves none behind.
func TestVeryManyWatchesGoWithTheirConnection(t *testing.T) {
	s, c := quiet(t, Options{})
	for i := range 3*sweepStep + 5 {
		s.watches.table.Add(c, fmt.Sprint("/", i), watches.Data)
	}
	s.watches.drop(c)
	expect.Equal(t, s.watches.table.Bytes(), 0)
	must.That(t, s.watches.add(connFrom(s, new(address)), "/x", watches.Data), "no room")
	s.watches.reset()
	expect.Equal(t, s.watches.table.Count(), 0, "watches after a reset")
}

// A change that an address hears of costs it a step at least, and one for each tellBytes of the events. An
// address that owes much is not told, and its watching connections are closed.
func TestEventsAreCharged(t *testing.T) {
	long := "/" + strings.Repeat("x", 2*tellBytes-1)
	for _, x := range []struct {
		name string
		owed int64 // beyond debtTime
		path string
		open bool
		cost int64
	}{
		{"an event", -1 << 20, "/short", true, 1},
		{"an event of a long path", -1 << 20, long, true, 1 + 2},
		{"of an address that owes as much as it may", 0, "/short", true, 1},
		{"of an address that owes more", 1, "/short", false, maxTells},
	} {
		s, c := quiet(t, Options{})
		must.That(t, s.watches.add(c, x.path, watches.Persistent), "no room")
		owe(c.from, s.shares.Of(budget.Debt)+x.owed)
		before := c.from.account.Owed()
		s.Events(1, []tree.Event{{Type: jute.EventDataChanged, Path: x.path, ACL: tree.NewACL(jute.WorldAnyone)}})
		expect.Equal(t, c.isOpen(), x.open, "%s: c.isOpen()", x.name)
		expect.Equal(t, c.out.frames == 1, x.open, "%s: c.out.frames == 1", x.name)
		expect.Equal(t, c.from.account.Owed()-before, x.cost, "%s costs", x.name)
		expect.Equal(t, c.from.change.steps, 0, "%s: c.from.change.steps", x.name)
		if expect.Equal(t, len(s.watches.told), 0, "%s: len(s.watches.told)", x.name) {
			expect.That(t, s.watches.event == nil,
				"%s: not settled: want s.watches.event == nil", x.name)
		}
		if x.open {
			p, _ := c.out.take()
			f := must.Get(wire.DecodeFrame(p.b[4:]))(t)
			if expect.That(t, f.Event != nil, "%s: %+v: want f.Event != nil", x.name, f) {
				expect.Equal(t, f.Event.Path, x.path, "%s: f.Event.Path", x.name)
				expect.Equal(t, f.Zxid, 1, "%s: f.Zxid", x.name)
			}
		}
	}
}

// The answers to what clients ask of their watches.
func TestRequestsAboutWatches(t *testing.T) {
	s, c := quiet(t, Options{})
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
		at := len(c.out.buf)
		cost := c.reads.cost
		must.That(t, c.watchOp(st, int32(i), x.op, x.body), "request %d ends the connection", i)
		f := must.Get(wire.DecodeFrame(c.out.buf[at+4:]))(t)
		record := ""
		if x.want == jute.OK && x.op == jute.OpAddWatch {
			record = "\x00\x00\x00\x00"
		}
		expect.Equal(t, f.Code, x.want, "%v %q: f.Code", x.op, x.body)
		expect.Equal(t, string(f.Body), record, "%v %q: string(f.Body)", x.op, x.body)
		expect.Equal(t, f.Xid, int32(i), "%v %q: f.Xid", x.op, x.body)
		expect.Equal(t, c.reads.cost-cost, int64(tree.WatchSteps("/p")), "the steps of request %d", i)
	}
	expect.Equal(t, s.watches.table.Count(), 1, "watches are left")
}
