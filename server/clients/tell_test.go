package clients

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/watches"
)

// heard returns the events that wait in an outbox, and empties it.
func (o *outbox) heard(t *testing.T) (list []string) {
	t.Helper()
	frames := o.frames
	for o.size() > 0 {
		p, _ := o.take()
		for b := p.b; len(b) > 0; {
			n := int(b[2])<<8 | int(b[3])
			f := must.Get(wire.DecodeFrame(b[4 : 4+n]))(t)
			must.That(t, f.Event != nil, "a frame is no event")
			list = append(list, fmt.Sprint(f.Zxid, " ", f.Event.Type, " ", f.Event.Path))
			b = b[4+n:]
		}
		o.give(p)
	}
	expect.Equal(t, len(list), frames, "frames")
	return list
}

// Whatever is watched and changed, each connection gets the events that it would get were it told of one after
// the other: in their order, each once, and none of a node that its client may not read.
func TestPortionsAgainstOneEventAfterTheOther(t *testing.T) {
	acls := []*tree.ACL{tree.NewACL(jute.WorldAnyone), tree.NewACL(jute.WorldAnyone)}
	for i := range 3 {
		acls = append(acls, tree.NewACL([]jute.ACL{{Perms: jute.PermRead, ID: jute.ID{Scheme: "digest",
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
		s, _ := quiet(t, Options{MaxConnsPerAddr: 1000})
		simple := watches.New[int]() // the same watches
		conns := make([]*conn, 8)
		from := new(address)
		for i := range conns {
			conns[i] = connFrom(s, from)
			ids := slices.Clone(*conns[i].proof.ids.Load())
			for u := range r.IntN(8) { // few, or so many that answers are kept
				ids = append(ids, jute.ID{Scheme: "digest", ID: fmt.Sprint("user", 3*r.IntN(2)+u)})
			}
			conns[i].proof.ids.Store(&ids)
		}
		want := make([][]string, len(conns))
		for zxid := range int64(5) {
			for range r.IntN(20) {
				c, path, kind := r.IntN(len(conns)), paths[r.IntN(len(paths))], watches.Kind(r.IntN(4))
				must.That(t, s.watches.add(conns[c], path, kind), "no room for a watch")
				simple.Add(c, path, kind)
			}
			var events []tree.Event
			for range 1 + r.IntN(2)*r.IntN(2000) {
				e := tree.Event{Type: jute.EventType(1 + r.IntN(4)), Path: paths[r.IntN(len(paths))],
					ACL: acls[r.IntN(len(acls))]}
				events = append(events, e)
				simple.Fire(e.Type, e.Path, func(c int) {
					if e.ACL.Allows(*conns[c].proof.ids.Load(), jute.PermRead) {
						want[c] = append(want[c], fmt.Sprint(zxid, " ", e.Type, " ", e.Path))
					}
				})
			}
			s.Events(zxid, events)
			if r.IntN(2) == 0 {
				continue
			}
			for i, c := range conns {
				got := c.out.heard(t)
				must.That(t, slices.Equal(got, want[i]), "seed %d, connection %d: %d events, want %d", seed, i, len(got),
					len(want[i]))
				want[i] = nil
				must.Equal(t, c.out.lent, 0, "seed %d: c.out.lent", seed)
				must.Equal(t, c.watching.hears, 0, "seed %d: c.watching.hears", seed)
			}
		}
		for _, c := range conns {
			c.out.heard(t)
			c.hold(false)
		}
		must.Equal(t, s.memory.Used()+int(from.account.Buffers()), 0, "bytes are held")
		w := &s.watches
		must.Equal(t, len(w.hears)+len(w.deep)+len(w.deepOf)+len(w.told)+w.runs+len(w.events), 0,
			"left of a change")
	}
}

// Clients that read get all events of however large a change, behind one address and at default settings. The
// events are kept once for all of them.
func TestAllWhoReadHearOfALargeChange(t *testing.T) {
	for _, x := range []struct {
		watchers, nodes int
		conns           int // that an address may have
		long            bool
	}{
		{20, 5_000, 0, false}, {40, 2_500, 0, true}, {20, 10_000, 0, true}, {2, 60_000, -1, true}, {2, 60_000, 0, true},
	} {
		t.Run(fmt.Sprintf("%d of %d nodes, %d", x.watchers, x.nodes, x.conns), func(t *testing.T) {
			if x.long && testing.Short() {
				t.Skip("the shortest of these is enough")
			}
			r := newRig(t, Options{MaxConnsPerAddr: x.conns})
			owner := r.client()
			create(t, owner, "/registry", "", 0)
			var watchers []*wire.Conn
			for range x.watchers {
				c := r.client()
				must.OK(t, c.AddWatch("/registry", jute.AddWatchRecursive))
				watchers = append(watchers, c)
			}
			var wg sync.WaitGroup
			for i, c := range watchers {
				wg.Go(func() {
					for _, want := range []jute.EventType{jute.EventCreated, jute.EventDeleted} {
						for n := range x.nodes {
							f, err := c.Next()
							if err != nil || f.Event == nil || f.Event.Type != want ||
								want == jute.EventCreated && f.Event.Path != fmt.Sprintf("/registry/server-%09d", n) {
								t.Errorf("watcher %d, event %d: %+v, %v", i, n, f, err)
								return
							}
						}
					}
				})
			}
			for n := 0; n < x.nodes; n += 500 {
				var p batch
				for i := range 500 {
					p.add(jute.OpCreate, wire.Create(fmt.Sprintf("/registry/server-%09d", n+i), nil, jute.WorldAnyone,
						jute.FlagEphemeral))
				}
				must.OK(t, owner.WriteRaw(p.b))
				for range 500 {
					must.Get(owner.Next())(t)
				}
			}
			must.OK(t, owner.CloseSession())
			wg.Wait()
			eventually(t, "all memory is given back", func() bool { return r.measured("buffer_bytes") == 0 })
		})
	}
}

// A client that does not read is closed however the events are kept; one beside it that reads is not.
func TestWatcherThatDoesNotReadIsClosed(t *testing.T) {
	r := newRig(t, Options{MaxOutboxFrames: 1000})
	owner, reads, deaf := r.client(), r.client(), r.client()
	for _, c := range []*wire.Conn{reads, deaf} {
		must.OK(t, c.AddWatch("/", jute.AddWatchRecursive))
	}
	var wg sync.WaitGroup
	heard := make(chan struct{})
	wg.Go(func() {
		defer close(heard)
		for f, err := reads.Next(); ; f, err = reads.Next() {
			if !expect.OK(t, err) || f.Event.Path == "/end" {
				return
			}
		}
	})
	name := strings.Repeat("x", 1000)
	for deadline := time.Now().Add(time.Minute); r.srv.counts.ends[ends.Slow].Load() == 0; {
		must.That(t, time.Now().Before(deadline), "the client that does not read is still there")
		c := r.client()
		var p batch
		for i := range 500 {
			p.add(jute.OpCreate, wire.Create(fmt.Sprint("/", name, i), nil, jute.WorldAnyone, jute.FlagEphemeral))
		}
		must.OK(t, c.WriteRaw(p.b))
		for range 500 {
			must.Get(c.Next())(t)
		}
		must.OK(t, c.CloseSession())
	}
	create(t, owner, "/end", "", 0)
	<-heard
	wg.Wait()
	expect.Equal(t, r.srv.counts.ends[ends.Slow].Load(), 1, "closed")
}

// Where there is no room for events, the connection that has not read for longest makes some; without one the
// connection that would get them is closed.
func TestNonReadersMakeRoomForEvents(t *testing.T) {
	s, deaf := quiet(t, Options{MaxWatchBytesPerConn: 100_000})
	c := connFrom(s, deaf.from)
	must.That(t, s.watches.add(c, "/", watches.Recursive), "no room for a watch")
	tell := func() {
		events := make([]tree.Event, 1000)
		for i := range events {
			events[i] = tree.Event{Type: jute.EventDeleted, Path: fmt.Sprint("/", i), ACL: tree.NewACL(jute.WorldAnyone)}
		}
		s.Events(1, events)
	}
	heldSinceLongAgo(t, deaf, budget.Output, 80_000)
	tell()
	expect.That(t, !deaf.isOpen(),
		"the connection that does not read is there: want !deaf.isOpen()")
	expect.Equal(t, deaf.out.why, ends.Slow,
		"the connection that does not read is there: deaf.out.why")
	expect.That(t, c.isOpen(), "the other has %d events: want c.isOpen()", c.out.frames)
	expect.Equal(t, c.out.frames, 1000,
		"the other has %d events: c.out.frames", c.out.frames)
	other := connFrom(s, deaf.from)
	must.That(t, s.memory.Try(other, budget.Input, 60_000, true), "no memory")
	tell()
	expect.That(t, other.isOpen(), "a connection that gets on is closed")
	expect.That(t, !c.isOpen(), "events beyond all bounds are kept: want !c.isOpen()")
	expect.Equal(t, c.out.why, ends.Slow, "events beyond all bounds are kept: c.out.why")
}
