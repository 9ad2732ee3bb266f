package conn

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/watches"
)

// If the watchers of an address cost too much, the server sends them no further events and closes their
// connections.
func TestWatchersOfAnAddressAreBounded(t *testing.T) {
	s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler)})
	watcher := func(from *address) *Conn {
		c := newConn(s, &net.TCPConn{}, nil)
		c.from, c.watcher.From = from, &from.Address
		c.proof.IDs.Store(identity.Unproved("127.0.0.1", false))
		s.Watches.Add(&c.watcher, "/a", watches.Persistent)
		return c
	}
	bad, good := new(address), new(address)
	victim := watcher(good)
	list := make([]*Conn, 60)
	for i := range list {
		list[i] = watcher(bad)
	}
	events := make([]tree.Event, 20_000)
	for i := range events {
		events[i] = tree.Event{Type: jute.EventDataChanged, Path: "/a", ACL: acl.New(jute.WorldAnyone)}
	}
	s.Watches.Tell(1, events)
	open := 0
	for _, c := range list {
		if c.out.IsOpen() {
			open++
		}
	}
	expect.Equal(t, open, 0,
		"%d of 60 go on, the other client was told of %d events: open",
		open, victim.out.Look().Frames)
	expect.That(t, victim.out.IsOpen(),
		"%d of 60 go on, the other client was told of %d events: want victim.out.IsOpen()",
		open, victim.out.Look().Frames)
	expect.Equal(t, victim.out.Look().Frames, len(events),
		"%d of 60 go on, the other client was told of %d events: victim.out.Look().Frames",
		open, victim.out.Look().Frames)
	expect.Equal(t, bad.Account.Owed(), watchers.MaxTells, "steps of those who are closed")
	expect.That(t, good.Account.Owed() > int64(len(events)/watchers.TellsInStep) &&
		good.Account.Owed() < int64(len(events)),
		"the other is charged %d steps", good.Account.Owed())
}

// The watches of an address reduce the memory that the address may use for frames. Other addresses keep their
// share.
func TestAnAddressHasOneAccountOfMemory(t *testing.T) {
	s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler), MaxWatchBytesPerConn: 10 << 20})
	conns := func(from *address) (list [3]*Conn) {
		for i := range list {
			list[i] = newConn(s, &net.TCPConn{}, nil)
			list[i].from = from
		}
		return list
	}
	bad, good := conns(new(address)), conns(new(address))
	bad[0].from.Account.SetWatches(15 << 20)
	expect.That(t, s.Memory.Try(bad[0], budget.Input, 4<<20, false), "there was room")
	expect.That(t, !s.Memory.Try(bad[1], budget.Input, 2<<20, false), "15 MiB and twice 6, of 20")
	expect.That(t, s.Memory.Try(good[0], budget.Input, 8<<20, false),
		"another address has no room: want s.memory.Try(good[0], budget.Input, 8<<20, false)")
	expect.That(t, s.Memory.Try(good[1], budget.Output, 2<<20,
		false),
		"another address has no room: want s.memory.Try(good[1], budget.Output, 2<<20, false)")
	s.Memory.Drop(bad[0])
	expect.That(t, s.Memory.Try(bad[1], budget.Input, 2<<20, false),
		"%d bytes, after all was given back: want s.memory.Try(bad[1], budget.Input, 2<<20, false)",
		bad[1].from.Account.Buffers())
	expect.Equal(t, bad[1].from.Account.Buffers(), 2<<20,
		"%d bytes, after all was given back: bad[1].from.Account.Buffers()",
		bad[1].from.Account.Buffers())

	// After the watches have fired, a waiting connection gets the memory that they had.
	granted := make(chan bool, 1)
	go func() { granted <- s.Memory.Wait(bad[2], budget.Input, 4<<20) }()
	select {
	case ok := <-granted:
		if expect.That(t, ok, "granted: %v: want ok", ok) {
			expect.Equal(t, bad[0].from.Account.Watches(), 0,
				"granted: bad[0].from.Account.Watches()")
		}
	case <-time.After(30 * time.Second):
		t.Error("waits for watches that have fired")
	}
}

