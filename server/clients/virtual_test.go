package clients

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// pipeListener is a listener without a network, for virtual time.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{make(chan net.Conn), make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial(t *testing.T) *wire.Conn {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close() })
	l.conns <- b
	c := wire.New(a)
	c.Timeout = time.Hour
	return c
}

// virtual() runs a server in virtual time, without a network.
func virtual(t *testing.T, o options.Options, f func(t *testing.T, r *rig, ln *pipeListener)) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		f(t, newRigOn(t, o, ln), ln)
	})
}

// closedAfter waits for the end of a connection and returns how long that took.
func closedAfter(t *testing.T, c *wire.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	c.SetReadDeadline(start.Add(time.Hour))
	expect.OK(t, expect.Err(io.Copy(io.Discard, c)))
	return time.Since(start)
}

func TestHandshakeHasADeadline(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		hello := wire.AppendConnectRequest(nil, wire.NewSession(10000))
		for _, n := range []int{0, 1, 3, 4, len(hello) - 2} {
			c := ln.dial(t)
			if n > 0 {
				must.OK(t, c.WriteRaw(hello[:n]))
			}
			expect.Equal(t, closedAfter(t, c), 10*time.Second, "%d bytes: closed after", n)
		}
		synctest.Wait()
		expect.Equal(t, r.srv.Metrics().SessionlessExpired.Load(), 5, "counted")
	})
}

func TestTrickledHandshakeHasTheSameDeadline(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		start := time.Now()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for _, b := range wire.AppendConnectRequest(nil, wire.NewSession(10000)) {
				if c.WriteRaw([]byte{b}) != nil {
					return
				}
				time.Sleep(3 * time.Second)
			}
		})
		closedAfter(t, c)
		expect.Equal(t, time.Since(start), 10*time.Second, "closed after")
	})
}

// A session lives as long as bytes arrive, and then for exactly its timeout. Its connection ends soon after
// the session.
func TestSilentClientLosesItsSessionAndItsConnection(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(6000)))
		for range 20 {
			time.Sleep(2 * time.Second)
			alive(t, c)
		}
		d := closedAfter(t, c)
		expect.That(t, d >= 6*time.Second && d <= 10*time.Second, "closed after %v", d)
		ended := r.srv.conns.Observed.EndedSince(-1)
		if expect.Equal(t, len(ended), 1, "ended %+v: len(ended)", ended) {
			expect.That(t, ended[0].Silent >= 6*time.Second,
				"ended %+v: want ended[0].Silent >= 6*time.Second", ended)
		}
	})
}

// The leader may give a session more time, for example after the leader has stalled. The connection does not
// end before the session.
func TestConnectionLastsAsLongAsItsSession(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(4000)))
		for range 2 { // in the second round the connection has rested
			for range 20 {
				time.Sleep(time.Second)
				r.srv.conns.Of(c.Session.ID).Alive()
			}
			alive(t, c)
		}
	})
}

// A silent read-only connection is closed after its timeout, because no leader ends its session.
func TestSilentReadOnlyConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(New(options.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
		ln := newPipeListener()
		go s.Serve(ln)
		s.UseMeanwhile(still{state.New("test")})
		s.ReadOnly(true)
		c := ln.dial(t)
		hello := wire.NewSession(4000)
		hello.ReadOnly = true
		must.OK(t, c.Connect(hello))
		time.Sleep(3 * time.Second)
		alive(t, c)
		expect.Equal(t, closedAfter(t, c), 7*time.Second, "closed after")
		must.OK(t, s.Shutdown(t.Context()))
	})
}

func TestFrameThatIsNotFinishedEndsTheConnection(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(40000)))
		must.OK(t, c.WriteRaw([]byte{0, 0, 1, 0, 0}))
		expect.Equal(t, closedAfter(t, c), 30*time.Second, "stuck frame: closed after")
		again := func() *wire.Conn {
			b := ln.dial(t)
			must.OK(t, b.Connect(wire.Attach(c.Session, 0)))
			return b
		}
		b := again()
		start := time.Now()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for err := b.WriteRaw([]byte{0, 0, 1, 0}); err == nil; err = b.WriteRaw([]byte{0}) {
				time.Sleep(10 * time.Second)
			}
		})
		closedAfter(t, b)
		expect.Equal(t, time.Since(start), 120*time.Second, "trickling frame: closed after")
		// The client sends only the length of a frame, and this length is too large.
		last := again()
		must.OK(t, last.WriteRaw([]byte{0, 0x10, 0, 0}))
		expect.Equal(t, closedAfter(t, last), time.Second, "oversized length: closed after")
	})
}

// Bytes keep the session alive, and the end of a frame removes the deadline of the frame.
func TestFrameDeadlineEndsWithTheFrame(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(40000)))
		ping := wire.AppendRequest(nil, -2, jute.OpPing, nil)
		for range 6 {
			must.OK(t, c.WriteRaw(ping[:5]))
			time.Sleep(25 * time.Second)
			must.OK(t, c.WriteRaw(ping[5:]))
			wantKinds(t, c, -2)
			time.Sleep(35 * time.Second)
		}
		alive(t, c)
	})
}

