package clients

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
)

// An address has a third of each second of the state lock, a server of three gives it
// a third of that, and what it has not used it may not use later.
func TestAnAddressHasAThirdOfTheLock(t *testing.T) {
	s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	defer s.Shutdown(t.Context())
	for _, servers := range []int64{1, 3} {
		s.servers.Store(servers)
		a := new(account)
		var spent int64
		const seconds = 100
		for now := time.Duration(0); now < seconds*time.Second; now += 5 * time.Millisecond {
			if now < seconds/2*time.Second {
				continue // the address asks for nothing
			}
			for a.settle(s, now) < s.share(burstTime) {
				a.owed.Add(1000)
				spent += 1000
			}
		}
		held, share := time.Duration(spent)*stepNanos, seconds/2*time.Second/lockShare/time.Duration(servers)
		expect.That(t, held >= share*9/10 && held <= share*11/10,
			"%d servers: the lock was held for %v in %d s", servers, held, seconds/2)
	}
}

// Where one address may have any number of connections, nothing that it asks for waits.
func TestTrustedAddressHasTheWholeLock(t *testing.T) {
	s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler), MaxConnsPerAddr: -1}))(t)
	defer s.Shutdown(t.Context())
	s.servers.Store(5)
	a := new(account)
	a.owed.Store(1 << 50)
	if owed := a.settle(s, time.Millisecond); owed != 0 {
		t.Errorf("the address owes %d steps", owed)
	}
	a.owed.Store(1 << 50)
	if owed := a.settle(s, time.Millisecond); owed >= s.share(burstTime) {
		t.Errorf("an address that owes %d steps waits", owed)
	}
}

