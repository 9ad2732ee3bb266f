package clients

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestClientCreatesReadsChangesAndDeletes(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	create(t, c, "/a", "one", 0)
	f := call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/a", true))
	d := jute.NewDecoder(f.Body)
	must.Equal(t, string(d.Buffer()), "one", "data")
	must.OK(t, c.SendXid(7, jute.OpSetData, wire.SetData("/a", []byte("two"), -1)))
	wantKinds(t, c, "NodeDataChanged /a", 7)
	call(t, c, jute.OK, jute.OpPing, nil)
	call(t, c, jute.OK, jute.OpDelete, wire.PathVersion("/a", -1))
	call(t, c, jute.NoNode, jute.OpGetData, wire.PathWatch("/a", false))
	call(t, c, jute.OK, jute.OpCloseSession, nil)
	must.OK(t, c.Closed())
}

// A server that is cut off serves no client, and health checks hear so at once.
func TestServerThatIsCutOffServesNobody(t *testing.T) {
	r := newRig(t, Options{})
	c := r.dial()
	must.OK(t, c.Connect(wire.NewSession(4000)))
	alive(t, c)
	must.That(t, r.srv.Figures().Serving, "it does not serve")
	r.srv.CutOff()
	expect.That(t, !r.srv.Figures().Serving, "it says that it serves")
	must.OK(t, c.Closed())
}

// end ends a session as the leader or an operator does.
func (r *rig) end(id int64, gen uint32, body []byte) {
	r.t.Helper()
	done := make(chan struct{})
	must.OK(r.t, r.node.Propose(state.Request{Op: state.OpExpire, Session: id, Gen: gen, Body: body},
		waiter(func(*state.Outcome) { close(done) })))
	<-done
}

// TestWhatIsKnownOfAnEndedSession: its nodes, and why its connection had ended before.
func TestWhatIsKnownOfAnEndedSession(t *testing.T) {
	r := newRig(t, Options{})
	a := r.client()
	for i := range 8 + 3 {
		create(t, a, fmt.Sprintf("/e%02d", i), "", jute.FlagEphemeral)
	}
	must.OK(t, a.Close())
	eventually(t, "connection gone", func() bool { return r.srv.Figures().Conns == 0 })
	r.end(a.Session.ID, 1, nil)
	e := r.srv.Observed.EndedSince(-1)[0]
	expect.That(t, e.PathCount == 8+3 && len(e.Paths) == 8 && e.Paths[0] == "/e00",
		"%d nodes: %v", e.PathCount, e.Paths)
	if e.Addr != "127.0.0.1" || e.Timeout == 0 || !strings.Contains(e.Reason(), "its connection had ended ") ||
		!strings.HasSuffix(e.Reason(), "closed by the client") {
		t.Errorf("%+v: %s", e, e.Reason())
	}
	select {
	case <-r.srv.Observed.EndedNews():
	default:
		t.Error("nobody was told")
	}
}

// TestSessionThatCameBackHasNotLostItsConnection: what is told is of the newest connection.
func TestSessionThatCameBackHasNotLostItsConnection(t *testing.T) {
	r := newRig(t, Options{})
	a := r.client()
	must.OK(t, a.Close())
	eventually(t, "connection gone", func() bool { return r.srv.Figures().Conns == 0 })
	b := r.attach(a.Session)
	r.end(a.Session.ID, 2, []byte{1})
	must.OK(t, b.Closed())
	if e := r.srv.Observed.EndedSince(-1)[0]; e.Lost != "" || e.Reason() != "ended by an operator" ||
		e.Cause != state.EndOperator || e.PathCount != 0 {
		t.Errorf("%+v: %s", e, e.Reason())
	}
}

// TestEndOfASessionThatWasElsewhere: whom it was of is known everywhere, and what
// became of a connection that it had here before is no reason.
func TestEndOfASessionThatWasElsewhere(t *testing.T) {
	r := newRig(t, Options{})
	a := r.client()
	must.OK(t, a.Close())
	eventually(t, "connection gone", func() bool { return r.srv.Figures().Conns == 0 })
	r.srv.SessionMoved(a.Session.ID, 2)
	r.srv.SessionEnded(&state.Ending{Session: session.Session{ID: a.Session.ID, Gen: 2, Timeout: 12_000,
		Owner: 3, Addr: "10.0.0.7"}, Cause: state.EndExpired, Zxid: 99, Time: 1_700_000_000_000})
	e := r.srv.Observed.EndedSince(-1)[0]
	if e.Addr != "10.0.0.7" || e.Server != 3 || e.Timeout != 12*time.Second ||
		e.Time.UnixMilli() != 1_700_000_000_000 || e.Reason() != "client silent for its whole timeout" {
		t.Errorf("%+v: %s", e, e.Reason())
	}
}