func TestClientThatTakesNothingForThirtySecondsIsClosed(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		a, slow := ln.dial(t), ln.dial(t)
		must.OK(t, a.Connect(wire.NewSession(40000)))
		must.OK(t, slow.Connect(wire.NewSession(40000)))
		create(t, a, "/a", "", 0)
		call(t, slow, jute.OK, jute.OpGetData, wire.PathWatch("/a", true))
		start := time.Now()
		call(t, a, jute.OK, jute.OpSetData, wire.SetData("/a", nil, -1))
		for r.srv.conns.Counts.Ends[ends.Slow].Load() == 0 {
			time.Sleep(time.Second)
			alive(t, a)
		}
		d := time.Since(start)
		expect.That(t, d >= 30*time.Second && d <= 32*time.Second, "closed after %v", d)
	})
}

func TestClientThatReadsSlowlyIsNotClosed(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(40000)))
		create(t, c, "/a", strings.Repeat("x", 20_000), 0)
		must.OK(t, c.SendXid(1, jute.OpGetData, wire.PathWatch("/a", false)))
		var p [1000]byte
		for n := 0; n < 20_000; {
			time.Sleep(20 * time.Second)
			m := must.Get(c.Read(p[:]))(t)
			n += m
		}
	})
}

// To end a TLS connection, the server writes a last record. A client may leave no room for it. Other clients
// must not wait for that.
func TestNobodyWaitsForTheEndOfTLS(t *testing.T) {
	cert, _ := certificate(t, "server")
	o := options.Options{TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		MaxSessionTimeout: time.Hour}
	virtual(t, o, func(t *testing.T, r *rig, ln *pipeListener) {
		secure := newPipeListener()
		go r.srv.ServeTLS(secure)
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(3_600_000)))
		start := time.Now()
		for i := range 2*runtime.GOMAXPROCS(0) + 4 { // more than there are flushers
			deaf := wire.New(tls.Client(secure.dial(t), &tls.Config{InsecureSkipVerify: true}))
			must.OK(t, deaf.Connect(wire.NewSession(3_600_000)))
			synctest.Wait()
			if i%2 == 0 {
				r.srv.SessionMoved(deaf.Session.ID, 99)
			} else {
				r.srv.SessionEnded(&state.Ending{Session: session.Session{ID: deaf.Session.ID}})
			}
			r.srv.Applied()
		}
		create(t, c, "/a", "", 0)
		expect.That(t, time.Since(start) < time.Second, "a create took %v", time.Since(start))
	})
}

// While the server writes to a slow client, it does not read the client's pings. The client does not count as
// silent.
func TestClientThatReadsSlowlyAndPingsIsNotSilent(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(4000)))
		create(t, c, "/a", strings.Repeat("x", 20_000), 0)
		synctest.Wait() // wait until the connection's goroutine writes the next answer
		must.OK(t, c.SendXid(1, jute.OpGetData, wire.PathWatch("/a", false)))
		var wg sync.WaitGroup
		defer wg.Wait()
		defer c.Close()
		wg.Go(func() {
			for c.WriteRaw(wire.AppendRequest(nil, -2, jute.OpPing, nil)) == nil {
				time.Sleep(time.Second)
			}
		})
		var p [1000]byte
		for n := 0; n < 20_000; n += must.Get(c.Read(p[:]))(t) {
			time.Sleep(time.Second)
		}
		expect.Equal(t, len(r.srv.conns.Observed.EndedSince(-1)), 0, "sessions ended")
	})
}

func TestClientThatWaitsForAReconfigIsNotSilent(t *testing.T) {
	slow := func(options.ReconfigRequest) (jute.ErrCode, bool) {
		time.Sleep(20 * time.Second)
		return jute.BadVersion, true
	}
	virtual(t, options.Options{Reconfigure: slow}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(4000)))
		call(t, c, jute.BadVersion, jute.OpReconfig, wire.Body{}.Null().Null().Str("x").Long(-1))
		alive(t, c)
		expect.Equal(t, len(r.srv.conns.Observed.EndedSince(-1)), 0, "sessions ended")
	})
}

// While a write is stuck, the server reads nothing more from its client. The server must not take the client
// for dead, neither then nor later.
func TestClientWhoseWriteIsStuckIsNotSilent(t *testing.T) {
	virtual(t, options.Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(4000)))
		create(t, c, "/e", "", jute.FlagEphemeral)
		r.valve.close()
		var p batch
		p.add(jute.OpSync, wire.Path("/"))
		for range 3 {
			p.add(jute.OpPing, nil)
		}
		must.OK(t, c.WriteRaw(p.b))
		time.Sleep(time.Minute)
		r.valve.open()
		wantKinds(t, c, 1, -2, -2, -2)
		time.Sleep(3 * time.Second)
		alive(t, c)
		expect.OK(t, expect.Err(c.Exists("/e", false)))
		closedAfter(t, c)
		expect.Equal(t, len(r.srv.conns.Observed.EndedSince(-1)), 1, "sessions ended")
	})
}
