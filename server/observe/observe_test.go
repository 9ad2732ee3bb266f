package observe

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
)

// A server remembers only the newest times at which it stopped serving.
func TestDownTimesAreBounded(t *testing.T) {
	var c Clients
	c.Init(new(metrics.Set), time.Now(), time.Now, nil)
	c.NoteServing(true)
	expect.Equal(t, len(c.Downs()), 0, "a server that begins to serve was not down")
	for range 2 * keptDowns {
		c.NoteServing(false)
		c.NoteServing(true)
	}
	expect.Equal(t, len(c.Downs()), keptDowns, "are kept")
}

func TestEndedSessionsAreRememberedUpToABound(t *testing.T) {
	var c Clients
	c.Init(new(metrics.Set), time.Now(), time.Now, nil)
	for id := range int64(endedKept + 10) {
		c.SessionEnded(&state.Ending{Session: session.Session{ID: id}, Cause: state.EndClosed, Zxid: id}, -1)
	}
	e := c.EndedSince(-1)
	if expect.Equal(t, len(e), endedKept, "length of %v", e) {
		expect.Equal(t, e[0].Session, endedKept+9, "session")
		expect.Equal(t, e[endedKept-1].Session, 10, "session")
	}
}

// Clients choose names, and the server limits how much it keeps of them.
func TestNamesAreBounded(t *testing.T) {
	var r recent
	for i := range 3 * maxNames {
		r.Add(fmt.Sprint("/", i), Count{Requests: 1}, time.Second)
	}
	r.Add(strings.Repeat("x", maxName+1), Count{Requests: 1}, time.Second)
	expect.Equal(t, len(r.Counts(time.Second)), maxNames, "names")
}

// Requests are counted in windows of a fixed length. What was counted in one window is shown until the next
// window ends.
func TestCountsAreOfTheLastMinutes(t *testing.T) {
	var r recent
	r.Add("a", Count{2, 10}, 0)
	r.Add("a", Count{1, 5}, window+time.Second)
	expect.Equal(t, r.Counts(window + 2*time.Second)["a"], Count{3, 15})
	expect.Equal(t, len(r.Counts(4*window)), 0, "names after a window without a request")
}

// Up to ten slow requests a second are logged with operation, session and address. The others are only
// counted.
func TestSlowRequestsAreLogged(t *testing.T) {
	var text strings.Builder
	s := &Slow{Bound: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&text, nil))}
	ask := func(at, took time.Duration) {
		s.Request(&Request{Op: jute.OpSync, Session: 0x1f, Addr: "10.0.0.1", Arrived: at - took, Begun: at - took/2,
			Answered: at})
	}
	ask(time.Second, 99*time.Millisecond)
	expect.Equal(t, text.Len(), 0, "a quick one is logged: %s", text.String())
	for range 15 {
		ask(1500*time.Millisecond, 200*time.Millisecond)
	}
	n := strings.Count(text.String(), "slow request")
	expect.Equal(t, n, 10)
	expect.Equal(t, s.seen.Load(), 15, "seen")
	expect.Equal(t, s.skipped.Load(), 5, "skipped")
	ask(2*time.Second, time.Second)
	last := text.String()[strings.LastIndex(text.String(), "level="):]
	const want = `msg="slow request" operation=sync path="" session=0x1f addr=10.0.0.1 took=1s waited=500ms carried_out=500ms`
	if !strings.Contains(last, want) {
		t.Errorf("%s\nnot %s", last, want)
	}
	ask(3*time.Second, s.Bound)
	expect.Equal(t, s.seen.Load(), 17, "a request that takes just as long as the bound is slow")
}

