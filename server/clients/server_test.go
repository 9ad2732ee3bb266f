package clients

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// newFrom returns a connection from a host that no server has registered.
func newFrom(s *Server, host string) *conn {
	c := newConn(&s.shared, &net.TCPConn{}, nil)
	c.from.Host = host
	return c
}

// Connections are registered up to each bound, share what is of their address, and leave nothing behind.
func TestConnectionsAreRegistered(t *testing.T) {
	s, _ := quiet(t, options.Options{MaxConns: 3, MaxConnsPerAddr: 2})
	var conns []*conn
	for _, x := range []struct{ host, problem string }{
		{"a", ""}, {"a", ""}, {"a", "too many connections from this address"}, {"b", ""}, {"c", "too many connections"},
		{"a", "too many connections"},
	} {
		c := newFrom(s, x.host)
		problem := s.tryAdd(c)
		must.Equal(t, problem, x.problem, "of %s, number %d", x.host, len(conns))
		if problem == "" {
			conns = append(conns, c)
		}
	}
	a := conns[0].from
	expect.Equal(t, conns[1].from, a, "addresses are shared wrongly: conns[1].from")
	expect.That(t, conns[2].from != a,
		"addresses are shared wrongly: want conns[2].from != a")
	if expect.Equal(t, len(a.conns), 2, "addresses are shared wrongly: len(a.conns)") {
		expect.Equal(t, conns[0].proof.ids.Load(), a.ids,
			"addresses are shared wrongly: conns[0].proof.ids.Load()")
	}
	expect.Equal(t, fmt.Sprint(*conns[2].proof.ids.Load()), "[{ip b}]")
	if expect.Equal(t, len(s.all()), 3, "%d connections: len(s.all())", len(s.all())) {
		if expect.Equal(t, len(s.watchersFrom("a")), 2, "%d connections", len(s.all())) {
			expect.Equal(t, len(s.watchersFrom("c")), 0, "%d connections", len(s.all()))
		}
	}
	older, ok := s.claim(conns[0], 7)
	must.That(t, ok, "claimed: want ok")
	must.That(t, older == nil, "claimed: want older == nil")
	_, ok = s.claim(conns[1], 7)
	must.That(t, ok, "claimed")
	s.remove(conns[0]) // whose session has another connection
	expect.Equal(t, s.connOf(7), conns[1], "the first is removed: s.connOf(7)")
	if expect.Equal(t, len(s.watchersFrom("a")), 1, "the first is removed") {
		expect.That(t, conns[0].removed, "the first is removed: want conns[0].removed")
	}
	s.remove(conns[1])
	expect.That(t, s.connOf(7) == nil, "the second is removed: want s.connOf(7) == nil")
	expect.That(t, s.perAddr["a"] == nil,
		"the second is removed: want s.perAddr[\"a\"] == nil")
	expect.Equal(t, len(s.all()), 1, "the second is removed: len(s.all())")
	s.remove(conns[2])
	for range conns {
		s.wg.Done() // which ends of their goroutines do
	}
	s.CutOff()
	expect.Equal(t, s.tryAdd(newFrom(s, "d")), "server stopping")
	if expect.Equal(t, len(s.conns), 0, "something is left: len(s.conns)") {
		if expect.Equal(t, len(s.perAddr), 0, "something is left: len(s.perAddr)") {
			expect.Equal(t, len(s.sessions), 0, "something is left: len(s.sessions)")
		}
	}
}

// A refused connection is counted, told in the log and remembered.
func TestRefusedConnectionsAreCounted(t *testing.T) {
	s, _ := quiet(t, options.Options{MaxConns: 1, MaxConnsPerAddr: -1})
	first := newFrom(s, "a")
	must.That(t, s.add(first), "added")
	expect.Equal(t, s.metrics.ConnectionRejected.Load(), 0)
	expect.That(t, !s.add(newFrom(s, "b")), "added")
	why, known := s.Observed.Refused("b")
	expect.Equal(t, s.metrics.ConnectionRejected.Load(), 1,
		"s.metrics.ConnectionRejected.Load()")
	expect.That(t, known, "%v: want known", why)
	expect.Equal(t, why.Why, "too many connections", "why.Why")
	s.remove(first)
	s.wg.Done()
}

// An address without connections stays while it owes something, and is not forgotten while it has some.
func TestAddressesThatOweAreKept(t *testing.T) {
	s, _ := quiet(t, options.Options{})
	c := newFrom(s, "a")
	must.Equal(t, s.tryAdd(c), "")
	from := c.from
	s.shares.Settle(&from.Account, 1000*time.Hour) // nothing is paid during this test
	for _, x := range []struct {
		owed int64
		kept bool
	}{{1, true}, {0, false}} {
		s.perAddr["a"] = from
		owe(from, x.owed)
		s.mu.Lock()
		s.forget(from)
		_, kept := s.perAddr["a"]
		s.mu.Unlock()
		expect.Equal(t, kept, x.kept, "an address that owes %d", x.owed)
	}
	s.cancel()
	s.mu.Lock()
	s.perAddr["a"] = from
	owe(from, 1)
	s.forget(from)
	_, kept := s.perAddr["a"]
	s.mu.Unlock()
	expect.That(t, !kept, "a server that stops keeps it")
	s.wg.Done()
}

