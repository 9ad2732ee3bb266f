package clients

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// withoutLeader returns a server that knows no leader, and a function that connects to the server.
func withoutLeader(t *testing.T, st *state.State) (s *Server, dial func() *wire.Conn) {
	s = idle(t, options.Options{MaxSessionTimeout: 10 * time.Second})
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() { s.CutOff(); expect.OK(t, <-served) })
	s.UseMeanwhile(still{st})
	s.ReadOnly(true)
	return s, func() *wire.Conn {
		c := must.Get(wire.Dial(ln.Addr().String()))(t)
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// Without a leader a server admits clients that ask for a read-only session, either a new one or one that it
// knows. It does not answer clients whose sessions it cannot know.
func TestSessionsWithoutALeader(t *testing.T) {
	st := state.New("test")
	password := [jute.PasswordSize]byte{1, 2, 3}
	known := st.Sessions().Create(6000, password, 1, "10.0.0.1", 0)
	s, dial := withoutLeader(t, st)
	for _, x := range []struct {
		name     string
		readOnly bool
		session  int64
		password []byte
		zxid     int64
		why      ends.Reason // ends.None: the client gets a session
	}{
		{"a new session", true, 0, password[:], 0, ends.None},
		{"a session for writes", false, 0, password[:], 0, ends.Serving},
		{"a known session", true, known.ID, password[:], 0, ends.None},
		{"a known session for writes", false, known.ID, password[:], 0, ends.Serving},
		{"another password", true, known.ID, make([]byte, jute.PasswordSize), 0, ends.Serving},
		{"an unknown session", true, known.ID + 1, password[:], 0, ends.Serving},
		{"no password", true, known.ID, nil, 0, ends.Gone},
		{"a client that has seen more", true, 0, password[:], 1, ends.Behind},
	} {
		c := dial()
		hello := wire.NewSession(5000)
		hello.ReadOnly, hello.SessionID, hello.Password, hello.LastZxidSeen = x.readOnly, x.session, x.password, x.zxid
		counted := s.conns.Counts.Ends[x.why].Load()
		err := c.Connect(hello)
		if x.why != ends.None {
			expect.Fails(t, err, "%s: it is let in", x.name)
			eventually(t, fmt.Sprint("the end of ", x.name),
				func() bool { return s.conns.Counts.Ends[x.why].Load() == counted+1 })
			continue
		}
		must.OK(t, err, "%s", x.name)
		got := c.Session
		expect.That(t, got.ReadOnly, "%s: %+v: want got.ReadOnly", x.name, got)
		expect.That(t, got.HasReadOnly, "%s: %+v: want got.HasReadOnly", x.name, got)
		expect.Equal(t, got.Timeout, 5000, "%s: got.Timeout", x.name)
		if x.session == 0 {
			expect.That(t, got.ID < 0, "%s: the id %#x may be one of the log", x.name, got.ID)
		} else {
			expect.Equal(t, got.ID, known.ID)
		}
		alive(t, c)
	}
	expect.Equal(t, s.Metrics().ClosedNotServing.Load(), 2, "clients that were turned away before their session")
	s.ReadOnly(false)
	eventually(t, "no connection left", func() bool { return len(s.conns.All()) == 0 })
	expect.Fails(t, dial().Connect(wire.NewSession(5000)), "a client of a server that serves no reads either")
	expect.Equal(t, s.Metrics().ClosedNotServing.Load(), 3, "clients that were turned away")
}

// A read-only session may read and ping. A request that would change something is refused, and the session
// stays.
func TestRequestsWithoutALeader(t *testing.T) {
	st := state.New("test")
	password := [jute.PasswordSize]byte{1}
	known := st.Sessions().Create(6000, password, 1, "10.0.0.1", 0)
	_, dial := withoutLeader(t, st)
	for _, id := range []int64{0, known.ID} {
		c := dial()
		hello := wire.NewSession(5000)
		hello.ReadOnly, hello.SessionID, hello.Password = true, id, password[:]
		must.OK(t, c.Connect(hello))
		call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/", true))
		call(t, c, jute.OK, jute.OpPing, nil)
		call(t, c, jute.OK, jute.OpSetWatches, wire.SetWatches(0, []string{"/"}, nil, nil))
		call(t, c, jute.OK, jute.OpWhoAmI, nil)
		call(t, c, jute.NotReadOnly, jute.OpCreate, wire.Create("/a", nil, jute.WorldAnyone, 0))
		call(t, c, jute.NotReadOnly, jute.OpSync, wire.Path("/"))
		call(t, c, jute.NotReadOnly, jute.OpCheck, wire.PathVersion("/", -1))
		call(t, c, jute.NotReadOnly, jute.OpReconfig, nil)
		if id != 0 { // a session with an id may go on at a server that has a leader, so it is not closed here
			call(t, c, jute.NotReadOnly, jute.OpCloseSession, nil)
			alive(t, c)
			continue
		}
		call(t, c, jute.OK, jute.OpCloseSession, nil)
		must.OK(t, c.Closed())
	}
}