// A slow write shows its stages, in its line of the log and in histograms of all requests.
func TestSlowWriteTellsItsStages(t *testing.T) {
	var text strings.Builder
	s := &Slow{Bound: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&text, nil))}
	s.Request(&Request{Op: jute.OpSetData, Arrived: 1, Begun: 2, Logged: 3, Answered: 4})
	s.Request(&Request{Op: jute.OpSetData, Arrived: time.Second, Begun: 1100 * time.Millisecond,
		Logged: 1900 * time.Millisecond, Answered: 1950 * time.Millisecond})
	const want = "took=950ms waited=100ms logged=800ms applied=50ms code"
	if !strings.Contains(text.String(), want) {
		t.Errorf("%s\nnot %s", text.String(), want)
	}
	var status report.Status
	s.Status(&status)
	got := map[string]*report.Histogram{}
	for _, x := range status.Extra {
		if x.Histogram != nil {
			got[x.Labels[0].Value] = x.Histogram
		}
	}
	for stage, want := range map[string]report.Histogram{
		"waited":  {Count: 2, Sum: 0.100000001, Buckets: map[float64]uint64{0.0001: 1, 0.05: 1, 0.1: 2, 5: 2}},
		"logged":  {Count: 2, Sum: 0.800000001, Buckets: map[float64]uint64{0.0001: 1, 0.5: 1, 1: 2}},
		"applied": {Count: 2, Sum: 0.050000001, Buckets: map[float64]uint64{0.0001: 1, 0.01: 1, 0.05: 2}},
	} {
		h := got[stage]
		if !expect.That(t, h != nil, "%s: it has no histogram", stage) {
			continue
		}
		expect.Equal(t, h.Count, want.Count, "%s: count", stage)
		expect.Equal(t, h.Sum, want.Sum, "%s: sum", stage)
		for bound, n := range want.Buckets {
			expect.Equal(t, h.Buckets[bound], n, "%s up to %g s", stage, bound)
		}
	}
	h := got["carried_out"]
	if expect.That(t, h != nil, "without the log: %+v", h) {
		expect.Equal(t, h.Count, 0, "without the log: count")
	}
}

// Operators see why a session ended, and how long its client had been silent.
func TestReasonsOfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clients
		c.Init(new(metrics.Set), time.Now(), time.Now, nil)
		time.Sleep(10 * time.Second)
		c.ConnLost(3, "reset", 4*time.Second)
		c.ConnLost(4, "reset", 4*time.Second)
		c.SessionCame(4)
		time.Sleep(5 * time.Second)
		for id, heard := range []time.Duration{-1, 12 * time.Second, -1, -1, -1} {
			cause := state.EndExpired
			if id == 0 {
				cause = state.EndClosed
			}
			c.SessionEnded(&state.Ending{Session: session.Session{ID: int64(id)}, Cause: cause, Zxid: int64(id + 1)},
				heard)
		}
		var got []string
		for _, e := range c.EndedSince(0) {
			got = append(got, e.Reason())
		}
		expect.List(t, got, []string{"client silent for its whole timeout",
			"client silent for 11s; its connection had ended 5s before: reset", "client silent for its whole timeout",
			"client silent for 3s", "closed by its client"})
		expect.Equal(t, (&EndedSession{Cause: state.EndOperator, Silent: 1}).Reason(), "ended by an operator")
	})
}

// Clients that go away for good take limited memory.
func TestLostConnectionsAreBounded(t *testing.T) {
	var c Clients
	c.Init(new(metrics.Set), time.Now(), time.Now, nil)
	for id := range int64(maxLost + 10) {
		c.ConnLost(id, "reset", 0)
	}
	expect.Equal(t, len(c.lost.by), maxLost, "are kept")
}

// The newest refusal of an address is remembered, for a limited number of addresses.
func TestRefusalsAreRemembered(t *testing.T) {
	var c Clients
	c.Init(new(metrics.Set), time.Now(), time.Now, nil)
	for _, why := range []string{"first", "second"} {
		c.Refuse("a", why)
		r, ok := c.Refused("a")
		expect.That(t, ok, "%+v", r)
		expect.Equal(t, r.Why, why, "why")
		expect.That(t, !r.Time.IsZero(), "%+v", r)
	}
	for i := range keptRefusals {
		c.Refuse(fmt.Sprint(i), "again")
	}
	_, newest := c.Refused(fmt.Sprint(keptRefusals - 1))
	_, oldest := c.Refused("a")
	expect.That(t, newest, "the newest refusal is not known")
	expect.That(t, !oldest, "the oldest refusal is known")
}

// The sizes of replies are recorded when they are written: of each write the smallest, the largest and the
// last one. Events do not count.
func TestSizesOfReplies(t *testing.T) {
	var s Conn
	var m metrics.Set
	for _, n := range []int{20, 10, 30, 15} {
		s.Size(n)
	}
	s.Wrote(4, 75, &m)
	expect.Equal(t, m.Responses.Value(), metrics.Sizes{Last: 15, Min: 10, Max: 30})
	m.Responses.Reset()
	s.Size(50)
	s.Wrote(1, 50, &m)
	s.Wrote(1, 20, &m) // an event
	expect.Equal(t, m.Responses.Value(), metrics.Sizes{Last: 50, Min: 50, Max: 50})
}