// A server serves once it has a replica and that one serves, and clients that wait for it hear of both.
func TestServerServesItsReplica(t *testing.T) {
	for _, first := range []string{"the replica", "its service"} {
		s, _ := quiet(t, options.Options{})
		steps := []func(){func() { s.Use(still{state.New("test")}) }, func() { s.Serving(true) }}
		if first == "its service" {
			steps[0], steps[1] = steps[1], steps[0]
		}
		waits := make(chan error, 1)
		go func() { waits <- s.WaitServing(context.Background()) }()
		for i, step := range steps {
			expect.That(t, !s.entrance.Open(), "%s first: it serves before step %d", first, i)
			step()
		}
		expect.That(t, s.entrance.Open(), "%s first: it does not serve", first)
		select {
		case err := <-waits:
			must.OK(t, err)
		case <-time.After(time.Minute):
			t.Fatalf("%s first: a client that waits hears of nothing", first)
		}
	}
	s, _ := quiet(t, options.Options{})
	s.UseMeanwhile(still{state.New("test")})
	s.Serving(true)
	expect.That(t, !s.entrance.Open(), "it serves what it was given for the meantime")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	expect.Is(t, s.WaitServing(ctx), context.Canceled)
	s.CutOff()
	expect.Is(t, s.WaitServing(context.Background()), net.ErrClosed)
	s.ReadOnly(true)
	s.Serving(true)
	s.Use(still{state.New("test")})
	expect.That(t, !s.entrance.ReadOnly(), "a server that stops lets clients read")
	expect.That(t, !s.entrance.Open(), "a server that stops serves")
}

// The end of service ends connections with a session and those that ask for one, and no others.
func TestEndOfServiceSendsClientsAway(t *testing.T) {
	for name, end := range map[string]func(s *Server){
		"service": func(s *Server) { s.Serving(false) }, "reads": func(s *Server) { s.ReadOnly(false) },
		"the state": func(s *Server) { s.Reset() },
	} {
		s, _ := quiet(t, options.Options{})
		var conns []*conn
		for p := phaseFirst; p <= phaseOpen; p++ {
			c := newFrom(s, "a")
			must.Equal(t, s.tryAdd(c), "")
			c.phase.Store(int32(p))
			conns = append(conns, c)
		}
		s.Serving(true)
		s.ReadOnly(true)
		for p, c := range conns {
			must.That(t, c.out.IsOpen(), "phase %d", p)
		}
		end(s)
		for p, c := range conns {
			open := phase(p) < phaseConnect
			expect.Equal(t, c.out.IsOpen(), open, "the end of %s in phase %d: c.out.IsOpen()", name, p)
			expect.That(t, c.out.Look().Why == ends.Serving != open,
				"the end of %s in phase %d: %v: want c.out.Look().Why == ends.Serving != open",
				name, p, c.out.Look().Why)
			s.remove(c)
			s.wg.Done()
		}
	}
}

// Serve ends with its listener, and closes it where the server stops.
func TestAcceptEndsWithItsListener(t *testing.T) {
	s, _ := quiet(t, options.Options{})
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	ln.Close()
	expect.Is(t, <-served, net.ErrClosed)
	expect.Fails(t, s.ServeTLS(ln), "TLS without a configuration")
	s.CutOff()
	other := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	expect.OK(t, s.Serve(other), "a server that stops")
	_, err := other.Accept()
	expect.That(t, errors.Is(err, net.ErrClosed), "its listener is open: %v", err)
}

// What a setWatches is read by, where it ends or lies.
func TestPiecesOfASetWatches(t *testing.T) {
	text := wire.Body{}.Long(1 << 40).Int(7).Str("/a").Int(-1)
	for _, x := range []struct {
		name   string
		within int
		bytes  []byte
		want   string
		why    ends.Reason
	}{
		{"whole", len(text), text, "1099511627776 7 /a -1", ends.None},
		{"a byte is missing from the frame", len(text) - 1, text, "1099511627776 7 /a 0", ends.Malformed},
		{"nothing", 0, nil, "0 0  0", ends.Malformed},
		{"a null string", 16, wire.Body{}.Long(1).Int(2).Null(), "1 2  0", ends.Malformed},
		{"a longer string", 20, wire.Body{}.Long(1).Int(2).Int(5).Int(0), "1 2  0", ends.Malformed},
		{"a string beyond the frame limit", 1 << 20, wire.Body{}.Long(1).Int(2).Int(4097).Int(0),
			"1 2  0", ends.Malformed},
	} {
		_, c := quiet(t, options.Options{MaxFrame: 4096})
		c.reader.within = x.within
		c.reader.in.Put(append([]byte(nil), x.bytes...))
		p := pieces{c: c}
		got := fmt.Sprint(p.long(), " ", p.int(), " ", p.string(), " ", p.int())
		expect.That(t, got == x.want && p.why == x.why, "%s: %q, %v", x.name, got, p.why)
		p.fail()
		expect.Equal(t, p.why, ends.Malformed, "%s", x.name)
		p.why = ends.Client
		p.fail()
		expect.Equal(t, p.why, ends.Client, "%s: p.why", x.name)
		expect.That(t, p.take(0) == nil,
			"%s: the first reason is another: want p.take(0) == nil", x.name)
	}
}
