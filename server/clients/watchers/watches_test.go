package watchers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/watches"
)

// Each bound refuses the first watch that exceeds it, and no watch before.
func TestRoomForAWatchEndsAtEachBound(t *testing.T) {
	const each = 28 + 80 // memory of a watch and its path, without the length of the path
	long := strings.Repeat("x", 1000)
	add := func(s *Table, c *Watcher, n, size int) {
		for range n {
			s.table.Add(c, fmt.Sprintf("%0*d", size, s.table.Count()), watches.Data)
		}
	}
	for _, x := range []struct {
		name   string
		o      Bounds
		n      int // number of watches that the connection has
		size   int // length of their paths
		others int // number of watches of 1 KiB that a connection from another address has
		path   string
		want   bool
	}{
		{"in number", Bounds{PerConn: 10}, 9, 10, 0, "/", true},
		{"beyond their number", Bounds{PerConn: 10}, 10, 10, 0, "/", false},
		{"in the number of all", Bounds{All: 10}, 4, 10, 5, "/", true},
		{"beyond the number of all", Bounds{All: 10}, 4, 10, 6, "/", false},
		{"in bytes", Bounds{BytesPerConn: 10*(each+10) + 1000}, 10, 10, 0, long, true},
		{"beyond their bytes", Bounds{BytesPerConn: 10*(each+10) + 999}, 10, 10, 0, long, false},
		{"few beside many", Bounds{Bytes: 1}, 5, 1000, 1000, long, true},
		{"many beside many", Bounds{Bytes: 1}, 60, 1000, 1000, long, false},
		{"many in the bytes of all", Bounds{Bytes: 60*(each+1000) + 96 + 1000}, 60, 1000, 0, long, true},
		{"many beyond the bytes of all", Bounds{Bytes: 60*(each+1000) + 96 + 999}, 60, 1000, 0, long, false},
	} {
		s, c := quiet(t, x.o, 0, 0)
		add(s, c, x.n, x.size)
		add(s, connFrom(s, new(Address)), x.others, 1024)
		s.mu.Lock()
		got := s.room(c, len(x.path))
		s.mu.Unlock()
		expect.Equal(t, got, x.want, "%s", x.name)
		if x.o.Bytes > 1 {
			expect.Equal(t, s.table.Bytes(), int64(60*(each+1000)+96))
		}
		count := s.table.Count()
		expect.Equal(t, s.Add(c, x.path, watches.Data), x.want, "%s", x.name)
		expect.Equal(t, c.Out.IsOpen(), x.want, "%s: c.Out.IsOpen()", x.name)
		expect.Equal(t, s.table.Count() == count+1, x.want,
			"%s: s.table.Count() == count+1", x.name)
	}
}

// A connection at a limit of watches can still set the watches again that it has, because that needs no room.
// A watch of another kind at the same path needs room.
func TestWatchThatIsSetAgainNeedsNoRoom(t *testing.T) {
	for _, b := range []Bounds{{PerConn: 1}, {All: 1}, {BytesPerConn: 28 + 80 + 2}} {
		for _, kind := range []watches.Kind{watches.Data, watches.Child, watches.Persistent, watches.Recursive} {
			s, c := quiet(t, b, 0, 0)
			must.That(t, s.Add(c, "/a", kind), "no room for the first watch")
			count := s.table.Count()
			expect.That(t, s.Add(c, "/a", kind) && c.Out.IsOpen(), "%+v: kind %d again", b, kind)
			expect.Equal(t, s.table.Count(), count, "watches")
			expect.That(t, !s.Add(c, "/a", (kind+1)%4) && !c.Out.IsOpen(), "%+v: kind %d in its place", b, kind)
		}
	}
}

// Whenever a connection's watches have grown by watchStep bytes, the memory of all watches of its address is
// counted again.
func TestWatchesOfAnAddressAreAddedUpInSteps(t *testing.T) {
	s, a := quiet(t, Bounds{}, 0, 0)
	b := connFrom(s, a.From)
	from := a.From
	there := map[*Watcher]bool{a: true, b: true}
	s.of = func(string) []*Watcher { return slices.Collect(maps.Keys(there)) }
	must.That(t, s.Add(b, "/b", watches.Data), "no room")
	const each = 28 + 80 + 1000
	for n := 1; n <= 200; n++ {
		before := from.Account.Watches()
		must.That(t, s.Add(a, fmt.Sprintf("/%0999d", n), watches.Data), "no room for %d", n)
		had := each * (n - 1)
		if had+1000 > smallWatches && had/watchStep != (had+1000)/watchStep {
			expect.Equal(t, from.Account.Watches(), int64(had+28+80+2), "after %d", n)
		} else {
			expect.Equal(t, from.Account.Watches(), before, "after %d", n)
		}
	}
	s.Recount(from)
	expect.Equal(t, from.Account.Watches(), int64(200*each+28+80+2))
	delete(there, a)
	s.Drop(a)
	expect.Equal(t, from.Account.Watches(), int64(28+80+2), "after the end of a connection with many")
	expect.That(t, !s.Add(a, "/late", watches.Data),
		"a watch of a dropped one: want !s.Add(a, \"/late\", watches.Data)")
	expect.Equal(t, s.table.Count(), 1,
		"a watch of a dropped one: s.table.Count()")
	from.Account.SetWatches(99)
	delete(there, b)
	s.Drop(b)
	expect.Equal(t, from.Account.Watches(), 99, "after the end of a connection with few")
	expect.Equal(t, s.table.Count()+int(s.table.Bytes()), 0)
}

