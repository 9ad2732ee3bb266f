package clients

import (
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

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

// Every request, reply and byte of a client is counted once for the server, once for the connection, and once
// for the first part of the path.
func TestRequestsAndBytesAreCounted(t *testing.T) {
	r := newRig(t, options.Options{})
	through := &countingConn{Conn: must.Get(net.Dial("tcp", r.ln.Addr().String()))(t)}
	c := wire.New(through)
	defer c.Close()
	must.OK(t, c.Connect(wire.NewSession(30000)))
	hello := through.out // the count of the connection begins after the connect request
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
	const writes, reads, others = 4, 3, 3 // the others: whoAmI, a ping and the connect request

	// The server may count a read only after it has written the reply, so the test waits.
	m := r.srv.Metrics()
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

	// The server also counts sessions that come back, frames that are too long, and malformed connect requests.
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
