package clients

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestConnectionsPerAddressAreBounded(t *testing.T) {
	r := newRig(t, options.Options{MaxConnsPerAddr: 3})
	var held []*wire.Conn
	for range 3 {
		held = append(held, r.client())
	}
	surplus := r.dial()
	must.OK(t, surplus.Closed())
	for _, c := range held {
		alive(t, c)
	}
	expect.Equal(t, r.srv.Metrics().ConnectionRejected.Load(), 1, "rejections counted")
	held[0].Close()
	eventually(t, "room again", func() bool {
		c := r.dial()
		return c.Connect(wire.NewSession(10000)) == nil
	})
}

func TestConnectionsInAllAreBounded(t *testing.T) {
	r := newRig(t, options.Options{MaxConns: 2, MaxConnsPerAddr: -1})
	a, b := r.client(), r.client()
	must.Fails(t, r.dial().Connect(wire.NewSession(10000)), "a third connection is served")
	alive(t, a)
	alive(t, b)
}

// At a limit the server refuses new sessions, as it refuses connections. Existing sessions stay, and the end
// of a session makes room for another.
func TestSessionsAreBounded(t *testing.T) {
	for name, o := range map[string]options.Options{
		"in all":              {MaxSessions: 3, MaxAddrSessions: 100},
		"in all, trusted":     {MaxSessions: 3, MaxConnsPerAddr: -1},
		"from an address":     {MaxAddrSessions: 3},
		"from an address too": {MaxSessions: 100, MaxAddrSessions: 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, o)
			held := []*wire.Conn{r.client(), r.client(), r.client()}
			must.Fails(t, r.dial().Connect(wire.NewSession(10_000)), "a fourth session is created")
			expect.Equal(t, r.measured("new_sessions_refused_total"), 1, "refused sessions")
			expect.Equal(t, r.srv.Metrics().ConnectionRejected.Load(), 1, "rejected connections")
			expect.Has(t, r.log.String(), "too many sessions")
			held[0].Close()
			held[0] = r.attach(held[0].Session)
			for _, c := range held {
				alive(t, c)
			}
			call(t, held[1], jute.OK, jute.OpCloseSession, nil)
			alive(t, r.client())
		})
	}
}

// Clients that connect at the same time get exactly as many sessions as the limit allows.
func TestSessionsThatComeAtOnceAreBounded(t *testing.T) {
	const most, clients = 10, 50
	r := newRig(t, options.Options{MaxAddrSessions: most})
	var created atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if c := r.dial(); c.Connect(wire.NewSession(10_000)) == nil {
				created.Add(1)
			}
		})
	}
	all.Wait()
	expect.Equal(t, created.Load(), most, "sessions created")
	expect.Equal(t, r.srv.conns.Creating(), 0, "sessions being created")
}

// An address without a limit of connections has no limit of sessions.
func TestTrustedAddressesHaveNoBoundOfSessions(t *testing.T) {
	r := newRig(t, options.Options{MaxAddrSessions: 1, MaxConnsPerAddr: -1})
	alive(t, r.client())
	alive(t, r.client())
}

func TestPendingRequestsAreBounded(t *testing.T) {
	const limit = 10
	r := newRig(t, options.Options{MaxPending: limit})
	c := r.client()
	r.valve.close()
	var p batch
	for range 3 * limit {
		p.add(jute.OpSync, wire.Path("/"))
	}
	must.OK(t, c.WriteRaw(p.b))
	eventually(t, "filled up", func() bool { return r.valve.waiting() == limit })
	time.Sleep(10 * time.Millisecond)
	expect.Equal(t, r.valve.waiting(), limit, "requests pending, limit")
	expect.Equal(t, r.status().Outstanding, limit, "outstanding")
	r.valve.open()
	for i := range 3 * limit {
		wantKinds(t, c, i+1)
	}
}

func TestWatchesAreBounded(t *testing.T) {
	for _, o := range []options.Options{{MaxWatchesPerConn: 5}, {MaxWatches: 5}} {
		r := newRig(t, o)
		c := r.client()
		for i := range 5 {
			call(t, c, jute.NoNode, jute.OpExists, wire.PathWatch(fmt.Sprint("/", i), true))
		}
		must.OK(t, c.SendXid(9, jute.OpExists, wire.PathWatch("/5", true)))
		_, err := c.Next()
		if err == nil {
			_, err = c.Next()
		}
		expect.Equal(t, err, io.EOF, "after too many watches")
		eventually(t, "its watches gone", func() bool { return r.status().AllWatches == 0 })
		eventually(t, "counted", func() bool { return r.srv.conns.Counts.Ends[ends.Watches].Load() == 1 })
	}
}