// A request that waits because of its address's debt is counted once, however long it waits.
func TestAWaitForTheAddressIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the virtual clock pays the debt
		s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler)})
		c := newConn(s, &net.TCPConn{}, nil)
		c.from = new(address)
		c.reader.arrived = s.Now()
		s.Shares.Settle(&c.from.Account, c.reader.arrived)
		owe(c.from, s.Shares.Of(budget.Burst)+s.Shares.Of(20*time.Millisecond))
		expect.That(t, c.afford(1), "the connection is open")
		expect.Equal(t, s.Metrics.Throttled.Load(), 1, "waits")
		c.reader.arrived = s.Now()
		expect.That(t, c.afford(1), "the connection is open")
		expect.Equal(t, s.Metrics.Throttled.Load(), 1, "waits, as the second one has room")
	})
}

// As long as the number of connections from an address is limited, the cost of the address is limited, too.
// The limit of connections may change.
func TestBoundOfAnAddressChanges(t *testing.T) {
	s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler)})
	from := new(address)
	s.perAddr["a"] = from
	most := 2 * s.Options.MaxWatchBytesPerConn
	expect.That(t, !s.Shares.Room(&from.Account, most), "an address has the memory of all")
	s.Change(options.Options{MaxConnsPerAddr: -1})
	expect.That(t, s.Shares.Room(&from.Account, most),
		"an address that is trusted has a bound: want s.shares.Room(&from.Account, most)")
	expect.That(t, s.Shares.Of(time.Second) > 1<<50,
		"an address that is trusted has a bound: want s.shares.Of(time.Second) > 1<<50")
	owe(from, 1<<40)
	s.Change(options.Options{MaxConnsPerAddr: 60})
	expect.That(t, !s.Shares.Room(&from.Account, most),
		"an address has no bound again: want !s.shares.Room(&from.Account, most)")
	expect.That(t, s.Shares.Of(time.Second) < 1<<30,
		"an address has no bound again: want s.shares.Of(time.Second) < 1<<30")
	expect.Equal(t, from.Account.Owed(), 0, "it owes what it was trusted with")
}

// A request may wait until its address's debt is paid. The wait ends when the request's connection ends.
func TestWaitForTheAddressEndsWithTheConnection(t *testing.T) {
	s, c := quiet(t, options.Options{})
	c.reader.arrived = s.Now()
	s.Shares.Settle(&c.from.Account, 1000*time.Hour) // so far in the future that nothing more is paid
	burst := s.Shares.Of(budget.Burst)
	owe(c.from, burst-1)
	expect.That(t, c.afford(5), "within the burst")
	expect.Equal(t, c.from.Account.Owed(), burst+4)
	c.out.Die(ends.Moved)
	expect.That(t, !c.afford(1), "beyond it, and the connection has ended")
	expect.Equal(t, c.from.Account.Owed(), burst+4, "a request that is not carried out is charged")
	s.Change(options.Options{MaxConnsPerAddr: -1})
	expect.That(t, c.afford(1<<40), "an address that is trusted waits")
	expect.Equal(t, c.from.Account.Owed(), burst+4, "an address that is trusted is charged")
}

// A server counts the running members of the cluster, and does not repeat the count at once.
func TestServersThatShareAreCounted(t *testing.T) {
	s, _ := quiet(t, options.Options{})
	g := &glances{Replica: still{state.New("test")}}
	s.countServers(g)
	expect.Equal(t, g.n.Load(), 1, "looks at the members")
	expect.Equal(t, s.Shares.Servers(), 0, "members of a cluster without any")
	s.Shares.SetServers(3)
	s.countServers(g)
	expect.Equal(t, s.Shares.Servers(), 3,
		"they are counted again at once: s.shares.Servers()")
	expect.Equal(t, g.n.Load(), 1, "they are counted again at once: g.n.Load()")
}

// While an outbox is being written, its connection ends, just before or just after Reserve takes memory for a
// long reply. When the write has ended, here with an error, all of that memory must be free.
func TestMemoryReservedByAConnectionThatEndsIsFree(t *testing.T) {
	for name, end := range map[string]func(*Conn) bool{
		"before": func(c *Conn) bool { c.out.Close(ends.Moved); return c.out.Reserve(1<<20, true) },
		"after":  func(c *Conn) bool { defer c.out.Close(ends.Moved); return !c.out.Reserve(1<<20, true) },
	} {
		s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler)})
		client, server := net.Pipe()
		c := newConn(s, server, nil)
		c.out.Pretend(true, false, 100<<10, 0)
		expect.That(t, !end(c), "%s: wrong about the end of the connection", name)
		s.Memory.Drop(c)
		c.out.Write() // the client is gone: this ends the flush
		expect.Equal(t, s.Memory.Used(), 0, "%s: bytes that are held", name)
		client.Close()
	}
}

