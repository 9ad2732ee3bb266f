package zk_test

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/leak"
	"github.com/zlockd/zlockd/test/must"
)

// scripted() returns the address of a server that grants every session. It answers each request with
// answer(), which gets the number of the connection, the request's xid and its operation. If an answer is
// shorter than its length field says, the server then closes the connection.
func scripted(t *testing.T, answer func(n, xid int32, op jute.OpCode) []byte) string {
	t.Helper()
	var connections atomic.Int32
	return answering(t, func(conn net.Conn) {
		n := connections.Add(1)
		serve(conn, func(xid int32, op jute.OpCode) []byte { return answer(n, xid, op) })
	})
}

// serve() grants a session on a connection, and answers its requests.
func serve(conn net.Conn, answer func(xid int32, op jute.OpCode) []byte) {
	for first := true; ; first = false {
		request := readRequest(conn)
		if request == nil {
			return
		}
		reply := granted
		if d := jute.NewDecoder(request); !first {
			reply = answer(d.Int(), jute.OpCode(d.Int()))
		}
		if _, err := conn.Write(reply); err != nil || len(reply) < 4 ||
			len(reply) < 4+int(binary.BigEndian.Uint32(reply)) {
			return
		}
	}
}

// granted is the answer to a handshake: session 7, with a timeout of 10 s.
var granted = func() []byte {
	hello := jute.AppendInt(jute.AppendInt(nil, 0), 10_000)
	hello = jute.AppendBuffer(jute.AppendLong(hello, 7), make([]byte, jute.PasswordSize))
	hello = jute.AppendBool(hello, false)
	return append(jute.AppendInt(nil, int32(len(hello))), hello...)
}()

func readRequest(conn net.Conn) []byte {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil
	}
	length := binary.BigEndian.Uint32(size[:])
	if length > 1<<20 {
		return nil // not a request, but the first bytes of a TLS handshake
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil
	}
	return b
}

// reply() makes the frame of an answer. Its length field is for a body of `size` bytes, even if `body` has
// another length.
func reply(xid int32, code jute.ErrCode, size int32, body []byte) []byte {
	b := jute.AppendInt(nil, size+jute.ReplyHeaderSize)
	b = jute.AppendLong(jute.AppendInt(b, xid), 1)
	return append(jute.AppendInt(b, int32(code)), body...)
}

// An invalid answer ends the connection. The Conn repeats reads on the next connection, but the outcome of a
// write is unknown.
func TestAnswerOfNoUseEndsTheConnection(t *testing.T) {
	leak.Check(t)
	good := jute.AppendStat(jute.AppendBuffer(nil, []byte("x")), &zk.Stat{Version: 5})
	for name, bad := range map[string]func(xid int32) []byte{
		"cut header":        func(xid int32) []byte { return reply(xid, jute.OK, 0, nil)[:8] },
		"negative size":     func(xid int32) []byte { return reply(xid, jute.OK, -1, nil) },
		"of another call":   func(xid int32) []byte { return reply(xid+1, jute.OK, int32(len(good)), good) },
		"endless":           func(xid int32) []byte { return reply(xid, jute.OK, math.MaxInt32-16, nil) },
		"cut body":          func(xid int32) []byte { return reply(xid, jute.OK, 2, []byte{0}) },
		"body of no answer": func(xid int32) []byte { return reply(xid, jute.OK, 2, []byte{0, 0}) },
		"session expired":   func(xid int32) []byte { return reply(xid, jute.SessionExpired, 0, nil) },
		"unknown session":   func(xid int32) []byte { return reply(xid, jute.UnknownSession, 0, nil) },
		"session moved":     func(xid int32) []byte { return reply(xid, -118, 0, nil) },
		"event of nothing":  func(int32) []byte { return reply(jute.XidEvent, jute.OK, 2, []byte{0, 0}) },
	} {
		ok := t.Run(name, func(t *testing.T) {
			var writes atomic.Int32
			c := dial(t, scripted(t, func(n, xid int32, op jute.OpCode) []byte {
				switch {
				case op == jute.OpSetData:
					writes.Add(1)
					return bad(xid)
				case op == jute.OpGetData && n == 1:
					return bad(xid)
				case op == jute.OpGetData:
					return reply(xid, jute.OK, int32(len(good)), good)
				}
				return reply(xid, jute.OK, 0, nil)
			}), zk.Options{})
			ctx := within(t)
			n := must.Get(c.Get(ctx, "/r"))(t)
			expect.Equal(t, string(n.Data), "x", "read %+v: string(n.Data)", n)
			expect.Equal(t, n.Stat.Version, 5, "read %+v: n.Stat.Version", n)
			_, err := c.Set(ctx, "/r", nil, -1)
			is(t, err, zk.ErrConnectionLost)
			must.Get(c.Get(ctx, "/r"))(t)
			expect.Equal(t, writes.Load(), 1, "the write was sent")
			is(t, c.Err(), nil)
		})
		must.That(t, ok, "the others would fail as slowly")
	}
}