// The memory of watches has a bound for each connection, for each address and for the server. At a bound the
// server closes the connection that sets another watch.
func TestMemoryOfWatchesIsBounded(t *testing.T) {
	const kilo = 1 << 10
	long := func(i int) wire.Body {
		return wire.PathWatch(fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 10*kilo)), true)
	}
	// watch sets watches of 10 KiB until the server closes c, or c has n watches.
	watch := func(t *testing.T, c *wire.Conn, from, n int) (set int, err error) {
		for i := range n {
			if _, err := c.Call(jute.OpExists, long(from+i)); err != nil {
				return i, err
			}
		}
		return n, nil
	}
	t.Run("of one connection", func(t *testing.T) {
		r := newRig(t, options.Options{MaxWatchBytesPerConn: 300 * kilo})
		c := r.client()
		n, err := watch(t, c, 0, 100)
		expect.Fails(t, err)
		expect.That(t, n >= 25, "%d watches, then %v", n, err)
		expect.That(t, n <= 30, "%d watches, then %v", n, err)
		eventually(t, "counted", func() bool { return r.srv.conns.Counts.Ends[ends.Watches].Load() == 1 })
	})
	t.Run("of one address", func(t *testing.T) {
		r := newRig(t, options.Options{MaxWatchBytesPerConn: 300 * kilo})
		closed := 0
		for i := range 10 {
			if _, err := watch(t, r.client(), 100*i, 25); err != nil {
				closed++
			}
			b := r.measured("watch_memory_bytes")
			expect.That(t, b <= (2*300+64)*kilo, "%d KiB", b/kilo)
		}
		expect.That(t, closed >= 7, "%d of 10 closed", closed)
		r = newRig(t, options.Options{MaxWatchBytesPerConn: 300 * kilo, MaxConnsPerAddr: -1})
		for i := range 4 {
			if n, err := watch(t, r.client(), 100*i, 25); err != nil {
				t.Errorf("%d watches, then %v", n, err)
			}
		}
	})
	t.Run("in all", func(t *testing.T) {
		r := newRig(t, options.Options{MaxWatchBytes: 300 * kilo})
		greedy := r.client()
		if n, err := watch(t, greedy, 0, 28); err != nil {
			t.Errorf("%d watches, then %v", n, err)
		}
		modest := r.client()
		if n, err := watch(t, modest, 1000, 5); err != nil {
			t.Errorf("who has little is closed: %d watches, then %v", n, err)
		}
		if n, err := watch(t, greedy, 2000, 5); err == nil {
			t.Errorf("who has much may have %d more", n)
		}
		eventually(t, "given back", func() bool { return r.measured("watch_memory_bytes") < 100*kilo })
	})
}

// The connection of a client that does not read its replies and events is closed. No single event is left
// out.
func TestClientThatDoesNotReadIsClosed(t *testing.T) {
	for name, o := range map[string]options.Options{"frames": {MaxOutboxFrames: 1000}, "bytes": {
		MaxOutboxBytes: 500_000}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, o)
			a, slow := r.client(), r.client()
			path := "/" + strings.Repeat("x", 4000)
			create(t, a, path, "", 0)
			call(t, slow, jute.OK, jute.OpAddWatch, wire.PathInt(path, 0))
			var p batch
			for range 50 {
				p.add(jute.OpSetData, wire.SetData(path, nil, -1))
			}
			for n := 0; r.srv.conns.Counts.Ends[ends.Slow].Load() == 0; n++ {
				must.That(t, n <= 1000, "many events, and the client is still there")
				must.OK(t, a.WriteRaw(p.b))
				for range 50 {
					must.Get(a.Next())(t)
				}
			}
			last := int64(0)
			for {
				f, err := slow.Next()
				if err != nil {
					break
				}
				must.That(t, last == 0 || f.Zxid == last+1, "event of %d behind that of %d", f.Zxid, last)
				last = f.Zxid
			}
			alive(t, a)
		})
	}
}

// MaxOutboxBytes bounds the bytes that wait, not the size of one reply.
func TestOneReplyMayBeLargerThanTheBound(t *testing.T) {
	r := newRig(t, options.Options{MaxOutboxBytes: 1000})
	c := r.client()
	create(t, c, "/big", strings.Repeat("x", 1_000_000), 0)
	for range 3 {
		f := call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/big", false))
		expect.That(t, len(f.Body) >= 1_000_000, "%d bytes", len(f.Body))
	}
}