// The counts of a connection, as operators see them, after each step of its life.
func TestCountsOfAConnection(t *testing.T) {
	var m metrics.Set
	c := NewConn()
	shown := func(session int64) report.Conn {
		d := report.Conn{Session: session}
		c.Describe(&d)
		return d
	}
	expect.Equal(t, shown(7), report.Conn{Session: 7, LastCxid: -1}, "before the first request")

	c.Received(2)
	c.Received(3)
	c.Last(9, jute.OpCreate, 100)
	c.Took(1, 5*time.Millisecond, time.Second)
	c.Size(30)
	c.Wrote(2, 50, &m)
	first := report.Conn{Session: 7, Received: 5, Sent: 2, BytesOut: 50, LastOp: "CREA", LastCxid: 9,
		LastZxid: 100, LastReply: time.Second, LastLatency: 5, Latency: metrics.Latency{Min: 5, Max: 5, Avg: 5}}
	expect.Equal(t, shown(7), first, "after one")
	expect.Equal(t, shown(0), report.Conn{Received: 5, Sent: 2, BytesOut: 50}, "without a session")

	c.Last(-2, jute.OpPing, 101) // all pings have the xid -2, which is not recorded
	c.Took(3, time.Millisecond, 2*time.Second)
	c.Took(1, 2*time.Millisecond, 3*time.Second)
	c.Wrote(1, 20, &m)
	later := report.Conn{Session: 7, Received: 5, Sent: 3, BytesOut: 70, LastOp: "PING", LastCxid: 9,
		LastZxid: 101, LastReply: 3 * time.Second, LastLatency: 2, Latency: metrics.Latency{Min: 1, Max: 5, Avg: 2}}
	expect.Equal(t, shown(7), later, "after five")
	requests, bytes := c.Total()
	expect.Equal(t, requests, 5, "in all: requests")
	expect.Equal(t, bytes, 70, "in all: bytes")
	expect.Equal(t, m.PacketsSent.Load(), 3, "the server counts: packets sent")
	expect.Equal(t, m.ResponseBytes.Load(), 70, "the server counts: response bytes")

	c.Reset()
	expect.Equal(t, shown(7), report.Conn{Session: 7, LastOp: "PING", LastCxid: 9, LastZxid: 101,
		LastReply: 3 * time.Second}, "after a reset")
	c.Took(1, 4*time.Millisecond, 4*time.Second)
	expect.Equal(t, shown(7).Latency, metrics.Latency{Min: 4, Max: 4, Avg: 4}, "of the first request since")
}

// The function given to Init gets each request that is followed. Without a function the connection records
// nothing.
func TestRequestsAreFollowed(t *testing.T) {
	var c Clients
	c.Init(new(metrics.Set), time.Now(), time.Now, nil)
	expect.Equal(t, c.Begin(jute.OpPing, nil), nil, "without a function")
	var got []*Request
	c.Init(new(metrics.Set), time.Now(), time.Now, func(r *Request) { got = append(got, r) })
	r := c.Begin(jute.OpSetData, wire.SetData("/a", nil, -1))
	expect.Equal(t, r.Op, jute.OpSetData, "a request")
	expect.Equal(t, r.Path(), "/a", "a request: path")
	c.Followed(r)
	expect.List(t, got, []*Request{r})
}

// An operation on one node names its path. Other operations, and bodies that end early, name none.
func TestPathsOfRequests(t *testing.T) {
	one := wire.Path("/a")
	for op, name := range opLabels {
		want := ""
		switch op {
		case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete, jute.OpExists,
			jute.OpGetData, jute.OpSetData, jute.OpGetACL, jute.OpSetACL, jute.OpGetChildren, jute.OpGetChildren2,
			jute.OpSync, jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches, jute.OpGetEphemerals,
			jute.OpGetAllChildrenNumber:
			want = "/a"
		}
		expect.Equal(t, (&Request{Op: op, Body: one}).Path(), want, "%s %v", name, op)
		expect.Equal(t, (&Request{Op: op, Body: one[:len(one)-1]}).Path(), "", "%s %v, cut", name, op)
		expect.Equal(t, (&Request{Op: op, Body: wire.Body{}.Null()}).Path(), "", "%s %v, null", name, op)
	}
}