// If the watches of a connection have grown by at least a step, the memory of its address is counted again
// when the connection ends.
func TestStepOfWatchesGoesWithItsConnection(t *testing.T) {
	for bytes, left := range map[int]int64{watchStep: 0, watchStep - 1: 99} {
		s, c := quiet(t, Bounds{}, 0, 0)
		s.table.Add(c, strings.Repeat("x", bytes-28-80), watches.Data)
		_, got := s.table.Of(c)
		must.Equal(t, got, bytes)
		c.From.Account.SetWatches(99)
		s.Drop(c)
		expect.Equal(t, c.From.Account.Watches(), left, "of %d bytes", bytes)
	}
}

// A connection with very many watches leaves none behind.
func TestVeryManyWatchesGoWithTheirConnection(t *testing.T) {
	s, c := quiet(t, Bounds{}, 0, 0)
	for i := range 3*sweepStep + 5 {
		s.table.Add(c, fmt.Sprint("/", i), watches.Data)
	}
	s.Drop(c)
	expect.Equal(t, s.table.Bytes(), 0)
	must.That(t, s.Add(connFrom(s, new(Address)), "/x", watches.Data), "no room")
	s.Reset()
	expect.Equal(t, s.table.Count(), 0, "watches after a reset")
}

// An address that gets events of a change pays at least one step for them, plus one step for each tellBytes
// of the events. If it owes too much, it gets no events, and its watching connections are closed.
func TestEventsAreCharged(t *testing.T) {
	long := "/" + strings.Repeat("x", 2*tellBytes-1)
	for _, x := range []struct {
		name string
		owed int64 // steps that are owed in addition to Shares.Of(budget.Debt)
		path string
		kind watches.Kind
		open bool
		cost int64
	}{
		{"an event", -1 << 20, "/short", watches.Persistent, true, 1},
		{"an event below a path", -1 << 20, "/short", watches.Recursive, true, 1 + 1},
		{"an event of a long path", -1 << 20, long, watches.Persistent, true, 1 + 2},
		{"of an address that owes as much as it may", 0, "/short", watches.Persistent, true, 1},
		{"of an address that owes more", 1, "/short", watches.Persistent, false, maxTells},
	} {
		s, c := quiet(t, Bounds{}, 0, 0)
		must.That(t, s.Add(c, x.path, x.kind), "no room")
		c.From.Account.Charge(s.shares.Of(budget.Debt) + x.owed)
		before := c.From.Account.Owed()
		if x.kind == watches.Recursive {
			x.path += "/er"
		}
		s.Tell(1, []tree.Event{{Type: jute.EventDataChanged, Path: x.path, ACL: acl.New(jute.WorldAnyone)}})
		expect.Equal(t, c.Out.IsOpen(), x.open, "%s: c.Out.IsOpen()", x.name)
		expect.Equal(t, c.Out.Look().Frames == 1, x.open, "%s: c.Out.Look().Frames == 1", x.name)
		expect.Equal(t, c.From.Account.Owed()-before, x.cost, "%s costs", x.name)
		expect.Equal(t, c.From.change.steps, 0, "%s: c.From.change.steps", x.name)
		if expect.Equal(t, len(s.told), 0, "%s: len(s.told)", x.name) {
			expect.That(t, s.event == nil,
				"%s: not settled: want s.event == nil", x.name)
		}
		if x.open {
			b, _ := c.Out.Empty()
			f := must.Get(wire.DecodeFrame(b[4:]))(t)
			if expect.That(t, f.Event != nil, "%s: %+v: want f.Event != nil", x.name, f) {
				expect.Equal(t, f.Event.Path, x.path, "%s: f.Event.Path", x.name)
				expect.Equal(t, f.Zxid, 1, "%s: f.Zxid", x.name)
			}
		}
	}
}

// The table finds and counts the watches of a connection and the connections that watch a path.
func TestWatchesAreFoundAndCounted(t *testing.T) {
	s, a := quiet(t, Bounds{}, 0, 0)
	b := connFrom(s, new(Address))
	for _, w := range []struct {
		c    *Watcher
		path string
		kind watches.Kind
	}{{a, "/a", watches.Data}, {b, "/a", watches.Data}, {b, "/b", watches.Child}} {
		must.That(t, s.Add(w.c, w.path, w.kind), "no room")
	}
	f := s.Figures()
	expect.That(t, f.Bytes > 0, "no bytes")
	f.Bytes = 0
	expect.Equal(t, f, Figures{Conns: 2, Paths: 1, Watches: 2, All: 3})
	expect.Equal(t, fmt.Sprint(s.Of(a), s.Of(b), s.Has(a, "/a"), s.Has(a, "/b")), "1 2 true false")
	found := map[*Watcher]string{}
	for from, more := uint32(0), true; more; more = from != 0 {
		from = s.Scan(from, 1, func(path string, c *Watcher) { found[c] += path })
	}
	expect.Equal(t, fmt.Sprint(len(found), found[a], found[b]), "2/a/a")
	_, bytes := s.table.Of(b)
	expect.Equal(t, s.Largest([]*Watcher{a, b}), bytes)
	const data = jute.WatcherData
	expect.That(t, s.Find(a, jute.OpCheckWatches, "/a", data), "a watch is not found")
	expect.That(t, s.Find(a, jute.OpRemoveWatches, "/a", data), "a watch is not removed")
	expect.That(t, !s.Find(a, jute.OpCheckWatches, "/a", data), "a removed watch is found")
	s.Reset()
	expect.Equal(t, s.Figures(), Figures{})
}