// Requests are charged: a write what its outcome says, however long it was, a read by its
// path, its answer and the identities of its client, and each watch that setWatches sets.
func TestRequestsAreCharged(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	account := func() *account {
		for _, c := range r.srv.all() {
			return &c.from.account
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
	account.paid.Store(int64(1000 * time.Hour)) // nothing is paid during this test
	for name, x := range map[string]struct {
		op          jute.OpCode
		body        []byte
		least, most int64
	}{
		"ping":         {jute.OpPing, nil, plainSteps, plainSteps},
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
		before := account.owed.Load()
		must.Get(c.Call(x.op, x.body))(t)
		must.OK(t, c.Ping()) // a read may be charged just after its reply
		if got := account.owed.Load() - before - plainSteps; got < x.least || got > x.most {
			t.Errorf("%s costs %d steps, want %d to %d", name, got, x.least, x.most)
		}
	}
}

// A watcher pays for the search of its identities in the ACL of the node.
func TestWatchersPayForTheirIdentities(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	from := &r.srv.all()[0].from.account
	from.paid.Store(int64(1000 * time.Hour)) // nothing is paid during this test
	must.Get(c.Create("/n", nil, 0))(t)
	cost := func() int64 {
		must.OK(t, c.AddWatch("/n", jute.AddWatchPersistent))
		before := from.owed.Load()
		must.Get(c.Call(jute.OpSetData, wire.SetData("/n", nil, -1)))(t)
		must.OK(t, c.Ping())
		return from.owed.Load() - before
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

// An address whose watchers cost more than it may is told of no further events: they
// are closed, as all who cannot take an event are.
func TestWatchersOfAnAddressAreBounded(t *testing.T) {
	s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	watcher := func(from *address) *conn {
		c := newConn(s, &net.TCPConn{}, nil)
		c.from = from
		c.proof.ids.Store(identity.Unproved("127.0.0.1", false))
		s.watches.add(c, "/a", tree.Persistent)
		return c
	}
	bad, good := new(address), new(address)
	victim := watcher(good)
	watchers := make([]*conn, 60)
	for i := range watchers {
		watchers[i] = watcher(bad)
	}
	events := make([]tree.Event, 20_000)
	for i := range events {
		events[i] = tree.Event{Type: jute.EventDataChanged, Path: "/a", ACL: tree.NewACL(jute.WorldAnyone)}
	}
	s.Events(1, events)
	open := 0
	for _, c := range watchers {
		if c.isOpen() {
			open++
		}
	}
	expect.That(t, open == 0 && victim.isOpen() && victim.out.frames == len(events),
		"%d of 60 go on, the other client was told of %d events", open, victim.out.frames)
	expect.Equal(t, bad.owed.Load(), maxTells, "steps of those who are closed")
	expect.That(t, good.owed.Load() > int64(len(events)/tellsInStep) && good.owed.Load() < int64(len(events)),
		"the other is charged %d steps", good.owed.Load())
	must.OK(t, s.Shutdown(t.Context()))
}

// What an address holds in watches leaves it less for frames; other addresses get theirs.
func TestAnAddressHasOneAccountOfMemory(t *testing.T) {
	s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler), MaxWatchBytesPerConn: 10 << 20}))(t)
	defer s.Shutdown(t.Context())
	conns := func(from *address) (list [3]*conn) {
		for i := range list {
			list[i] = newConn(s, &net.TCPConn{}, nil)
			list[i].from = from
		}
		return list
	}
	bad, good := conns(new(address)), conns(new(address))
	bad[0].from.watches.Store(15 << 20)
	expect.That(t, s.memory.try(bad[0], inputPart, 4<<20, false), "there was room")
	expect.That(t, !s.memory.try(bad[1], inputPart, 2<<20, false), "15 MiB and twice 6, of 20")
	if !s.memory.try(good[0], inputPart, 8<<20, false) || !s.memory.try(good[1], outputPart, 2<<20, false) {
		t.Error("another address has no room")
	}
	s.memory.drop(bad[0])
	expect.That(t, s.memory.try(bad[1], inputPart, 2<<20, false) && bad[1].from.buffers.Load() == 2<<20,
		"%d bytes, after all was given back", bad[1].from.buffers.Load())

	// Its watches have fired: a connection that waits finds the room.
	granted := make(chan bool, 1)
	go func() { granted <- s.memory.wait(bad[2], inputPart, 4<<20) }()
	select {
	case ok := <-granted:
		expect.That(t, ok && bad[0].from.watches.Load() == 0, "granted: %v", ok)
	case <-time.After(30 * time.Second):
		t.Error("waits for watches that have fired")
	}
}

// Many watches that end with their connection leave the address room again.
func TestWatchesOfAConnectionAreGivenBack(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	from := r.srv.all()[0].from
	for i := range 2 * watchStep / 1000 {
		must.Get(c.Call(jute.OpExists, wire.PathWatch(fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 1000)), true)))(t)
	}
	expect.That(t, from.watches.Load() >= watchStep, "the address has %d bytes of watches", from.watches.Load())
	must.OK(t, c.CloseSession())
	must.Await(t, "the address still has them", 30*time.Second, func() bool { return from.watches.Load() == 0 })
}

// A request that waits for its address is counted once, however long it waits.
func TestAWaitForTheAddressIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock pays
		s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler)}))(t)
		defer s.Shutdown(t.Context())
		c := newConn(s, &net.TCPConn{}, nil)
		c.from = new(address)
		c.reader.arrived = s.now()
		c.from.paid.Store(int64(c.reader.arrived))
		c.from.owed.Store(s.share(burstTime) + s.share(20*time.Millisecond))
		expect.That(t, c.afford(1), "the connection is open")
		expect.Equal(t, s.metrics.Throttled.Load(), 1, "waits")
		c.reader.arrived = s.now()
		expect.That(t, c.afford(1), "the connection is open")
		expect.Equal(t, s.metrics.Throttled.Load(), 1, "waits, as the second one has room")
	})
}