// TestTroublesAreRemembered: times without service, and refused connections.
func TestTroublesAreRemembered(t *testing.T) {
	r := newRig(t, Options{MaxConnsPerAddr: 1})
	first := r.client()
	second := r.dial()
	must.OK(t, second.Closed())
	eventually(t, "refusal", func() bool {
		f, ok := r.srv.Observed.Refused("127.0.0.1")
		return ok && strings.Contains(f.Why, "too many connections")
	})
	if _, ok := r.srv.Observed.Refused("10.0.0.1"); ok {
		t.Error("another address was refused, too")
	}
	before := len(r.srv.Observed.Downs())
	r.srv.Serving(false)
	must.OK(t, first.Closed())
	r.srv.Serving(false)
	r.srv.Serving(true)
	downs := r.srv.Observed.Downs()
	expect.That(t, len(downs) == before+1 && !downs[before].Until.Before(downs[before].Since),
		"%v", downs)
}

// memConn is the server's end of a connection that is nothing but memory, and
// little of it: what is measured is the server's. It keeps no deadlines.
type memConn struct {
	toServer chan []byte
	rest     []byte // of what was taken from it
	closed   sync.Once
	addr     *net.TCPAddr
	poller   *memPoller
	slot     atomic.Int64 // of the poller, and one; 0: it is not polled

	mu       sync.Mutex
	toClient []byte
}

func (c *memConn) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		b, open := <-c.toServer
		if !open {
			return 0, net.ErrClosed
		}
		c.rest = b
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// send sends what the server has not yet been sent before.
func (c *memConn) send(b []byte) {
	c.toServer <- b
	c.poller.arrived(c)
}

func (c *memConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.toClient = append(c.toClient, b...)
	c.mu.Unlock()
	return len(b), nil
}

func (c *memConn) Close() error                     { c.closed.Do(func() { close(c.toServer) }); return nil }
func (c *memConn) LocalAddr() net.Addr              { return c.addr }
func (c *memConn) RemoteAddr() net.Addr             { return c.addr }
func (c *memConn) SetDeadline(time.Time) error      { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

// memPoller is a poller of memConns.
type memPoller struct {
	mu   sync.Mutex
	cond sync.Cond
	list []arrival // those from head on are untold
	head int
	done bool
}

func (p *memPoller) arrived(c *memConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := c.slot.Load(); slot > 0 && len(c.toServer) > 0 {
		p.list = append(p.list, arrival{slot: uint32(slot - 1)})
		p.cond.Signal()
	}
}

func (p *memPoller) takes(c *conn) bool { _, ok := c.nc.(*memConn); return ok }

func (p *memPoller) add(c *conn, slot uint32) error {
	m := c.nc.(*memConn)
	m.slot.Store(int64(slot) + 1)
	p.arrived(m)
	return nil
}

func (p *memPoller) remove(c *conn) { c.nc.(*memConn).slot.Store(0) }

func (p *memPoller) wait(buf []arrival) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.head == len(p.list) && !p.done {
		p.cond.Wait()
	}
	if p.done {
		return 0, net.ErrClosed
	}
	n = copy(buf, p.list[p.head:])
	if p.head += n; p.head == len(p.list) {
		p.list, p.head = p.list[:0], 0
	}
	return n, nil
}

func (p *memPoller) read(c *conn, b []byte) (n int, err error) {
	select {
	case in, open := <-c.nc.(*memConn).toServer:
		if !open {
			return 0, net.ErrClosed
		}
		return copy(b, in), nil
	default:
		return 0, nil
	}
}

func (p *memPoller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	p.cond.Broadcast()
}

// take waits for a frame from the server.
func (c *memConn) take() []byte {
	for {
		c.mu.Lock()
		if len(c.toClient) >= 4 {
			if n := 4 + int(binary.BigEndian.Uint32(c.toClient)); len(c.toClient) >= n {
				frame := c.toClient[4:n]
				c.toClient = nil
				c.mu.Unlock()
				return frame
			}
		}
		c.mu.Unlock()
		runtime.Gosched()
	}
}