// The end of a session is described with its client, its last server and some of its nodes.
func TestEndedSessionsAreDescribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m metrics.Set
		var c Clients
		c.Init(&m, time.Now(), time.Now, nil)
		time.Sleep(10 * time.Second)
		c.ConnLost(1, "reset", 2*time.Second)
		c.ConnLost(2, "reset", 3*time.Second)
		time.Sleep(time.Second)
		events := []tree.Event{{Type: jute.EventChildrenChanged, Path: "/"}}
		for i := range endedPath + 3 {
			path := fmt.Sprint("/", i, "x", strings.Repeat("é", endedName))
			events = append(events, tree.Event{Type: jute.EventDeleted, Path: path})
		}
		at := time.UnixMilli(1234567)
		of := session.Session{ID: 1, Addr: "10.0.0.1", Owner: 3, Timeout: 4000}
		end := &state.Ending{Session: of, Cause: state.EndExpired, Zxid: 5, Time: at.UnixMilli(), Events: events}
		c.SessionEnded(end, -1)
		select {
		case <-c.EndedNews():
		default:
			t.Error("the end is no news")
		}
		e := c.EndedSince(4)[0]
		got := e
		got.Paths = nil
		expect.Equal(t, fmt.Sprint(got), fmt.Sprint(EndedSession{Session: 1, Zxid: 5, Time: at,
			Cause: state.EndExpired, Addr: "10.0.0.1", Server: 3, Timeout: 4 * time.Second, Silent: 9 * time.Second, Lost: "reset",
			LostFor: time.Second, PathCount: endedPath + 3}))
		var want []string
		for i := range endedPath {
			want = append(want, fmt.Sprint("/", i, "x", strings.Repeat("é", (endedName-4)/2), "…"))
		}
		expect.List(t, e.Paths, want)
		expect.Equal(t, m.SessionsExpired.Load(), 1, "expired")

		// If the client was connected to this server, the description says how long it was silent. The end of an
		// older connection is forgotten.
		c.SessionEnded(&state.Ending{Session: session.Session{ID: 2}, Cause: state.EndClosed, Zxid: 6}, 0)
		e = c.EndedSince(5)[0]
		expect.Equal(t, e.Silent, 11*time.Second, "silent")
		expect.Equal(t, e.Lost, "", "lost")
		expect.Equal(t, e.LostFor, 0, "lost for")
		expect.Equal(t, len(c.lost.by), 0, "length of by %v", c.lost.by)
		expect.Equal(t, m.SessionsExpired.Load(), 1, "expired, as one was closed")
		expect.Equal(t, len(c.EndedSince(4)), 2)
		expect.Equal(t, len(c.EndedSince(6)), 0)
	})
}

// A server counts as down from the moment at which it first reports that it does not serve. This ends when
// the server serves again.
func TestDownTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clients
		c.Init(new(metrics.Set), time.Now(), time.Now, nil)
		var want []Down
		for range keptDowns + 2 {
			from := time.Now()
			c.NoteServing(false)
			time.Sleep(time.Second)
			c.NoteServing(false)
			time.Sleep(time.Second)
			c.NoteServing(true)
			want = append(want, Down{from, time.Now()})
			time.Sleep(time.Second)
			c.NoteServing(true)
		}
		expect.List(t, c.Downs(), want[2:], "the newest, the oldest of them first")
	})
}

// Connections that ended are counted by address.
func TestEndedConnectionsAreCounted(t *testing.T) {
	var c Clients
	c.Init(new(metrics.Set), time.Now(), time.Now, nil)
	c.ConnEnded("10.0.0.1", Count{1, 10})
	c.ConnEnded("10.0.0.1", Count{2, 20})
	c.ConnEnded("10.0.0.2", Count{3, 30})
	c.ConnEnded("", Count{4, 40})
	got := c.GoneClients()
	expect.That(t, maps.Equal(got, map[string]Count{"10.0.0.1": {3, 30}, "10.0.0.2": {3, 30}}), "%v", got)
}

// A name of the greatest length, and the last name for which a window has room, are counted.
func TestBoundsOfRecentCounts(t *testing.T) {
	var r recent
	longest := strings.Repeat("x", maxName)
	r.Add(longest, Count{1, 1}, 0)
	r.Add("a", Count{1, 1}, window-1)
	expect.Equal(t, len(r.Counts(window-1)), 2, "names within the first window")
	expect.Equal(t, r.Counts(window)[longest], Count{1, 1}, "as the second window begins")
	expect.Equal(t, len(r.Counts(3*window-1)), 0, "names in the third, as nothing came in the second")
	r.Add("b", Count{1, 1}, 3*window-1)
	expect.Equal(t, len(r.Counts(5*window-2)), 1, "names after a window that is a moment less than two long")
	r.Add("c", Count{1, 1}, 5*window-2)
	expect.Equal(t, len(r.Counts(7*window-2)), 0, "names after a window of two")
}
