package server

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// A server without a majority lets only clients read that ask for read-only sessions; with a
// majority it sends them away and serves.
func TestReadOnlyMode(t *testing.T) {
	e := newEnsemble(t, 3, slog.New(slog.DiscardHandler), func(o *Options) { o.Raft.ReadOnly = true })
	id, _ := e.leader()
	var others []uint32
	for other := range e.servers {
		if other != id {
			others = append(others, other)
		}
	}
	i := e.servers[id]
	e.write(i, "/a", 3)
	before := must.Get(wire.Open(i.ClientAddr()))(t)
	defer before.Close()
	for _, other := range others {
		must.OK(t, e.servers[other].Close(context.Background()))
	}
	must.Await(t, "not in read-only mode", time.Minute, func() bool {
		return i.Status(0).Mode == admin.ReadOnly
	})
	if s := i.Status(0); s.Serving {
		t.Error("read-only, and serving everybody")
	}

	open := func(hello jute.ConnectRequest) *wire.Conn {
		c := must.Get(wire.Dial(i.ClientAddr()))(t)
		t.Cleanup(func() { c.Close() })
		if err := c.Connect(hello); err != nil {
			return nil
		}
		return c
	}
	readOnly := func(h jute.ConnectRequest) jute.ConnectRequest { h.ReadOnly = true; return h }
	expect.That(t, open(wire.NewSession(30000)) == nil, "a client that wants to write was let in")
	expect.That(t, open(readOnly(wire.Attach(before.Session, 1<<40))) == nil,
		"a client that has seen more was let in")
	wrong := before.Session
	wrong.Password = append([]byte{wrong.Password[0] + 1}, wrong.Password[1:]...)
	expect.That(t, open(readOnly(wire.Attach(wrong, 0))) == nil,
		"a client with a wrong password was let in")
	for name, hello := range map[string]jute.ConnectRequest{"new": readOnly(wire.NewSession(30000)),
		"attached": readOnly(wire.Attach(before.Session, 0))} {
		c := open(hello)
		must.That(t, c != nil, "%s: not let in", name)
		call := func(want jute.ErrCode, op jute.OpCode, body wire.Body) {
			t.Helper()
			f := must.Get(c.Call(op, body))(t)
			expect.Equal(t, f.Code, want, "%s: %v answers %v", name, op, f.Code)
		}
		call(jute.OK, jute.OpGetData, wire.PathWatch("/a2", true))
		call(jute.OK, jute.OpPing, nil)
		call(jute.NotReadOnly, jute.OpCreate, wire.Create("/b", nil, jute.WorldAnyone, 0))
		call(jute.NotReadOnly, jute.OpSync, wire.Body{}.Str("/a2"))
		call(jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
		if name == "attached" {
			call(jute.NotReadOnly, jute.OpCloseSession, nil) // it goes on elsewhere
		}
	}

	// With a majority again the server sends the readers away, and serves all clients.
	reader := open(readOnly(wire.NewSession(30000)))
	e.restart(others[0])
	must.OK(t, reader.Closed())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.OK(t, i.Ready(ctx))
	again := must.Get(wire.Dial(i.ClientAddr()))(t)
	defer again.Close()
	must.OK(t, again.Connect(readOnly(wire.Attach(before.Session, 0))))
	create(t, again, "/b", 0)
}

// Without the option there is no service without a leader.
func TestNoReadOnlyModeUnlessWanted(t *testing.T) {
	e := newEnsemble(t, 3, slog.New(slog.DiscardHandler))
	id, i := e.leader()
	for other, s := range e.servers {
		if other != id {
			must.OK(t, s.Close(context.Background()))
		}
	}
	must.Await(t, "serves without a majority", time.Minute, func() bool { return !i.Status(0).Serving })
	for range 100 {
		must.That(t, i.Status(0).Mode != admin.ReadOnly, "read-only mode although not wanted")
		time.Sleep(10 * time.Millisecond)
	}
}
