package clients

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// end ends a session as the leader or an operator does.
func (r *rig) end(id int64, gen uint32, body []byte) {
	r.t.Helper()
	done := make(chan struct{})
	must.OK(r.t, r.node.Propose(state.Request{Op: state.OpExpire, Session: id, Gen: gen, Body: body},
		waiter(func(*state.Outcome) { close(done) })))
	<-done
}

// TestWhatIsKnownOfAnEndedSession: its nodes, and why its connection had ended
// before.
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

// TestSessionThatCameBackHasNotLostItsConnection: what is told is of the newest
// connection.
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
