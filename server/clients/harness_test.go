package clients

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// rig is a server that is the whole cluster and keeps everything in memory.
type rig struct {
	t     testing.TB
	o     raftfsm.Options
	srv   *Server
	node  *raftfsm.Node
	valve *valve
	ln    net.Listener
	log   *must.Text
}

// newRig starts a server on loopback, and stops it when the test ends. A panic
// in a connection fails the test.
func newRig(t testing.TB, o options.Options) *rig {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	return newRigOn(t, o, ln)
}

func newRigOn(t testing.TB, o options.Options, ln net.Listener) *rig {
	t.Helper()
	r := prepare(t, o, ln)
	r.start()
	r.serve()
	return r
}

// prepare makes a rig and does not start it.
func prepare(t testing.TB, o options.Options, ln net.Listener) *rig {
	t.Helper()
	r := &rig{t: t, ln: ln, log: new(must.Text)}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	}
	r.srv = must.Get(New(o))(t)
	r.o.MinSessionTimeout = o.MinSessionTimeout
	return r
}

// start starts the rig's member of the cluster.
func (r *rig) start() {
	o := r.o
	o.Observer, o.Logger = r.srv, slog.New(slog.NewTextHandler(io.Discard, nil))
	o.Fatal = func(err error) { r.t.Error(err) }
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r.node = must.Get(raftfsm.Start(ctx, o))(r.t)
}

// serve lets clients in.
func (r *rig) serve() {
	r.t.Helper()
	r.valve = &valve{Node: r.node}
	r.srv.Answer(echoWords{}, "http://127.0.0.1:8181")
	r.srv.Use(r.valve)
	served := make(chan error, 1)
	go func() { served <- r.srv.Serve(r.ln) }()
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a million sessions may end here
		defer cancel()
		r.valve.open()
		expect.OK(r.t, r.node.Close(ctx), "close node")
		expect.OK(r.t, r.srv.Shutdown(ctx), "shutdown")
		<-served
		if n := r.srv.Metrics().UnrecoverableErrors.Load(); n != 0 {
			r.t.Errorf("%d panics in connections:\n%s", n, r.log)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must.OK(r.t, r.srv.WaitServing(ctx))
}

// valve is a replica that holds requests back while it is closed.
type valve struct {
	*raftfsm.Node

	mu   sync.Mutex
	shut bool
	held []held
	cut  bool // whether the replica is cut off, so that pings get no answer
}

type held struct {
	r state.Request
	w state.Waiter
}

func (v *valve) Propose(r state.Request, w state.Waiter) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut {
		r.Body = bytes.Clone(r.Body)
		v.held = append(v.held, held{r, w})
		return nil
	}
	return v.Node.Propose(r, w)
}

func (v *valve) PingOK(d time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.cut && v.Node.PingOK(d)
}

// WaitZxid waits as a follower does. A leader would not wait, because it never lags behind.
func (v *valve) WaitZxid(ctx context.Context, zxid int64) bool {
	for v.Zxid() < zxid {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Millisecond):
		}
	}
	return true
}

func (v *valve) setCut(cut bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cut = cut
}

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = true
}

// open() lets all requests pass that were held back.
func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = false
	for _, h := range v.held {
		if err := v.Node.Propose(h.r, h.w); err != nil {
			h.w.Done(&state.Outcome{Unknown: true}, nil)
		}
	}
	v.held = nil
}

// waiting() returns the number of requests that the valve holds back.
func (v *valve) waiting() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.held)
}

// echoWords answers every word with itself.
type echoWords struct{}

func (echoWords) IsWord(first [4]byte) bool { return admin.IsWord(first) }

func (echoWords) Answer(conn io.ReadWriter, first [4]byte) error {
	_, err := conn.Write(append([]byte("word "), first[:]...))
	return err
}

// status returns the server's status as operators see it.
func (r *rig) status() *report.Status {
	s := &report.Status{Now: time.Now()}
	r.srv.Fill(s, report.NeedMetrics)
	return s
}

// measured() returns the sum of a metric's present values.
func (r *rig) measured(name string) (sum int) {
	for _, x := range r.status().Extra {
		if x.Name == name {
			sum += int(x.Value)
		}
	}
	return sum
}

// parked() returns the number of connections that rest without a goroutine.
func (r *rig) parked() int { return r.srv.conns.Resting.Len() }

// dial opens a connection without a session.
func (r *rig) dial() *wire.Conn {
	r.t.Helper()
	c := must.Get(wire.Dial(r.ln.Addr().String()))(r.t)
	r.t.Cleanup(func() { c.Close() })
	return c
}

// client opens a connection with a new session.
func (r *rig) client() *wire.Conn {
	r.t.Helper()
	c := r.dial()
	must.OK(r.t, c.Connect(wire.NewSession(30000)), "connect")
	return c
}

// attach opens a connection for an existing session.
func (r *rig) attach(s wire.Session) *wire.Conn {
	r.t.Helper()
	c := r.dial()
	must.OK(r.t, c.Connect(wire.Attach(s, 0)), "attach")
	return c
}

// sessions() returns the ids of all sessions.
func (r *rig) sessions() (ids []int64) {
	r.node.View(func(st *state.State) {
		st.Sessions().All(func(s session.Session) { ids = append(ids, s.ID) })
	})
	return ids
}

// call sends a request and fails the test unless the answer has the code `want`.
func call(t testing.TB, c *wire.Conn, want jute.ErrCode, op jute.OpCode, body wire.Body) wire.Frame {
	t.Helper()
	f := must.Get(c.Call(op, body))(t)
	must.Equal(t, f.Code, want, "%v: code %v", op, f.Code)
	must.That(t, f.Code == jute.OK || len(f.Body) <= 0, "%v: error reply has a body %x", op, f.Body)
	return f
}

// create makes a node that all clients may use.
func create(t testing.TB, c *wire.Conn, path, data string, flags int32) wire.Frame {
	t.Helper()
	return call(t, c, jute.OK, jute.OpCreate, wire.Create(path, []byte(data), jute.WorldAnyone, flags))
}

// kinds() reads n frames. It returns the path of each event and the xid of each reply.
func kinds(t testing.TB, c *wire.Conn, n int) []any {
	t.Helper()
	var list []any
	for range n {
		f := must.Get(c.Next())(t)
		if f.Event != nil {
			list = append(list, f.Event.Type.String()+" "+f.Event.Path)
		} else {
			list = append(list, int(f.Xid))
		}
	}
	return list
}

func wantKinds(t testing.TB, c *wire.Conn, want ...any) {
	t.Helper()
	got := kinds(t, c, len(want))
	must.List(t, got, want, "frames %v", got)
}

// eventually() waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	must.Await(t, "never: "+what, time.Minute, func() bool { return ok() })
}

// still is a replica of a server that knows no leader.
type still struct{ st *state.State }

func (s still) Propose(state.Request, state.Waiter) error {
	panic("nothing is written without a leader")
}

func (s still) View(f func(*state.State)) { f(s.st) }

func (s still) WaitZxid(context.Context, int64) bool { return false }

func (s still) Zxid() int64 { return s.st.Zxid() }

func (s still) PingOK(time.Duration) bool { return false }

// idle() returns a server that serves no client, and stops it when the test ends.
func idle(t testing.TB, o options.Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := must.Get(New(o))(t)
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s
}

// Bounds that package conn and other packages do not export. Tests of the whole server reach these bounds.
const (
	maxAuths      = 100
	maxConnecting = 256
	parkedAnswer  = 4 << 10
	saslEmpty     = 3
)
