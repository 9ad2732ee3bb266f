package clients

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// reading() starts a read and returns a channel for its result.
func reading(c *wire.Conn) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, _, err := c.GetData("/", false)
		done <- err
	}()
	return done
}

func completed(t *testing.T, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("never: %s", what)
		return nil
	}
}

// pass gives the outcome `out` to the oldest request that the valve holds back, in a batch of its own.
func (r *rig) pass(out *state.Outcome) {
	v := r.valve
	v.mu.Lock()
	oldest := v.held[0]
	v.held = v.held[1:]
	v.mu.Unlock()
	oldest.w.Done(out, nil)
	r.srv.conns.Outboxes.Kick()
}

// For a linearizable read the server proposes a request, and answers the read only when this request has gone
// through the log. A request for another client's read does not count.
func TestLinearizableReadsWaitForTheirOwnRequests(t *testing.T) {
	r := newRig(t, options.Options{LinearizableReads: true})
	a, b := r.client(), r.client()
	must.OK(t, completed(t, "a read", reading(a)))
	r.valve.close()
	first := reading(a)
	eventually(t, "a request is made", func() bool { return r.valve.waiting() == 1 })
	second := reading(b)
	eventually(t, "another request is made", func() bool { return r.valve.waiting() == 2 })
	select {
	case <-first:
		t.Fatal("answered before its request")
	default:
	}
	r.pass(&state.Outcome{})
	must.OK(t, completed(t, "the first read", first))
	select {
	case <-second:
		t.Fatal("answered by the request of another read")
	case <-time.After(50 * time.Millisecond):
	}
	r.valve.open()
	must.OK(t, completed(t, "the second read", second))
	must.OK(t, completed(t, "another read", reading(a)))
}

// If the request that the server proposed for a linearizable read has an unknown outcome, the read gets no
// answer.
func TestLinearizableReadWithoutAnOutcomeEndsTheConnection(t *testing.T) {
	r := newRig(t, options.Options{LinearizableReads: true})
	a, b := r.client(), r.client()
	r.valve.close()
	lost := reading(a)
	eventually(t, "a request is made", func() bool { return r.valve.waiting() == 1 })
	r.pass(&state.Outcome{Unknown: true})
	must.Fails(t, completed(t, "the read", lost), "it is answered")
	r.valve.open()
	must.OK(t, completed(t, "a read of another", reading(b)))
}

// The server says which sessions watch exactly a given path.
func TestWatchersOfAPath(t *testing.T) {
	r := newRig(t, options.Options{})
	a, b := r.client(), r.client()
	create(t, a, "/w", "", 0)
	for _, c := range []*wire.Conn{a, b} {
		_, _, err := c.GetData("/w", true)
		must.OK(t, err)
	}
	_, _, err := a.Children("/", true)
	must.OK(t, err)
	for _, x := range []struct {
		session         int64
		path            string
		watching, known bool
	}{
		{a.Session.ID, "/w", true, true}, {a.Session.ID, "/", true, true}, {b.Session.ID, "/w", true, true},
		{b.Session.ID, "/", false, true}, {a.Session.ID, "/w/x", false, true}, {99, "/w", false, false},
	} {
		watching, known := r.srv.Watching(x.session, x.path)
		expect.Equal(t, watching, x.watching, "watching")
		expect.Equal(t, known, x.known, "known")
	}
	expect.Equal(t, len(r.srv.Watchers("/w", 10)), 2)
	expect.Equal(t, len(r.srv.Watchers("/w", 1)), 1)
	expect.List(t, r.srv.Watchers("/", 10), []int64{a.Session.ID})
	expect.List(t, r.srv.Watchers("/none", 10), nil)
	for session, want := range map[int64]int{a.Session.ID: 2, b.Session.ID: 1, 99: 0} {
		expect.Equal(t, r.srv.WatchCount(session), want, "watches of 0x%x", session)
	}
}

func TestOptionsOfClientsThatAreRefused(t *testing.T) {
	for name, o := range map[string]options.Options{
		"short sessions":     {MinSessionTimeout: time.Microsecond},
		"no longer sessions": {MinSessionTimeout: 2 * time.Second, MaxSessionTimeout: time.Second},
		"endless sessions":   {MaxSessionTimeout: 1 << 31 * time.Millisecond},
		"small frames":       {MaxFrame: 127},
		"large frames":       {MaxFrame: 1 << 30},
	} {
		_, err := New(o)
		expect.Fails(t, err, "%s", name)
	}
	for _, o := range []options.Options{{MinSessionTimeout: time.Second, MaxSessionTimeout: time.Second},
		{MaxSessionTimeout: (1<<31 - 1) * time.Millisecond}, {MaxFrame: 128}} {
		_, err := New(o)
		expect.OK(t, err, "%+v", o)
	}
}

// The bounds of connections may change while the server runs.
func TestBoundsOfConnectionsAreChanged(t *testing.T) {
	r := newRig(t, options.Options{MaxConnsPerAddr: 5})
	expect.Equal(t, r.srv.MaxConnsPerAddr(), 5)
	r.client()
	expect.That(t, !r.srv.Change(options.Options{MaxConnsPerAddr: 1}), "the users of SASL are others")
	expect.Equal(t, r.srv.MaxConnsPerAddr(), 1)
	c := r.dial()
	must.Fails(t, c.Connect(wire.NewSession(30000)), "a second connection of one address")
	r.srv.Change(options.Options{MaxConnsPerAddr: -1})
	call(t, r.client(), jute.OK, jute.OpExists, wire.PathWatch("/", false))
}
