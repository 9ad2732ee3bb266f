package watchers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/watches"
)

// heardOf returns the events that wait in an outbox, and empties it.
func heardOf(t *testing.T, c *Watcher) (list []string) {
	t.Helper()
	b, frames := c.Out.Empty()
	for len(b) > 0 {
		n := int(b[2])<<8 | int(b[3])
		f := must.Get(wire.DecodeFrame(b[4 : 4+n]))(t)
		must.That(t, f.Event != nil, "a frame is no event")
		list = append(list, fmt.Sprint(f.Zxid, " ", f.Event.Type, " ", f.Event.Path))
		b = b[4+n:]
	}
	expect.Equal(t, len(list), frames, "frames")
	return list
}

// Each connection gets the events that it would get if the server sent them one by one: in their order, each
// once, and none of a node that the client may not read. The test draws watches and changes at random.
func TestPortionsAgainstOneEventAfterTheOther(t *testing.T) {
	acls := []*acl.Set{acl.New(jute.WorldAnyone), acl.New(jute.WorldAnyone)}
	for i := range 3 {
		acls = append(acls, acl.New([]jute.ACL{{Perms: jute.PermRead, ID: jute.ID{Scheme: "digest",
			ID: fmt.Sprint("user", i)}}}))
	}
	paths := []string{"/"}
	for _, a := range []string{"/a", "/b"} {
		for _, b := range []string{"", "/c", "/c/" + strings.Repeat("d", 500), "/c/d/e", "/f"} {
			paths = append(paths, a+b)
		}
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		s, _ := quiet(t, Bounds{}, 1000, 0)
		simple := watches.New[int]() // a simpler table of the same watches
		conns := make([]*Watcher, 8)
		from := new(Address)
		for i := range conns {
			conns[i] = connFrom(s, from)
			ids := slices.Clone(*conns[i].IDs.Load())
			for u := range r.IntN(8) { // few identities, or so many that mayRead keeps its answers
				ids = append(ids, jute.ID{Scheme: "digest", ID: fmt.Sprint("user", 3*r.IntN(2)+u)})
			}
			conns[i].IDs.Store(&ids)
		}
		want := make([][]string, len(conns))
		for zxid := range int64(5) {
			for range r.IntN(20) {
				c, path, kind := r.IntN(len(conns)), paths[r.IntN(len(paths))], watches.Kind(r.IntN(4))
				must.That(t, s.Add(conns[c], path, kind), "no room for a watch")
				simple.Add(c, path, kind)
			}
			var events []tree.Event
			for range 1 + r.IntN(2)*r.IntN(2000) {
				e := tree.Event{Type: jute.EventType(1 + r.IntN(4)), Path: paths[r.IntN(len(paths))],
					ACL: acls[r.IntN(len(acls))]}
				events = append(events, e)
				simple.Fire(e.Type, e.Path, func(c int) {
					if e.ACL.Allows(*conns[c].IDs.Load(), jute.PermRead) {
						want[c] = append(want[c], fmt.Sprint(zxid, " ", e.Type, " ", e.Path))
					}
				})
			}
			s.Tell(zxid, events)
			if r.IntN(2) == 0 {
				continue
			}
			for i, c := range conns {
				got := heardOf(t, c)
				must.That(t, slices.Equal(got, want[i]), "seed %d, connection %d: %d events, want %d",
					seed, i, len(got), len(want[i]))
				want[i] = nil
				must.Equal(t, c.Out.Look().Lent, 0, "seed %d: c.Out.Look().Lent", seed)
				must.Equal(t, c.hears, 0, "seed %d: c.hears", seed)
			}
		}
		for _, c := range conns {
			heardOf(t, c)
			c.Out.Hold(false)
		}
		must.Equal(t, s.outboxes.Memory.Used()+int(from.Account.Buffers()), 0, "bytes are held")
		w := s
		must.Equal(t, len(w.hears)+len(w.deep)+len(w.deepOf)+len(w.told)+w.runs+len(w.events), 0,
			"left of a change")
	}
}

