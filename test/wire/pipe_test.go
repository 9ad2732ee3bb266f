package wire

import (
	"net"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// serve() answers a handshake, and then sends the given bytes in pieces of n bytes.
func serve(t *testing.T, n int, frames []byte) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Read(make([]byte, 4096))
		c.Write(jute.AppendConnectResponse(nil, 4000, 7, [16]byte{1}, true, false))
		for len(frames) > 0 {
			k := min(n, len(frames))
			c.Write(frames[:k])
			frames = frames[k:]
		}
		c.Read(make([]byte, 4096))
	}()
	return l.Addr().String()
}

func reply(b []byte, xid int32, body string) []byte {
	b, at := jute.BeginFrame(b)
	b = jute.AppendReplyHeader(b, xid, int64(xid), jute.OK)
	b = jute.AppendString(b, body)
	jute.EndFrame(b, at)
	return b
}

func TestPipeReassemblesFramesAndSkipsPings(t *testing.T) {
	big := string(make([]byte, 20_000))
	var frames []byte
	frames = reply(frames, 1, "/a")
	frames = reply(frames, jute.XidPing, "")
	frames = jute.AppendEventFrame(frames, 9, jute.EventDeleted, "/b")
	frames = reply(frames, 2, big)
	for _, n := range []int{1, 7, 1 << 20} {
		c := must.Get(OpenPipe(serve(t, n, frames), 0))(t)
		expect.That(t, c.Session.ID == 7 && c.Session.Timeout == 4000,
			"session %d, timeout %v", c.Session.ID, c.Session.Timeout)
		r, err := c.Next()
		expect.That(t, err == nil && r.Xid == 1 && r.Text() == "/a", "first reply: %v, %v", r, err)
		r, err = c.Next()
		if err != nil || r.Event == nil ||
			*r.Event != (Event{Type: jute.EventDeleted, State: 3, Path: "/b"}) {
			t.Errorf("event: %v, %v", r, err)
		}
		r, err = c.Next()
		expect.That(t, err == nil && r.Text() == big, "big reply: %d bytes, %v", len(r.Body), err)
		c.Drop()
	}
}