// A reply to a multiRead allocates nothing large under the state lock, because Reserve has allocated its
// buffer.
func TestReservedMemoryIsThereBeforeTheStateLock(t *testing.T) {
	s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler)})
	client, server := net.Pipe()
	defer client.Close()
	c := newConn(s, server, nil)
	const size = 1 << 20
	expect.That(t, c.out.Reserve(size, true),
		"%d bytes are there, %d are held: want c.out.Reserve(size, true)",
		cap(c.out.Look().Buf), c.out.Look().Held)
	expect.That(t, cap(c.out.Look().Buf) >= size,
		"%d bytes are there, %d are held: want cap(c.out.Look().Buf) >= size",
		cap(c.out.Look().Buf), c.out.Look().Held)
	if expect.Equal(t, len(c.out.Look().Buf), 0,
		"%d bytes are there, %d are held: len(c.out.Look().Buf)", cap(c.out.Look().Buf), c.out.Look().Held) {
		expect.That(t, c.out.Look().Held >= size,
			"%d bytes are there, %d are held: want c.out.Look().Held >= size",
			cap(c.out.Look().Buf), c.out.Look().Held)
	}
}

// One multi may cause many events of a node with a long ACL, for clients with many identities. The log waits
// while the server sends these events. So it must not search the ACL for the identities at each event.
func TestEventsOfALongACLAreToldAsFast(t *testing.T) {
	long := make([]jute.ACL, 1000)
	for i := range long {
		long[i] = jute.ACL{Perms: jute.PermRead, ID: acl.DigestID(fmt.Sprintf("%02d:y%d", i%100, i))}
	}
	told := func(list []jute.ACL) (least time.Duration) {
		s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler)})
		for range 20 {
			c := newConn(s, &net.TCPConn{}, nil)
			ids := make([]jute.ID, identity.MaxIDs)
			for i := range ids {
				ids[i] = acl.DigestID(fmt.Sprintf("%02d:x", i))
			}
			ids[identity.MaxIDs-1] = list[len(list)-1].ID
			c.proof.IDs.Store(&ids)
			s.Watches.Add(&c.watcher, "/a", watches.Persistent)
		}
		events := slices.Repeat([]tree.Event{{Type: jute.EventDataChanged, Path: "/a", ACL: acl.New(list)}}, 500)
		least = time.Hour
		for zxid := range int64(5) {
			began := time.Now()
			s.Watches.Tell(zxid, events)
			least = min(least, time.Since(began))
		}
		expect.Equal(t, s.Watches.Asked(), 0, "answers are kept")
		_, told := s.Outboxes.Due()
		for _, o := range told {
			expect.Equal(t, o.Look().Frames, 5*500, "frames of events")
		}
		return least
	}
	var few, many time.Duration
	for range 10 { // measure again if another program has delayed one of the two
		if few, many = told(jute.WorldAnyone), told(long); many <= 20*few {
			return
		}
	}
	t.Errorf("a thousand entries: %v, one: %v", many, few)
}

// An address without connections is remembered until it owes nothing.
func TestDebtsOutliveConnections(t *testing.T) {
	s, _ := quiet(t, options.Options{})
	c := newFrom(s, "a")
	must.That(t, s.add(c), "added")
	owe(c.from, 1<<40)
	c.finish(ends.Client)
	s.wg.Done() // in place of the connection's goroutine, which this test does not start
	expect.Equal(t, len(s.All()), 0, "connections")
	s.mu.Lock()
	defer s.mu.Unlock()
	expect.Equal(t, s.perAddr["a"], c.from, "the debt is forgotten")
	owe(c.from, 0)
	s.forget(c.from)
	expect.That(t, s.perAddr["a"] == nil, "an address that owes nothing is kept")
}