// What an address may cost has a bound while its connections have one, also when that changes.
func TestBoundOfAnAddressChanges(t *testing.T) {
	s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	defer s.Shutdown(t.Context())
	from := new(address)
	s.perAddr["a"] = from
	most := 2 * s.o.MaxWatchBytesPerConn
	expect.That(t, !from.roomFor(s, most), "an address has the memory of all")
	s.Change(Options{MaxConnsPerAddr: -1})
	expect.That(t, from.roomFor(s, most) && s.share(time.Second) > 1<<50, "an address that is trusted has a bound")
	from.owed.Store(1 << 40)
	s.Change(Options{MaxConnsPerAddr: 60})
	expect.That(t, !from.roomFor(s, most) && s.share(time.Second) < 1<<30, "an address has no bound again")
	expect.Equal(t, from.owed.Load(), 0, "it owes what it was trusted with")
}

// An address without connections is remembered until it owes nothing.
func TestDebtsOutliveConnections(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	from := r.srv.all()[0].from
	from.owed.Store(1 << 40)
	c.Close()
	must.Await(t, "the connection stays", 30*time.Second, func() bool { return len(r.srv.all()) <= 0 })
	r.srv.mu.Lock()
	known := r.srv.perAddr[from.host]
	r.srv.mu.Unlock()
	expect.Equal(t, known, from, "the debt is forgotten")
	from.owed.Store(0)
	r.srv.mu.Lock()
	r.srv.forget(from)
	known = r.srv.perAddr[from.host]
	r.srv.mu.Unlock()
	expect.That(t, known == nil, "an address that owes nothing is kept")
}

// What a request is charged before its outcome is known, by its length.
func TestRequestsAreChargedByTheirLength(t *testing.T) {
	for _, x := range []struct {
		op   jute.OpCode
		size int
		want int64
	}{
		{jute.OpCreate, 0, 20}, {jute.OpCreate, 1 << 10, 20}, {jute.OpCreate, 1<<10 + 1, 5 + 128},
		{jute.OpSetData, 8000, 5 + 1000}, {jute.OpMulti, 0, 0}, {jute.OpMulti, 100, 200},
		{jute.OpMulti, tree.MaxSteps/2 + 1, tree.MaxSteps},
	} {
		expect.Equal(t, writeCost(x.op, make([]byte, x.size)), x.want, "%v of %d bytes", x.op, x.size)
	}
	for size, want := range map[int]int64{0: 2, 5: 2, 6: 3, 600: 102} {
		expect.Equal(t, readCost(make([]byte, size)), want, "a read of %d bytes", size)
	}
}

// An address is paid for a minute at once at most, and not for less than a millisecond.
func TestAddressIsPaidForTheTimeThatPassed(t *testing.T) {
	s, _ := quiet(t, Options{})
	second := s.share(time.Second)
	for _, x := range []struct {
		passed  time.Duration
		servers int64
		want    int64 // what is paid of very much
	}{
		{time.Millisecond - 1, 1, 0}, {time.Millisecond, 1, s.share(time.Millisecond)}, {time.Second, 1, second},
		{time.Second, 0, second}, {time.Second, 2, second / 2}, {time.Minute, 1, s.share(time.Minute)},
		{time.Hour, 1, s.share(time.Minute)},
	} {
		s.servers.Store(x.servers)
		a := new(account)
		a.owed.Store(1 << 50)
		const since = 5 * time.Second
		a.paid.Store(int64(since))
		owed := a.settle(s, since+x.passed)
		expect.That(t, owed == a.owed.Load() && owed == 1<<50-x.want, "%v, %d servers: %d are paid, want %d", x.passed,
			x.servers, 1<<50-owed, x.want)
		if x.want > 0 {
			expect.Equal(t, a.settle(s, since+x.passed), owed, "the same time is paid twice")
		}
		a.owed.Store(3)
		a.paid.Store(int64(since))
		a.settle(s, since+time.Second)
		expect.Equal(t, a.owed.Load(), 0, "more is paid than is owed")
	}
}

