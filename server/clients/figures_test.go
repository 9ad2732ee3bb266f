package clients

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// quiet returns a server that serves no client, and a connection of it.
func quiet(t testing.TB, o options.Options) (*Server, *conn) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := must.Get(New(o))(t)
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s, connFrom(s, new(address))
}

// connFrom returns a connection from an address.
func connFrom(s *Server, from *address) *conn {
	c := newConn(&s.shared, &net.TCPConn{}, nil)
	c.from, c.watcher.From = from, &from.Address
	c.proof.ids.Store(identity.Unproved("127.0.0.1", false))
	return c
}

// The server counts each end of a connection by its reason, and logs it at the level of that reason.
func TestEndsOfConnectionsAreCounted(t *testing.T) {
	ours := []ends.Reason{ends.Idle, ends.Stalled, ends.Length, ends.Malformed, ends.Slow, ends.Watches,
		ends.Events, ends.Auth,
		ends.UnknownOp, ends.Plain, ends.TLS}
	for why := ends.Client; why < ends.Reasons; why++ {
		for _, x := range []struct {
			name           string
			session, asked int64
			said           bool
		}{{name: "with a session", session: 7}, {name: "with a line", session: 7, said: true},
			{name: "without a session"}, {name: "that came back", asked: 9}} {
			var log must.Text
			all := &slog.HandlerOptions{Level: slog.LevelDebug}
			s, c := quiet(t, options.Options{Logger: slog.New(slog.NewTextHandler(&log, all))})
			c.from.Host, c.session, c.asked, c.reader.said = "10.0.0.1", x.session, x.asked, x.said
			s.connEnded(c, why)
			name := fmt.Sprintf("%v, of one %s", why, x.name)
			expect.Equal(t, s.counts.ends[why].Load(), 1, "%s", name)
			dropped, late := int64(0), int64(0)
			if slices.Contains(ours, why) {
				dropped = 1
			}
			if why == ends.Handshake {
				late = 1
			}
			expect.Equal(t, s.metrics.ConnectionDropped.Load(), dropped,
				"%s: s.metrics.ConnectionDropped.Load()", name)
			expect.Equal(t, s.metrics.SessionlessExpired.Load(), late,
				"%s: s.metrics.SessionlessExpired.Load()", name)
			want := []string{"level=INFO", `msg="connection refused"`, "reason=", why.String()}
			switch {
			case why == ends.Client || why == ends.Session || why == ends.Word || x.said:
				want = []string{"level=DEBUG", `msg="connection ended"`, "session=0x" + fmt.Sprint(x.session), why.String()}
			case x.session != 0:
				want = []string{"level=INFO", `msg="connection closed"`, "session=0x7", why.String()}
			case x.asked != 0 && why == ends.Gone:
				want = []string{"level=INFO", `msg="connection refused"`, "its session is over", "session=0x9"}
			}
			for _, part := range append(want, "addr=10.0.0.1") {
				expect.Has(t, log.String(), part, "%s", name)
			}
			expect.Equal(t, strings.Count(log.String(), "\n"), 1, "%s: lines", name)
		}
	}
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
func (a textAddr) String() string  { return string(a) }

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

// The server describes a connection to operators in each of its states.
func TestStatesOfAConnectionAreDescribed(t *testing.T) {
	now := time.Unix(1000, 0)
	s, c := quiet(t, options.Options{Now: func() time.Time { return now }})
	c.pulse.received.Store(77)
	c.session, c.timeout = 7, 10*time.Second
	c.out.Push(outbox.Pending{Xid: 1})
	d := c.describe()
	expect.Equal(t, d.Session, 0, "before it has a session: d.Session")
	expect.Equal(t, d.Timeout, 0, "before it has a session: d.Timeout")
	expect.Equal(t, d.Queued, 1, "before it has a session: d.Queued")
	expect.Equal(t, d.BytesIn, 77, "before it has a session: d.BytesIn")
	expect.Equal(t, d.Interest, 1, "before it has a session: d.Interest")
	expect.Equal(t, d.LastCxid, -1, "before it has a session: d.LastCxid")
	expect.Equal(t, d.Received, 0, "before it has a session: d.Received")
	expect.That(t, d.Expires.IsZero(),
		"before it has a session: %+v: want d.Expires.IsZero()", d)
	expect.That(t, now.Sub(d.Established) < time.Hour,
		"since %v: want now.Sub(d.Established) < time.Hour", d.Established)
	expect.That(t, !d.Established.After(now),
		"since %v: want !d.Established.After(now)", d.Established)
	c.phase.Store(int32(phaseOpen))
	c.pulse.heard.Store(int64(s.now()))
	c.out.Pretend(false, true, 0, 0)
	d = c.describe()
	left := d.Expires.Sub(now)
	expect.Equal(t, d.Session, 7, "with a session: %+v, %v left: d.Session", d, left)
	expect.Equal(t, d.Timeout, 10*time.Second,
		"with a session: %+v, %v left: d.Timeout", d, left)
	expect.Equal(t, d.Interest, 0, "with a session: %+v, %v left: d.Interest", d, left)
	expect.That(t, left <= 16*time.Second &&
		left > 16*time.Second-time.Hour,
		"with a session: %+v, %v left: want left <= 16*time.Second && left > 16*time.Second-time.Hour",
		d, left)
	c.pulse.heard.Store(int64(s.now() + time.Hour))
	expect.That(t, c.describe().Expires.Sub(d.Expires) > 30*time.Minute, "it ends when it was heard of and a time")
	c.out.Pretend(true, true, 0, 0)
	expect.Equal(t, c.describe().Interest, 5, "while it is written")
	c.phase.Store(int32(phaseWord))
	d = c.describe()
	expect.Equal(t, d.Received, 1, "a word: d.Received")
	expect.Equal(t, d.Queued, 0, "a word: d.Queued")
	expect.Equal(t, d.Session, 0, "a word: d.Session")
	expect.Equal(t, d.LastCxid, -1, "a word: d.LastCxid")
}

// countingConn counts the bytes that pass through it.
type countingConn struct {
	net.Conn
	in, out int64
}

func (c *countingConn) Read(b []byte) (n int, err error) {
	n, err = c.Conn.Read(b)
	c.in += int64(n)
	return n, err
}

func (c *countingConn) Write(b []byte) (n int, err error) {
	n, err = c.Conn.Write(b)
	c.out += int64(n)
	return n, err
}

// proposed is a replica that calls do whenever a request is proposed for the log.
type proposed struct {
	still
	do func()
}

func (p proposed) Propose(state.Request, state.Waiter) error {
	p.do()
	return nil
}

// The server counts a write before it hands the request on, so a client with the answer finds it counted.
func TestWriteIsCountedBeforeItsAnswer(t *testing.T) {
	s, c := quiet(t, options.Options{})
	counted := uint64(0)
	c.replica = proposed{still{state.New("test")}, func() {
		status := &admin.Status{Now: time.Now()}
		s.Fill(status, admin.NeedMetrics)
		counted = uint64(status.Keyed["write_per_namespace"]["first"].Count)
	}}
	proposes := c.writeOp(1, jute.OpCreate, wire.Create("/first", nil, jute.WorldAnyone, 0))
	must.That(t, proposes, "it is not handed on")
	expect.Equal(t, counted, 1, "writes counted when the request is handed on")
}

// Every request, reply and byte of a client is counted once: for the server, for the connection, and for the
// first part of the path.
func TestRequestsAndBytesAreCounted(t *testing.T) {
	r := newRig(t, options.Options{})
	through := &countingConn{Conn: must.Get(net.Dial("tcp", r.ln.Addr().String()))(t)}
	c := wire.New(through)
	defer c.Close()
	must.OK(t, c.Connect(wire.NewSession(30000)))
	hello := through.out // a connection's own count begins behind it
	bytesOf := func(m map[string]metrics.Summary, name string) int { return int(m[name].Sum) }
	create := wire.Create("/first", make([]byte, 1000), jute.WorldAnyone, 0)
	call(t, c, jute.OK, jute.OpCreate, create)
	call(t, c, jute.NodeExists, jute.OpCreate, create)
	sync := wire.Path("/second/x")
	call(t, c, jute.OK, jute.OpSync, sync)
	call(t, c, jute.OK, jute.OpMulti, wire.Multi())
	answer := call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/first", false))
	call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/first", true))
	call(t, c, jute.NoNode, jute.OpGetData, wire.PathWatch("/second", false))
	call(t, c, jute.OK, jute.OpWhoAmI, nil)
	call(t, c, jute.OK, jute.OpPing, nil)
	const writes, reads, others = 4, 3, 3 // whoAmI, a ping and the connect request

	// The server may count a read only after it has written the reply, so the test waits.
	m := &r.srv.metrics
	eventually(t, "all requests counted", func() bool {
		return m.Requests.Value(time.Now(), 1).Count == writes+reads+others && m.PacketsReceived.Load() == writes+reads+others
	})
	status := r.status()
	for name, x := range map[string]struct{ got, want int }{
		"bytes that came":     {int(m.BytesReceived.Load()), int(through.out)},
		"bytes that went":     {int(m.ResponseBytes.Load()), int(through.in)},
		"frames that went":    {int(m.PacketsSent.Load()), writes + reads + others},
		"connect requests":    {int(m.ConnectionRequests.Load()), 1},
		"time of reads":       {int(m.ReadLatency.Value(time.Now(), 1).Count), reads},
		"time of writes":      {int(m.UpdateLatency.Value(time.Now(), 1).Count), writes},
		"written to /first":   {bytesOf(status.Keyed["write_per_namespace"], "first"), 2 * len(create)},
		"written to /second":  {bytesOf(status.Keyed["write_per_namespace"], "second"), len(sync)},
		"read of /first":      {bytesOf(status.Keyed["read_per_namespace"], "first"), 2 * (len(answer.Body) + 20)},
		"read of /second":     {bytesOf(status.Keyed["read_per_namespace"], "second"), 0},
		"watches":             {status.Watches, 1},
		"requests under way":  {status.Outstanding, 0},
		"connections":         {status.Conns, 1},
		"sessions came again": {int(m.Revalidated.Load()), 0},
	} {
		expect.Equal(t, x.got, x.want, "%s", name)
	}
	d := r.srv.Conns()[0]
	expect.Equal(t, d.BytesIn, through.out-hello, "d.BytesIn")
	expect.Equal(t, d.BytesOut, through.in, "d.BytesOut")
	expect.Equal(t, d.Sent, writes+reads+others, "d.Sent")
	expect.Equal(t, d.Received, writes+reads+others, "d.Received")
	expect.Equal(t, d.LastOp, "PING", "d.LastOp")

	// The server also counts connections that fail.
	again := r.attach(c.Session)
	eventually(t, "one that came again", func() bool { return m.Revalidated.Load() == 1 })
	must.OK(t, again.WriteRaw([]byte{0x7f, 0, 0, 0}))
	must.OK(t, again.Closed())
	eventually(t, "a frame too long", func() bool { return m.LargeRejected.Load() == 1 })
	for n, hello := range []string{"\x00\x00\x04\x01", "\x00\x00\x00\x01x"} {
		bad := r.dial()
		must.OK(t, bad.WriteRaw([]byte(hello)))
		must.OK(t, bad.Closed())
		eventually(t, "a connect request that is none", func() bool { return m.HandshakeFailed.Load() == int64(n+1) })
	}
}
