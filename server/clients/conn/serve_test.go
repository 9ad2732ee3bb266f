package conn

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// A panic ends only the connection in which it happens. The server logs and counts it.
func TestPanicEndsItsConnectionAlone(t *testing.T) {
	var log must.Text
	s, c := quiet(t, options.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	other := newConn(s, &net.TCPConn{}, nil)
	must.That(t, s.add(c), "the connections are not taken: want s.add(c)")
	must.That(t, s.add(other), "the connections are not taken: want s.add(other)")
	c.replica = panicking{still{state.New("test")}}
	c.reader.rested = true
	counted := int64(-1)
	c.out.NC = closer{c.out.NC, func() {
		if counted < 0 {
			counted = s.Metrics.UnrecoverableErrors.Load()
		}
	}}
	c.reader.in.Put(wire.AppendRequest(nil, 1, jute.OpGetData, wire.PathWatch("/a", false)))
	c.serve(ends.None)
	expect.Has(t, log.String(), "panic in a client connection")
	expect.Has(t, log.String(), "the state is broken")
	expect.Equal(t, counted, 1, "panics counted when the client learns of it")
	expect.Equal(t, s.Metrics.UnrecoverableErrors.Load(), 1)
	expect.Equal(t, s.Counts.Ends[ends.Panic].Load(), 1)
	expect.That(t, !c.out.IsOpen(), "the connections left: %d: want !c.out.IsOpen()", len(s.All()))
	expect.That(t, other.out.IsOpen(),
		"the connections left: %d: want other.out.IsOpen()", len(s.All()))
	expect.Equal(t, len(s.All()), 1, "the connections left: len(s.all())")
	other.finish(ends.Stopped)
	s.wg.Done() // in place of the goroutine of `other`, which this test does not start
}

// closer is a connection that only records that it was closed.
type closer struct {
	net.Conn
	closes func()
}

func (c closer) Close() error {
	c.closes()
	return nil
}

type panicking struct{ still }

func (panicking) View(func(*state.State)) { panic("the state is broken") }

// deadlines remembers the read deadlines of a connection.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// The read deadline of a connection depends on the bytes that it has received so far.
func TestDeadlinesForTheNextBytes(t *testing.T) {
	part := []byte{0, 0, 0, 99, 1}
	oversized := binary.BigEndian.AppendUint32(nil, options.DefaultMaxFrame+1)
	for _, x := range []struct {
		name       string
		bytes      []byte
		within     int
		readOnly   bool
		unfinished bool
		begun      time.Duration // how long ago the frame began; 0: just now
		ending     bool
		want       time.Duration // time until the deadline; 0: the deadline stays, -1: the deadline is removed
	}{
		{name: "between frames"},
		{name: "behind a frame", unfinished: true, want: -1},
		{name: "between frames, without a leader", readOnly: true, want: 10*time.Second + 6*time.Second},
		{name: "in a frame", bytes: part, want: outbox.StallTime},
		{name: "in a frame, without a leader", bytes: part, readOnly: true, want: outbox.StallTime},
		{name: "in a frame that goes on", bytes: part, unfinished: true, begun: time.Second,
			want: outbox.StallTime},
		{name: "in a frame that takes long", bytes: part, unfinished: true, begun: frameTime - time.Second, want: time.Second},
		{name: "in a setWatches", within: 5, want: outbox.StallTime},
		{name: "in a setWatches, with a part", bytes: oversized, within: 5, want: outbox.StallTime},
		{name: "before the header of a long frame", bytes: oversized, want: headerGrace},
		{name: "in a frame, at the end", bytes: part, ending: true},
	} {
		s, c := quiet(t, options.Options{})
		s.start = s.start.Add(-time.Hour) // as if the server had run for an hour
		nc := &deadlines{}
		c.out.NC, c.timeout = nc, 10*time.Second
		c.reader.in.Put(x.bytes)
		c.reader.within, c.readOnly, c.reader.unfinished = x.within, x.readOnly, x.unfinished
		before := time.Now()
		if x.begun > 0 {
			c.reader.frameStart = s.Now() - x.begun
		}
		if x.ending {
			c.out.End(ends.Auth)
		}
		c.armDeadline()
		after := time.Now()
		switch {
		case x.want == 0:
			expect.Equal(t, len(nc.set), 0, "%s: deadlines", x.name)
		case !expect.Equal(t, len(nc.set), 1, "%s: deadlines", x.name):
		case x.want < 0:
			expect.That(t, nc.set[0].IsZero(), "%s: a deadline in %v", x.name, nc.set[0].Sub(before))
		default:
			expect.That(t, nc.set[0].Sub(before) >= x.want,
				"%s: a deadline in %v, want %v: want nc.set[0].Sub(before) >= x.want",
				x.name, nc.set[0].Sub(before), x.want)
			expect.That(t, nc.set[0].Sub(after) <= x.want,
				"%s: a deadline in %v, want %v: want nc.set[0].Sub(after) <= x.want",
				x.name, nc.set[0].Sub(before), x.want)
		}
		inFrame := len(x.bytes) > 0 || x.within > 0
		expect.Equal(t, c.reader.unfinished, inFrame, "%s: c.reader.unfinished", x.name)
		expect.Equal(t, c.reader.frameStart > 0, inFrame ||
			x.begun > 0,
			"%s: c.reader.frameStart > 0", x.name)
	}
}

// Bytes from a client show that it is alive. The server reports that to the leader once, and never for a
// read-only session.
func TestBytesShowThatAClientIsAlive(t *testing.T) {
	s, c := quiet(t, options.Options{})
	c.received(10)
	c.received(5)
	expect.That(t, c.reader.arrived > 0,
		"heard at %v, bytes came at %v: want c.reader.arrived > 0",
		time.Duration(c.pulse.heard.Load()), c.reader.arrived)
	expect.Equal(t, c.pulse.heard.Load(), int64(c.reader.arrived),
		"heard at %v, bytes came at %v: c.pulse.heard.Load()",
		time.Duration(c.pulse.heard.Load()), c.reader.arrived)
	expect.Equal(t, c.pulse.received.Load(), 15,
		"%d bytes: c.pulse.received.Load()", c.pulse.received.Load())
	expect.Equal(t, s.Metrics.BytesReceived.Load(), 15,
		"%d bytes: s.metrics.BytesReceived.Load()", c.pulse.received.Load())
	must.List(t, s.heard.take(), []*Conn{c}, "heard of")
	c.alive(7)
	expect.Equal(t, c.pulse.heard.Load(), 7)
	expect.Equal(t, len(s.heard.take()), 0, "it is listed, as nothing was asked since")
	c.pulse.listed.Store(false)
	c.readOnly = true
	c.alive(8)
	expect.Equal(t, c.pulse.heard.Load(), 8,
		"a read-only session is told of: c.pulse.heard.Load()")
	expect.Equal(t, len(s.heard.take()), 0,
		"a read-only session is told of: len(s.heard.take())")
}

// Each network error maps to a reason for the end of a connection.
func TestErrorsOfTheNetworkAreReasons(t *testing.T) {
	_, c := quiet(t, options.Options{})
	late := fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
	closed, reset := fmt.Errorf("read: %w", net.ErrClosed), os.NewSyscallError("read", syscall.ECONNRESET)
	for _, x := range []struct {
		err                  error
		idle, begun, writing ends.Reason
	}{
		{late, ends.Idle, ends.Stalled, ends.Slow},
		{closed, ends.Else, ends.Else, ends.Else},
		{io.ErrClosedPipe, ends.Else, ends.Else, ends.Client},
		{reset, ends.Client, ends.Client, ends.Client},
		{io.EOF, ends.Client, ends.Client, ends.Client},
	} {
		c.reader.in = new(inbox.Input)
		expect.Equal(t, c.readFailed(x.err), x.idle, "%v between two frames", x.err)
		c.reader.in.Put([]byte("x"))
		expect.Equal(t, c.readFailed(x.err), x.begun, "%v in a frame", x.err)
		expect.Equal(t, ends.OfWrite(x.err), x.writing, "%v while writing", x.err)
	}
}

type addrConn struct {
	net.Conn
	addr net.Addr
}

func (c addrConn) RemoteAddr() net.Addr { return c.addr }

type textAddr string

func (a textAddr) Network() string { return "text" }

func (a textAddr) String() string { return string(a) }

func TestHostOfAConnection(t *testing.T) {
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	for _, x := range []struct {
		addr           net.Addr
		host, describe string
	}{
		{tcp("10.0.0.1:5"), "10.0.0.1", "10.0.0.1:5"},
		{tcp("[::ffff:10.0.0.1]:5"), "10.0.0.1", "10.0.0.1:5"},
		{tcp("[fe80::1%eth0]:5"), "fe80::1", "[fe80::1%eth0]:5"},
		{textAddr("somewhere:7"), "somewhere", "somewhere:7"},
		{textAddr("pipe"), "pipe", "pipe"},
		{nil, "", ""},
	} {
		expect.Equal(t, hostOf(addrConn{addr: x.addr}), x.host, "%v", x.addr)
		expect.Equal(t, addrOf(addrConn{addr: x.addr}), x.describe, "%v", x.addr)
	}
}