// If there is no room for events, the server closes the connection that has not read for the longest time. If
// all connections read, it closes the one that would get the events.
func TestNonReadersMakeRoomForEvents(t *testing.T) {
	s, deaf := quiet(t, Bounds{BytesPerConn: 100_000}, 0, 100_000)
	c := connFrom(s, deaf.From)
	must.That(t, s.Add(c, "/", watches.Recursive), "no room for a watch")
	tell := func() {
		events := make([]tree.Event, 1000)
		for i := range events {
			events[i] = tree.Event{Type: jute.EventDeleted, Path: fmt.Sprint("/", i),
				ACL: acl.New(jute.WorldAnyone)}
		}
		s.Tell(1, events)
	}
	must.That(t, s.outboxes.Keep(deaf.Out.Owner(), budget.Output, 80_000), "no memory")
	tell()
	expect.That(t, !deaf.Out.IsOpen(),
		"the connection that does not read is there: want !deaf.Out.IsOpen()")
	expect.Equal(t, deaf.Out.Look().Why, ends.Slow,
		"the connection that does not read is there: deaf.Out.Look().Why")
	expect.That(t, c.Out.IsOpen(), "the other has %d events: want c.Out.IsOpen()", c.Out.Look().Frames)
	expect.Equal(t, c.Out.Look().Frames, 1000,
		"the other has %d events: c.Out.Look().Frames", c.Out.Look().Frames)
	other := connFrom(s, deaf.From)
	must.That(t, s.outboxes.Memory.Try(other.Out.Owner(), budget.Input, 60_000, true), "no memory")
	tell()
	expect.That(t, other.Out.IsOpen(), "a connection that gets on is closed")
	expect.That(t, !c.Out.IsOpen(), "events beyond all bounds are kept: want !c.Out.IsOpen()")
	expect.Equal(t, c.Out.Look().Why, ends.Slow, "events beyond all bounds are kept: c.Out.Look().Why")
}

// If a portion of events is larger than all memory for buffers, it is sent while nothing else is held.
// Otherwise its watchers would never get the events.
func TestPortionLargerThanAllMemoryGoesOutAlone(t *testing.T) {
	for held, open := range map[int]bool{0: true, 1: false} {
		s, c := quiet(t, Bounds{}, 0, 10_000)
		must.That(t, s.Add(c, "/", watches.Recursive), "no room for a watch")
		other := connFrom(s, new(Address))
		must.That(t, s.outboxes.Memory.Try(other.Out.Owner(), budget.Input, held, true), "no memory")
		events := make([]tree.Event, 1000)
		for i := range events {
			events[i] = tree.Event{Type: jute.EventDeleted, Path: fmt.Sprint("/", i), ACL: acl.New(jute.WorldAnyone)}
		}
		s.Tell(1, events)
		expect.Equal(t, c.Out.IsOpen(), open, "beside %d bytes", held)
		expect.Equal(t, c.Out.Look().Frames == 1000, open, "events beside %d bytes", held)
	}
}

// The metrics count fired watches by the type of their event.
func TestFiredWatchesAreCounted(t *testing.T) {
	s, _ := quiet(t, Bounds{}, 0, 0)
	m := s.outboxes.Metrics
	var events []tree.Event
	size := 0
	for told, e := range []jute.EventType{jute.EventCreated, jute.EventDeleted, jute.EventDataChanged,
		jute.EventChildrenChanged} {
		path := fmt.Sprint("/", told)
		for range told + 1 {
			must.That(t, s.Add(connFrom(s, new(Address)), path, watches.Persistent), "no room")
		}
		size += (told + 1) * len(jute.AppendEventFrame(nil, 1, e, path))
		events = append(events, tree.Event{Type: e, Path: path, ACL: acl.New(jute.WorldAnyone)})
	}
	s.Tell(1, events)
	for i, r := range []*metrics.Recorder{&m.NodeCreatedWatch, &m.NodeDeletedWatch, &m.NodeChangedWatch,
		&m.NodeChildrenWatch} {
		got := r.Value(time.Now(), 1)
		expect.Equal(t, got.Count, 1, "watches of kind %d: got.Count", i)
		expect.Equal(t, got.Sum, float64(i+1), "watches of kind %d: got.Sum", i)
	}
	expect.Equal(t, m.WatchBytes.Load(), int64(size))
}

// Tell puts events into the outboxes of the clients. The flushers then write such an outbox, and the bytes
// that wait in it count as used memory.
func TestToldOutboxesAreWrittenAndCounted(t *testing.T) {
	s, c := quiet(t, Bounds{}, 0, 0)
	path := "/" + strings.Repeat("x", 1000)
	must.That(t, s.Add(c, path, watches.Persistent), "no room")
	for n := 0; n <= outbox.FlushSize; n += len(path) {
		s.Tell(1, []tree.Event{{Type: jute.EventDataChanged, Path: path, ACL: acl.New(jute.WorldAnyone)}})
		_, heard := s.outboxes.Due()
		expect.List(t, heard, []*outbox.Outbox{c.Out}, "outboxes to write")
	}
	expect.That(t, c.Out.Look().Held > outbox.FlushSize, "%d bytes are counted", c.Out.Look().Held)
}
