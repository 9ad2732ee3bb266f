package clients

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/watches"
)

// Requests are charged: a write what its outcome says, however long it was, a read by its
// path, its answer and the identities of its client, and each watch that setWatches sets.
func TestRequestsAreCharged(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	account := func() *budget.Account {
		for _, c := range r.srv.all() {
			return &c.from.Account
		}
		t.Fatal("no connection")
		return nil
	}()
	var ops []wire.Op
	var paths, deep []string
	for i := range 1000 {
		ops = append(ops, wire.Op{Type: jute.OpCheck, Body: wire.PathVersion("/", -1)})
		paths = append(paths, fmt.Sprint("/w", i))
		deep = append(deep, fmt.Sprint(strings.Repeat("/d", 300), i))
	}
	acl := make([]jute.ACL, 900)
	for i := range acl {
		acl[i] = jute.ACL{Perms: 31, ID: jute.ID{Scheme: "ip", ID: fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}
	}
	call(t, c, jute.OK, jute.OpCreate, wire.Create("/acl", nil, append(acl, jute.WorldAnyone...), 0))
	r.srv.shares.Settle(account, 1000*time.Hour) // nothing is paid during this test
	for name, x := range map[string]struct {
		op          jute.OpCode
		body        []byte
		least, most int64
	}{
		"ping":         {jute.OpPing, nil, request.PlainSteps, request.PlainSteps},
		"exists":       {jute.OpExists, wire.PathWatch("/", false), 1, 20},
		"sync":         {jute.OpSync, wire.Path("/"), 1, 20},
		"multi":        {jute.OpMulti, wire.Multi(ops...), 2500, 2700},
		"deep":         {jute.OpExists, wire.PathWatch(strings.Repeat("/a", 1000), false), 280, 300},
		"watch":        {jute.OpExists, wire.PathWatch("/w", true), 10, 12},
		"watches":      {jute.OpSetWatches, wire.SetWatches(1<<60, nil, paths, nil), 10_000, 11_000},
		"deep watches": {jute.OpSetWatches, wire.SetWatches(1<<60, nil, deep, nil), 100_000, 120_000},
		"refused":      {jute.OpCreate, wire.Create("no slash", nil, make([]jute.ACL, 50_000), 0), 6_000, 6_100},
		"not a multi":  {jute.OpMulti, wire.Multi(ops...)[:17_000], 170, 200},
		"long ACL":     {jute.OpGetACL, wire.Path("/acl"), 250, 300},
		"multiRead": {jute.OpMultiRead,
			wire.Multi(slices.Repeat([]wire.Op{{Type: jute.OpGetData, Body: wire.PathWatch("/", false)}}, 1000)...),
			2500, 4500},
	} {
		before := account.Owed()
		must.Get(c.Call(x.op, x.body))(t)
		must.OK(t, c.Ping()) // a read may be charged just after its reply
		if got := account.Owed() - before - request.PlainSteps; got < x.least || got > x.most {
			t.Errorf("%s costs %d steps, want %d to %d", name, got, x.least, x.most)
		}
	}
}

// A watcher pays for the search of its identities in the ACL of the node.
func TestWatchersPayForTheirIdentities(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	from := &r.srv.all()[0].from.Account
	r.srv.shares.Settle(from, 1000*time.Hour) // nothing is paid during this test
	must.Get(c.Create("/n", nil, 0))(t)
	cost := func() int64 {
		must.OK(t, c.AddWatch("/n", jute.AddWatchPersistent))
		before := from.Owed()
		must.Get(c.Call(jute.OpSetData, wire.SetData("/n", nil, -1)))(t)
		must.OK(t, c.Ping())
		return from.Owed() - before
	}
	few := cost()
	for i := range 50 {
		must.Get(c.Call(jute.OpAuth, wire.Auth("digest", fmt.Sprintf("%d:p", i))))(t)
	}
	// The ACL is asked for the right to write, and for that to hear of it.
	if more := cost() - few; more < 45 || more > 60 {
		t.Errorf("50 identities cost %d steps more", more)
	}
}

// If the watchers of an address cost too much, the server sends them no further events and closes their
// connections.
func TestWatchersOfAnAddressAreBounded(t *testing.T) {
	s := must.Get(New(options.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	watcher := func(from *address) *conn {
		c := newConn(&s.shared, &net.TCPConn{}, nil)
		c.from, c.watcher.From = from, &from.Address
		c.proof.ids.Store(identity.Unproved("127.0.0.1", false))
		s.watches.Add(&c.watcher, "/a", watches.Persistent)
		return c
	}
	bad, good := new(address), new(address)
	victim := watcher(good)
	list := make([]*conn, 60)
	for i := range list {
		list[i] = watcher(bad)
	}
	events := make([]tree.Event, 20_000)
	for i := range events {
		events[i] = tree.Event{Type: jute.EventDataChanged, Path: "/a", ACL: acl.New(jute.WorldAnyone)}
	}
	s.Events(1, events)
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
	must.OK(t, s.Shutdown(t.Context()))
}

// The watches of an address leave it less memory for frames. Other addresses keep their share.
func TestAnAddressHasOneAccountOfMemory(t *testing.T) {
	s := must.Get(New(options.Options{Logger: slog.New(slog.DiscardHandler), MaxWatchBytesPerConn: 10 << 20}))(t)
	defer s.Shutdown(t.Context())
	conns := func(from *address) (list [3]*conn) {
		for i := range list {
			list[i] = newConn(&s.shared, &net.TCPConn{}, nil)
			list[i].from = from
		}
		return list
	}
	bad, good := conns(new(address)), conns(new(address))
	bad[0].from.Account.SetWatches(15 << 20)
	expect.That(t, s.memory.Try(bad[0], budget.Input, 4<<20, false), "there was room")
	expect.That(t, !s.memory.Try(bad[1], budget.Input, 2<<20, false), "15 MiB and twice 6, of 20")
	expect.That(t, s.memory.Try(good[0], budget.Input, 8<<20, false),
		"another address has no room: want s.memory.Try(good[0], budget.Input, 8<<20, false)")
	expect.That(t, s.memory.Try(good[1], budget.Output, 2<<20,
		false),
		"another address has no room: want s.memory.Try(good[1], budget.Output, 2<<20, false)")
	s.memory.Drop(bad[0])
	expect.That(t, s.memory.Try(bad[1], budget.Input, 2<<20, false),
		"%d bytes, after all was given back: want s.memory.Try(bad[1], budget.Input, 2<<20, false)",
		bad[1].from.Account.Buffers())
	expect.Equal(t, bad[1].from.Account.Buffers(), 2<<20,
		"%d bytes, after all was given back: bad[1].from.Account.Buffers()",
		bad[1].from.Account.Buffers())

	// Once the watches have fired, a waiting connection gets their memory.
	granted := make(chan bool, 1)
	go func() { granted <- s.memory.Wait(bad[2], budget.Input, 4<<20) }()
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

// A connection that ends gives the memory of its watches back to the address.
func TestWatchesOfAConnectionAreGivenBack(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	from := r.srv.all()[0].from
	for i := range 2 * watchers.WatchStep / 1000 {
		must.Get(c.Call(jute.OpExists, wire.PathWatch(fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 1000)), true)))(t)
	}
	expect.That(t, from.Account.Watches() >= watchers.WatchStep, "the address has %d bytes of watches",
		from.Account.Watches())
	must.OK(t, c.CloseSession())
	must.Await(t, "the address still has them", 30*time.Second,
		func() bool { return from.Account.Watches() == 0 })
}

// A request that waits for its address is counted once, however long it waits.
func TestAWaitForTheAddressIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock pays
		s := must.Get(New(options.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
		defer s.Shutdown(t.Context())
		c := newConn(&s.shared, &net.TCPConn{}, nil)
		c.from = new(address)
		c.reader.arrived = s.now()
		s.shares.Settle(&c.from.Account, c.reader.arrived)
		owe(c.from, s.shares.Of(budget.Burst)+s.shares.Of(20*time.Millisecond))
		expect.That(t, c.afford(1), "the connection is open")
		expect.Equal(t, s.metrics.Throttled.Load(), 1, "waits")
		c.reader.arrived = s.now()
		expect.That(t, c.afford(1), "the connection is open")
		expect.Equal(t, s.metrics.Throttled.Load(), 1, "waits, as the second one has room")
	})
}

// The cost of an address is limited as long as its number of connections is limited, even if that setting
// changes.
func TestBoundOfAnAddressChanges(t *testing.T) {
	s := must.Get(New(options.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	defer s.Shutdown(t.Context())
	from := new(address)
	s.perAddr["a"] = from
	most := 2 * s.o.MaxWatchBytesPerConn
	expect.That(t, !s.shares.Room(&from.Account, most), "an address has the memory of all")
	s.Change(options.Options{MaxConnsPerAddr: -1})
	expect.That(t, s.shares.Room(&from.Account, most),
		"an address that is trusted has a bound: want s.shares.Room(&from.Account, most)")
	expect.That(t, s.shares.Of(time.Second) > 1<<50,
		"an address that is trusted has a bound: want s.shares.Of(time.Second) > 1<<50")
	owe(from, 1<<40)
	s.Change(options.Options{MaxConnsPerAddr: 60})
	expect.That(t, !s.shares.Room(&from.Account, most),
		"an address has no bound again: want !s.shares.Room(&from.Account, most)")
	expect.That(t, s.shares.Of(time.Second) < 1<<30,
		"an address has no bound again: want s.shares.Of(time.Second) < 1<<30")
	expect.Equal(t, from.Account.Owed(), 0, "it owes what it was trusted with")
}

// An address without connections is remembered until it owes nothing.
func TestDebtsOutliveConnections(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	from := r.srv.all()[0].from
	owe(from, 1<<40)
	c.Close()
	must.Await(t, "the connection stays", 30*time.Second, func() bool { return len(r.srv.all()) <= 0 })
	r.srv.mu.Lock()
	known := r.srv.perAddr[from.Host]
	r.srv.mu.Unlock()
	expect.Equal(t, known, from, "the debt is forgotten")
	owe(from, 0)
	r.srv.mu.Lock()
	r.srv.forget(from)
	known = r.srv.perAddr[from.Host]
	r.srv.mu.Unlock()
	expect.That(t, known == nil, "an address that owes nothing is kept")
}

// A request that waits for its address ends with its connection.
func TestWaitForTheAddressEndsWithTheConnection(t *testing.T) {
	s, c := quiet(t, options.Options{})
	c.reader.arrived = s.now()
	s.shares.Settle(&c.from.Account, 1000*time.Hour) // nothing is paid during this test
	burst := s.shares.Of(budget.Burst)
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
	expect.Equal(t, s.shares.Servers(), 0, "members of a cluster without any")
	s.shares.SetServers(3)
	s.countServers(g)
	expect.Equal(t, s.shares.Servers(), 3,
		"they are counted again at once: s.shares.Servers()")
	expect.Equal(t, g.n.Load(), 1, "they are counted again at once: g.n.Load()")
}

// owe makes an address owe exactly this number of steps.
func owe(from *address, steps int64) { from.Account.Charge(steps - from.Account.Owed()) }

// unpaid clears the debt of a client's address, stops its payments, and returns its account.
func unpaid(r *rig, c *wire.Conn) *budget.Account {
	a := &r.srv.connOf(c.Session.ID).from.Account
	r.srv.shares.Settle(a, math.MaxInt64)
	a.Forgive()
	return a
}

// An address pays for every request of its clients, even for a request that takes no lock.
func TestAnAddressPaysForEveryRequest(t *testing.T) {
	r := newRig(t, options.Options{SASL: &sasl.Mechanisms{Users: saslUsers}})
	for name, x := range map[string]struct {
		op   jute.OpCode
		body wire.Body
	}{
		"ping":     {jute.OpPing, nil},
		"whoAmI":   {jute.OpWhoAmI, nil},
		"auth":     {jute.OpAuth, wire.Auth("digest", "a:b")},
		"sasl":     {jute.OpSASL, wire.Body{}.Buf(nil)},
		"check":    {jute.OpCheck, wire.PathVersion("/", -1)},
		"exists":   {jute.OpExists, wire.PathWatch("/", false)},
		"set":      {jute.OpSetData, wire.SetData("/", nil, -1)},
		"watches":  {jute.OpSetWatches, wire.SetWatches(0, []string{"/"}, nil, nil)},
		"reconfig": {jute.OpReconfig, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.client()
			owed := unpaid(r, c)
			must.Get(c.Send(x.op, x.body))(t)
			must.Get(c.Next())(t)
			eventually(t, "charged", func() bool { return owed.Owed() > 0 })
		})
	}
}

// An address also pays for connections that get no session, and for TLS handshakes.
func TestAnAddressPaysForItsConnections(t *testing.T) {
	r, dial := secureRig(t, options.Options{})
	c := r.client()
	owed := unpaid(r, c)
	wrong := c.Session
	wrong.Password = bytes.Repeat([]byte{1}, jute.PasswordSize)
	must.Fails(t, r.dial().Connect(wire.Attach(wrong, 0)), "a wrong password is taken")
	expect.That(t, owed.Owed() > 0, "a refused session costs nothing")
	owed.Forgive()
	dial()
	expect.That(t, owed.Owed() >= request.HandshakeSteps, "a TLS handshake costs %d steps", owed.Owed())
}
