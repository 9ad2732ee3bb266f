package clients

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/test/wire"
)

func TestClientCreatesReadsChangesAndDeletes(t *testing.T) {
	r := newRig(t, options.Options{})
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

// A server that is cut off serves no client, and health checks report that at once.
func TestServerThatIsCutOffServesNobody(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.dial()
	must.OK(t, c.Connect(wire.NewSession(4000)))
	alive(t, c)
	must.That(t, r.status().Serving, "it does not serve")
	r.srv.CutOff()
	expect.That(t, !r.status().Serving, "it says that it serves")
	must.OK(t, c.Closed())
}

// end() ends a session as the leader or an operator does.
func (r *rig) end(id int64, gen uint32, body []byte) {
	r.t.Helper()
	done := make(chan struct{})
	must.OK(r.t, r.node.Propose(state.Request{Op: state.OpExpire, Session: id, Gen: gen, Body: body},
		waiter(func(*state.Outcome) { close(done) })))
	<-done
}

// The server remembers the nodes of an ended session, and why its last connection had ended.
func TestWhatIsKnownOfAnEndedSession(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	for i := range 8 + 3 {
		create(t, a, fmt.Sprintf("/e%02d", i), "", jute.FlagEphemeral)
	}
	must.OK(t, a.Close())
	eventually(t, "connection gone", func() bool { return r.status().Conns == 0 })
	r.end(a.Session.ID, 1, nil)
	e := r.srv.conns.Observed.EndedSince(-1)[0]
	expect.Equal(t, e.PathCount, 8+3, "%d nodes: e.PathCount", e.PathCount)
	if expect.Equal(t, len(e.Paths), 4, "%d nodes: len(e.Paths)", e.PathCount) {
		expect.Equal(t, e.Paths[0], "/e00", "%d nodes: e.Paths[0]", e.PathCount)
	}
	expect.Equal(t, e.Addr, "127.0.0.1", "%+v: e.Addr", e)
	expect.That(t, e.Timeout != 0, "%+v: %s: want e.Timeout != 0", e, e.Reason())
	expect.Has(t, e.Reason(), "its connection had ended ", "%+v", e)
	expect.That(t, strings.HasSuffix(e.Reason(), "closed by the client"),
		"%+v: %s: want strings.HasSuffix(e.Reason(), \"closed by the client\")", e, e.Reason())
	select {
	case <-r.srv.conns.Observed.EndedNews():
	default:
		t.Error("nobody was told")
	}
}

// When a session ends that has come back after the loss of a connection, the lost connection is not given as
// the reason of its end.
func TestSessionThatCameBackHasNotLostItsConnection(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	must.OK(t, a.Close())
	eventually(t, "connection gone", func() bool { return r.status().Conns == 0 })
	b := r.attach(a.Session)
	r.end(a.Session.ID, 2, []byte{1})
	must.OK(t, b.Closed())
	e := r.srv.conns.Observed.EndedSince(-1)[0]
	expect.Equal(t, e.Lost, "", "%+v: e.Lost", e)
	expect.Equal(t, e.Reason(), "ended by an operator", "%+v: e.Reason()", e)
	expect.Equal(t, e.Cause, state.EndOperator, "%+v: e.Cause", e)
	expect.Equal(t, e.PathCount, 0, "%+v: e.PathCount", e)
}

// A session ended at another server. This server knows its address and its owner. It does not take the end of
// an earlier connection of the session here for the reason.
func TestEndOfASessionThatWasElsewhere(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	must.OK(t, a.Close())
	eventually(t, "connection gone", func() bool { return r.status().Conns == 0 })
	r.srv.SessionMoved(a.Session.ID, 2)
	r.srv.SessionEnded(&state.Ending{Session: session.Session{ID: a.Session.ID, Gen: 2, Timeout: 12_000,
		Owner: 3, Addr: "10.0.0.7"}, Cause: state.EndExpired, Zxid: 99, Time: 1_700_000_000_000})
	e := r.srv.conns.Observed.EndedSince(-1)[0]
	expect.Equal(t, e.Addr, "10.0.0.7", "%+v: e.Addr", e)
	expect.Equal(t, e.Server, 3, "%+v: e.Server", e)
	expect.Equal(t, e.Timeout, 12*time.Second, "%+v: e.Timeout", e)
	expect.Equal(t, e.Time.UnixMilli(), 1_700_000_000_000, "%+v: e.Time.UnixMilli()", e)
	expect.Equal(t, e.Reason(), "client silent for its whole timeout",
		"%+v: e.Reason()", e)
}

// The server remembers periods without service, and refused connections.
func TestTroublesAreRemembered(t *testing.T) {
	r := newRig(t, options.Options{MaxConnsPerAddr: 1})
	first := r.client()
	second := r.dial()
	must.OK(t, second.Closed())
	eventually(t, "refusal", func() bool {
		f, ok := r.srv.conns.Observed.Refused("127.0.0.1")
		return ok && strings.Contains(f.Why, "too many connections")
	})
	if _, ok := r.srv.conns.Observed.Refused("10.0.0.1"); ok {
		t.Error("another address was refused, too")
	}
	before := len(r.srv.conns.Observed.Downs())
	r.srv.Serving(false)
	must.OK(t, first.Closed())
	r.srv.Serving(false)
	r.srv.Serving(true)
	downs := r.srv.conns.Observed.Downs()
	if expect.Equal(t, len(downs), before+1, "len(downs)") {
		expect.That(t, !downs[before].Until.Before(downs[before].Since),
			"%v: want !downs[before].Until.Before(downs[before].Since)", downs)
	}
}

// living() returns the bytes of live objects and of stacks in this process.
func living() (heap, stacks int) {
	var m runtime.MemStats
	for range 3 { // stacks shrink by half each time
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.StackInuse)
}

// cpu returns the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdleSessionsTakeLittle bounds the memory of a session whose client only pings. ZLOCKD_SESSIONS=100000
// sets the number of sessions.
func TestIdleSessionsTakeLittle(t *testing.T) {
	n := asMany("ZLOCKD_SESSIONS", 2000)
	c := newCrowd(n)
	r := newRigOn(t, crowdOptions, c.ln)
	r.srv.conns.Resting.Use(c.poller)
	ping := wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)
	heap, stacks := living()
	began := time.Now()
	c.open(t)
	took := time.Since(began)
	pingAll := func() { c.ask(ping, 0) }
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
	// With few sessions, each pays more of the fixed costs: buckets of maps, spans of stacks.
	if most := 2500 + 2_000_000/n; h+s > most && !race.Enabled {
		t.Errorf("an idle session takes %d bytes, %d of heap and %d of stack", h+s, h, s)
	}
	runtime.KeepAlive(c)
}

// The server assembles a long list without the state lock, while changes happen. The list still shows a
// single moment. The client gets events only for changes after that moment, and only after the list.
func TestLongListsAreOfOneMoment(t *testing.T) {
	r := newRig(t, options.Options{})
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
	expect.Equal(t, n, many)
	expect.Equal(t, f.Xid, 99, "xid")
}