// An old server answers a handshake with 36 bytes, a new server with 37, and a later release with a few more.
// A shorter or longer answer is not of the protocol.
func TestLengthsOfAHandshake(t *testing.T) {
	leak.Check(t)
	for size, taken := range map[int]bool{-1: false, 0: false, 35: false, 36: true, 37: true, 64: true, 65: false,
		1 << 30: false} {
		answer := jute.AppendInt(nil, int32(size))
		if size > 0 && size < 100 {
			answer = append(answer, append(granted[4:], make([]byte, 64)...)[:size]...)
		}
		told := make(chan error, 1)
		c := must.Get(zk.Open(answering(t, func(conn net.Conn) {
			if readRequest(conn) == nil {
				return
			}
			conn.Write(answer)
			conn.Read(make([]byte, 1)) // returns when the client closes the connection
		}), zk.Options{Timeout: 20 * time.Second, OnTrouble: func(_ string, err error) {
			select {
			case told <- err:
			default:
			}
		}}))(t)
		if taken {
			must.OK(t, c.Await(within(t)), "%d bytes", size)
			must.Equal(t, c.Session().ID, 7, "%d bytes: session", size)
		} else {
			err := soon(t, "the trouble", told)
			expect.Has(t, err.Error(), "does not come from a ZooKeeper server", "%d bytes", size)
		}
		over, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(over)
	}
}

// An event of a node outside the chroot has no effect, because the program cannot name that node.
func TestEventOutsideTheChroot(t *testing.T) {
	leak.Check(t)
	stat := jute.AppendStat(nil, &zk.Stat{Version: 5})
	c := dial(t, scripted(t, func(_, xid int32, _ jute.OpCode) []byte {
		b := jute.AppendEventFrame(nil, -1, jute.EventDeleted, "/a")
		return append(b, reply(xid, jute.OK, int32(len(stat)), stat)...)
	})+"/top/app", zk.Options{})
	st, w := must.Get2(c.ExistsW(within(t), "/a"))(t)
	must.Equal(t, st.Version, 5)
	must.Get(c.Exists(within(t), "/a"))(t)
	must.Equal(t, w.Event(), zk.Event{}, "event")
}

// If the answer to a handshake grants no session, or a timeout of 0, the session is over.
func TestHandshakesThatGrantNothing(t *testing.T) {
	leak.Check(t)
	for name, x := range map[string]struct {
		timeout int32
		session int64
		over    bool
	}{
		"a session": {10_000, 7, false}, "no session": {10_000, 0, true}, "no time": {0, 7, true},
		"neither": {0, 0, true},
	} {
		c := must.Get(zk.Open(answering(t, func(conn net.Conn) {
			if readRequest(conn) == nil {
				return
			}
			b := jute.AppendInt(jute.AppendInt(jute.AppendInt(nil, 37), 0), x.timeout)
			b = jute.AppendBuffer(jute.AppendLong(b, x.session), make([]byte, jute.PasswordSize))
			conn.Write(jute.AppendBool(b, false))
			conn.Read(make([]byte, 1))
		}), zk.Options{Timeout: 20 * time.Second}))(t)
		if x.over {
			soon(t, name, c.Over())
			is(t, c.Err(), zk.ErrSessionExpired)
		} else {
			must.OK(t, c.Await(within(t)), "%s", name)
		}
		over, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(over)
	}
}