// The bound of an address's memory: buffers count twice.
func TestMemoryOfAnAddressUpToItsBound(t *testing.T) {
	s, c := quiet(t, Options{MaxWatchBytesPerConn: 1000})
	a := &c.from.account
	for _, x := range []struct {
		buffers, watches int64
		more             int
		want             bool
	}{
		{0, 0, 1000, true}, {0, 0, 1001, false}, {500, 1000, 0, true}, {500, 1001, 0, false}, {400, 1000, 100, true},
		{400, 1000, 101, false}, {0, 2000, 0, true},
	} {
		a.buffers.Store(x.buffers)
		a.watches.Store(x.watches)
		expect.Equal(t, a.roomFor(s, x.more), x.want, "%d more beside %d of buffers and %d of watches", x.more, x.buffers,
			x.watches)
	}
}

// A request that waits for its address ends with its connection.
func TestWaitForTheAddressEndsWithTheConnection(t *testing.T) {
	s, c := quiet(t, Options{})
	c.reader.arrived = s.now()
	c.from.paid.Store(int64(1000 * time.Hour)) // nothing is paid during this test
	burst := s.share(burstTime)
	c.from.owed.Store(burst - 1)
	expect.That(t, c.afford(5), "within the burst")
	expect.Equal(t, c.from.owed.Load(), burst+4)
	c.out.die(ends.Moved)
	expect.That(t, !c.afford(1), "beyond it, and the connection has ended")
	expect.Equal(t, c.from.owed.Load(), burst+4, "a request that is not carried out is charged")
	s.Change(Options{MaxConnsPerAddr: -1})
	expect.That(t, c.afford(1<<40), "an address that is trusted waits")
	expect.Equal(t, c.from.owed.Load(), burst+4, "an address that is trusted is charged")
}

// A server counts the members of the cluster that run, and not more than once in a second.
func TestServersThatShareAreCounted(t *testing.T) {
	s, _ := quiet(t, Options{})
	g := &glances{Replica: still{state.New("test")}}
	s.countServers(g)
	expect.That(t, s.servers.Load() == 0 && g.n.Load() == 1, "%d members of a cluster without any", s.servers.Load())
	s.servers.Store(3)
	s.counted.Store(int64(s.now() + time.Hour))
	s.countServers(g)
	expect.That(t, s.servers.Load() == 3 && g.n.Load() == 1, "they are counted again at once")
	s.counted.Store(int64(s.now() - 2*time.Second))
	s.countServers(g)
	expect.That(t, s.servers.Load() == 0 && g.n.Load() == 2 && time.Duration(s.counted.Load()) <= s.now(),
		"they are not counted again")
}

// unpaid returns what the address of a client owes from now on; its share pays nothing any more.
func unpaid(r *rig, c *wire.Conn) *atomic.Int64 {
	from := r.srv.connOf(c.Session.ID).from
	from.paid.Store(math.MaxInt64)
	from.owed.Store(0)
	return &from.owed
}

// An address pays for everything that its clients ask for, also for what takes no lock.
func TestAnAddressPaysForEveryRequest(t *testing.T) {
	r := newRig(t, Options{SASL: &sasl.Mechanisms{Users: saslUsers}})
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
			eventually(t, "charged", func() bool { return owed.Load() > 0 })
		})
	}
}

// So do connections that get no session, and handshakes of TLS.
func TestAnAddressPaysForItsConnections(t *testing.T) {
	r, dial := secureRig(t, Options{})
	c := r.client()
	owed := unpaid(r, c)
	wrong := c.Session
	wrong.Password = bytes.Repeat([]byte{1}, jute.PasswordSize)
	must.Fails(t, r.dial().Connect(wire.Attach(wrong, 0)), "a wrong password is taken")
	expect.That(t, owed.Load() > 0, "a refused session costs nothing")
	owed.Store(0)
	dial()
	expect.That(t, owed.Load() >= handshakeSteps, "a TLS handshake costs %d steps", owed.Load())
}