// living is what the process has in live objects and stacks.
func living() (heap, stacks int) {
	var m runtime.MemStats
	for range 3 { // stacks shrink by half each time
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.StackInuse)
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdleSessionsTakeLittle bounds the memory of a session whose client only
// pings. ZLOCKD_SESSIONS=100000 measures as many.
func TestIdleSessionsTakeLittle(t *testing.T) {
	n := 2000
	if v := os.Getenv("ZLOCKD_SESSIONS"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	ln := newPipeListener()
	r := newRigOn(t, Options{MaxConns: -1, MaxConnsPerAddr: -1, MaxSessionTimeout: time.Hour}, ln)
	p := new(memPoller)
	p.cond.L = &p.mu
	r.srv.resting.use(p)
	conns, addr := make([]*memConn, n), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for i := range conns {
		conns[i] = &memConn{toServer: make(chan []byte, 1), addr: addr, poller: p}
	}
	hello := wire.AppendConnectRequest(nil, wire.NewSession(3_600_000))
	ping := wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)
	heap, stacks := living()
	began := time.Now()
	for _, c := range conns {
		ln.conns <- c
		c.toServer <- hello
	}
	for _, c := range conns {
		frame := c.take()
		must.That(t, binary.BigEndian.Uint32(frame[4:]) != 0, "no session")
	}
	took := time.Since(began)
	pingAll := func() {
		for _, c := range conns {
			c.send(ping)
		}
		for _, c := range conns {
			c.take()
		}
	}
	pingAll()
	eventually(t, "all rest", func() bool { return r.parked() == n })
	heap2, stacks2 := living()
	before := cpu()
	for range 3 {
		pingAll()
	}
	each := (cpu() - before) / time.Duration(3*n)
	h, s := (heap2-heap)/n, (stacks2-stacks)/n
	t.Logf("%d sessions in %v: each %d bytes, of them %d of stack; a ping %v of processor", n,
		took.Round(time.Millisecond), h+s, s, each)
	// Few sessions share what there is once: buckets of maps, spans of stacks.
	if most := 2500 + 2_000_000/n; h+s > most && !raceDetector {
		t.Errorf("an idle session takes %d bytes, %d of heap and %d of stack", h+s, h, s)
	}
	runtime.KeepAlive(conns)
}

// A long list is put together while the state is not locked. Changes go on beside it: the client hears of
// those behind the list that it watches, never before, and the list is of one moment.
func TestLongListsAreOfOneMoment(t *testing.T) {
	r := newRig(t, Options{})
	c, other := r.client(), r.client()
	create(t, other, "/dir", "", 0)
	const many = 5000
	name := strings.Repeat("n", 1000)
	for at := 0; at < many; at += 500 {
		var ops []wire.Op
		for i := at; i < at+500; i++ {
			path := fmt.Sprintf("/dir/%s%05d", name, i)
			ops = append(ops, wire.Op{Type: jute.OpCreate, Body: wire.Create(path, nil, jute.WorldAnyone,
				jute.FlagEphemeral)})
		}
		call(t, other, jute.OK, jute.OpMulti, wire.Multi(ops...))
	}
	for _, op := range []jute.OpCode{jute.OpGetChildren, jute.OpGetChildren2} {
		for k := range 5 {
			must.OK(t, c.WriteRaw(wire.AppendRequest(nil, int32(k+1), op, wire.PathWatch("/dir", true))))
			create(t, other, "/dir/x", "", 0)
			call(t, other, jute.OK, jute.OpDelete, wire.PathVersion("/dir/x", -1))
			f := must.Get(c.Reply())(t)
			d := jute.NewDecoder(f.Body)
			if n := d.Int(); f.Code != jute.OK || f.Xid != int32(k+1) || n != many && n != many+1 {
				t.Fatalf("%v: reply %d %v of %d names", op, f.Xid, f.Code, n)
			}
			for range many {
				got, _ := d.String()
				must.That(t, strings.HasPrefix(got, name) || got == "x", "%v: %q", op, got)
			}
			must.OK(t, d.Err())
		}
	}
	must.OK(t, other.WriteRaw(wire.AppendRequest(nil, 99, jute.OpGetEphemerals, wire.Path("/dir"))))
	f := must.Get(other.Reply())(t)
	d := jute.NewDecoder(f.Body)
	n := d.Int()
	expect.That(t, n == many && f.Xid == 99, "%d ephemeral nodes of %d, reply %d", n, many, f.Xid)
}
