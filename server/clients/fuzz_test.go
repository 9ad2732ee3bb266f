package clients

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// fuzzRig is a server for many short connections over pipes.
func fuzzRig(f *testing.F) (*rig, *pipeListener) {
	ln := newPipeListener()
	return newRigOn(f, options.Options{MaxConnsPerAddr: -1, MinSessionTimeout: time.Second,
		MaxSessionTimeout: time.Second}, ln), ln
}

// feed() sends b over a new connection, discards all answers, and closes the connection.
func feed(t *testing.T, ln *pipeListener, b []byte) {
	client, server := net.Pipe()
	ln.conns <- server
	done := make(chan struct{})
	go func() {
		io.Copy(io.Discard, client)
		close(done)
	}()
	client.SetWriteDeadline(time.Now().Add(30 * time.Second))
	_, err := client.Write(b)
	expect.That(t, err == nil || err == io.ErrClosedPipe, "the server neither reads nor closes: %v", err)
	client.Close()
	<-done
}

// check() fails the test if something remains of the connections that feed() made.
func (r *rig) check(t *testing.T) {
	if n := r.srv.Metrics().UnrecoverableErrors.Load(); n != 0 {
		t.Fatalf("panic in a connection:\n%s", r.log)
	}
	eventually(t, "all connections gone", func() bool {
		return r.srv.conns.Empty()
	})
	must.Equal(t, r.srv.conns.Watches.Figures().All, 0, "watches of connections that have ended")
}

func FuzzHandshake(f *testing.F) {
	for _, hello := range []jute.ConnectRequest{
		wire.NewSession(1000), {Timeout: -1}, {LastZxidSeen: 1 << 60}, {SessionID: 1, Password: make([]byte, 16)},
		{SessionID: -1, Password: make([]byte, 17), HasReadOnly: true, ReadOnly: true},
	} {
		f.Add(wire.AppendConnectRequest(nil, hello))
	}
	for _, s := range []string{"ruok", "stmk", "GET / HTTP/1.1\r\n", "\x16\x03\x01\x00", "\xff\xf4\xff\xfd",
		"\x00\x00\x04\x00", ""} {
		f.Add([]byte(s))
	}
	r, ln := fuzzRig(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		feed(t, ln, b)
		r.check(t)
	})
}

// FuzzConn sends requests after a valid handshake. The input is a list of requests: a byte that selects the
// operation, two bytes for the length, and the body.
func FuzzConn(f *testing.F) {
	ops := []jute.OpCode{jute.OpCreate, jute.OpDelete, jute.OpExists, jute.OpGetData, jute.OpSetData,
		jute.OpGetACL,
		jute.OpSetACL, jute.OpGetChildren, jute.OpSync, jute.OpPing, jute.OpGetChildren2, jute.OpCheck,
		jute.OpMulti,
		jute.OpCreate2, jute.OpReconfig, jute.OpCheckWatches, jute.OpRemoveWatches, jute.OpCreateContainer,
		jute.OpDeleteContainer, jute.OpCreateTTL, jute.OpMultiRead, jute.OpAuth, jute.OpSetWatches, jute.OpSASL,
		jute.OpGetEphemerals, jute.OpGetAllChildrenNumber, jute.OpSetWatches2, jute.OpAddWatch, jute.OpWhoAmI,
		jute.OpCloseSession, 0, -1, 10, -10, -16}
	seed := func(requests ...any) {
		var b []byte
		for i := 0; i < len(requests); i += 2 {
			body := requests[i+1].(wire.Body)
			b = append(b, byte(slices.Index(ops, requests[i].(jute.OpCode))))
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
		}
		f.Add(b)
	}
	seed(jute.OpCreate, wire.Create("/a", []byte("x"), jute.WorldAnyone, 1), jute.OpGetData,
		wire.PathWatch("/a", true),
		jute.OpSetData, wire.SetData("/a", nil, -1), jute.OpDelete, wire.PathVersion("/a", -1))
	seed(jute.OpMulti, wire.Multi(wire.Op{Type: jute.OpCreate, Body: wire.Create("/b", nil, jute.WorldAnyone,
		3)}, wire.Op{Type: jute.OpCheck, Body: wire.PathVersion("/", -1)}),
		jute.OpMultiRead, wire.Multi(wire.Op{Type: jute.OpGetChildren, Body: wire.PathWatch("/", false)}))
	seed(jute.OpSetWatches2, wire.SetWatches2(0, []string{"/"}, []string{"/x"}, []string{"/"}, []string{"/p"},
		[]string{"/r"}),
		jute.OpAddWatch, wire.PathInt("/", 1), jute.OpRemoveWatches, wire.PathInt("/", 3), jute.OpCheckWatches,
		wire.PathInt("/", 4))
	seed(jute.OpAuth, wire.Auth("digest", "u:p"), jute.OpWhoAmI, wire.Body{}, jute.OpGetACL, wire.Path("/"),
		jute.OpSetACL, wire.SetACL("/", jute.WorldAnyone, -1), jute.OpGetEphemerals, wire.Path(""), jute.OpSync,
		wire.Path("/"))
	seed(jute.OpPing, wire.Body{}, jute.OpCreateTTL, wire.CreateTTL("/t", nil, jute.WorldAnyone, 5, 1),
		jute.OpSASL, wire.Body{}.Null(),
		jute.OpReconfig, wire.Body{}.Null().Null().Null().Long(1), jute.OpCloseSession, wire.Body{}, jute.OpPing,
		wire.Body{})
	f.Add([]byte{255, 0, 0, 0, 7})
	r, ln := fuzzRig(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		b := wire.AppendConnectRequest(nil, wire.NewSession(1000))
		for xid := int32(1); len(in) >= 3; xid++ {
			op := jute.OpCode(int(in[0]))
			if int(in[0]) < len(ops) {
				op = ops[in[0]]
			}
			n := min(int(binary.BigEndian.Uint16(in[1:])), len(in)-3)
			b = wire.AppendRequest(b, xid, op, in[3:3+n])
			in = in[3+n:]
		}
		feed(t, ln, append(b, in...))
		r.check(t)
	})
}