// A client that sends many requests and does not read the replies has to wait.
func TestRepliesToAClientThatDoesNotReadHoldItBack(t *testing.T) {
	r := newRig(t, options.Options{MaxOutboxBytes: 1 << 20})
	c := r.client()
	create(t, c, "/big", strings.Repeat("x", 100_000), 0)
	var wg sync.WaitGroup
	wg.Go(func() {
		var p batch
		for range 300 {
			p.add(jute.OpGetData, wire.PathWatch("/big", false))
		}
		expect.OK(t, c.WriteRaw(p.b))
	})
	time.Sleep(100 * time.Millisecond)
	for i := range 300 {
		wantKinds(t, c, i+1)
	}
	wg.Wait()
}

func TestAuthPacketsAreBounded(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	for range maxAuths {
		call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
	}
	call(t, c, jute.AuthFailed, jute.OpAuth, wire.Auth("digest", "u:p"))
	must.OK(t, c.Closed())
	c = r.client()
	for i := range identity.MaxIDs - 1 {
		call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", fmt.Sprint("u:", i)))
	}
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "u:1")) // the client has already proved this identity
	call(t, c, jute.AuthFailed, jute.OpAuth, wire.Auth("digest", "one:more"))
	must.OK(t, c.Closed())
}

// The server limits the bytes of a client's identities, because they travel with every write.
func TestBytesOfIdentitiesAreBounded(t *testing.T) {
	r := newRig(t, options.Options{})
	long := strings.Repeat("x", identity.MaxBytes/4)
	c := r.client()
	for i := range 3 {
		call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", fmt.Sprint(long, i, ":p")))
	}
	create(t, c, "/a", "", 0)
	call(t, c, jute.AuthFailed, jute.OpAuth, wire.Auth("digest", long+"3:p"))
	must.OK(t, c.Closed())
	c = r.client()
	call(t, c, jute.AuthFailed, jute.OpAuth, wire.Auth("digest", strings.Repeat("x", identity.MaxBytes)+":p"))
	must.OK(t, c.Closed())
}

// flakyListener fails a few times before it accepts.
type flakyListener struct {
	net.Listener
	mu    sync.Mutex
	fails int
}

func (l *flakyListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails > 0 {
		l.fails--
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

func TestAcceptBacksOffAndGoesOn(t *testing.T) {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	start := time.Now()
	r := newRigOn(t, options.Options{}, &flakyListener{Listener: ln, fails: 4})
	r.client()
	d := time.Since(start)
	expect.That(t, d >= (5+10+20+40)*time.Millisecond, "accepted after %v", d)
	expect.Equal(t, r.measured("accept_errors_total"), 4, "errors counted")
}

func TestPlainBytesOnTheTLSPortAreClosed(t *testing.T) {
	s := must.Get(New(options.Options{TLSConfig: &tls.Config{}, Logger: slog.New(slog.DiscardHandler)}))(t)
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	go s.ServeTLS(ln)
	defer s.Shutdown(t.Context())
	c := must.Get(wire.Dial(ln.Addr().String()))(t)
	defer c.Close()
	must.OK(t, c.WriteRaw(wire.AppendConnectRequest(nil, wire.NewSession(10000))))
	io.Copy(io.Discard, c) // the server may send an alert before it closes
	eventually(t, "counted", func() bool { return s.Metrics().TLSHandshakeFailed.Load() == 1 })
}

// The log has one line for each reason for which the server refuses the connections of an address, however
// often the address tries.
func TestOneLineForARefusedConnection(t *testing.T) {
	var log must.Text
	r := newRig(t, options.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxConnsPerAddr: -1})
	gone := r.client()
	id := report.Hex(gone.Session.ID)
	must.OK(t, gone.Close())
	eventually(t, "its connection gone", func() bool { return r.status().Conns == 0 })
	r.end(gone.Session.ID, 1, nil)
	for range 3 {
		for _, hello := range []string{"GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x00\x00", "\xff\xff\xff\xff"} {
			c := r.dial()
			must.OK(t, c.WriteRaw([]byte(hello)))
			expect.Fails(t, expect.Err(c.ReadFrame()), "%q is answered by a frame", hello)
		}
		c := r.dial()
		expect.Fails(t, c.Connect(wire.Attach(gone.Session, 0)), "a session that was ended goes on")
		must.OK(t, c.Closed())
	}
	eventually(t, "connections gone, and the line of the last", func() bool {
		return r.status().Conns == 0 && strings.Contains(log.String(), "session="+id)
	})
	var refused []string
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "serving") {
			refused = append(refused, line)
		}
	}
	if len(refused) != 3 {
		t.Errorf("%d lines:\n%s", len(refused), strings.Join(refused, ""))
	}
	for _, want := range []string{`msg="not the ZooKeeper protocol" addr=127.0.0.1`,
		`reason="impossible frame length"`, "session=" + id} {
		if n := strings.Count(strings.Join(refused, ""), want); n != 1 {
			t.Errorf("%s: %d times in\n%s", want, n, strings.Join(refused, ""))
		}
	}
}
