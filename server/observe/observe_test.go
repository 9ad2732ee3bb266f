package observe

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/wire"
)

// The sample is drawn: clients in step are counted as all others are.
func TestPathsAreCountedAtRandom(t *testing.T) {
	var c Clients
	c.Init(new(admin.Metrics), time.Now(), time.Now, nil)
	const each = busyEvery * 100
	body := wire.PathWatch("/a", false)
	other := wire.PathWatch("/b", false)
	for i := range each {
		// As a client asks that names /b in every sixteenth request.
		c.Begin(jute.OpGetData, body)
		if i%(busyEvery-1) == 0 {
			c.Begin(jute.OpGetData, other)
		}
	}
	c.Begin(jute.OpPing, nil)
	c.Begin(jute.OpGetData, []byte{0, 0, 1})
	counts, _ := c.BusyPaths()
	a, b := counts["/a"], counts["/b"]
	if a.Requests < each/3 || a.Requests > 3*each || b.Requests > each/2 || len(counts) > 2 {
		t.Errorf("%d requests named /a and %d /b, by a sample of %d and %d", a.Requests, b.Requests, each,
			each/(busyEvery-1))
	}
}

// However often a server stops and begins to serve, it remembers the newest times only.
func TestDownTimesAreBounded(t *testing.T) {
	var c Clients
	c.Init(new(admin.Metrics), time.Now(), time.Now, nil)
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
	c.Init(new(admin.Metrics), time.Now(), time.Now, nil)
	for id := range int64(endedKept + 10) {
		c.SessionEnded(&state.Ending{Session: session.Session{ID: id}, Cause: state.EndClosed, Zxid: id}, -1, nil)
	}
	e := c.EndedSince(-1)
	if len(e) != endedKept || e[0].Session != endedKept+9 || e[endedKept-1].Session != 10 {
		t.Errorf("%d remembered, %d to %d", len(e), e[0].Session, e[len(e)-1].Session)
	}
}

// Clients choose names, and must not choose how much is kept of them.
func TestNamesAreBounded(t *testing.T) {
	var r recent
	for i := range 3 * maxNames {
		r.Add(fmt.Sprint("/", i), Count{Requests: 1}, time.Second)
	}
	r.Add(strings.Repeat("x", maxName+1), Count{Requests: 1}, time.Second)
	counts, _ := r.Counts(time.Second)
	expect.Equal(t, len(counts), maxNames, "names")
}

// A count is known for one window more, and no longer.
func TestCountsAreOfTheLastMinutes(t *testing.T) {
	var r recent
	r.Add("a", Count{2, 10}, 0)
	r.Add("a", Count{1, 5}, window+time.Second)
	if counts, over := r.Counts(window + 2*time.Second); counts["a"] != (Count{3, 15}) ||
		over != window+2*time.Second {
		t.Errorf("%v over %v", counts, over)
	}
	counts, _ := r.Counts(4 * window)
	expect.Equal(t, len(counts), 0, "%v after a window without a request", counts)
}

// TestSlowRequestsAreLogged: with operation, session and address, ten in a second, and the others counted.
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
	if n := strings.Count(text.String(), "slow request"); n != 10 || s.seen.Load() != 15 || s.skipped.Load() != 5 {
		t.Errorf("%d lines, %d slow, %d left out", n, s.seen.Load(), s.skipped.Load())
	}
	ask(2*time.Second, time.Second)
	last := text.String()[strings.LastIndex(text.String(), "level="):]
	const want = `msg="slow request" operation=sync path="" session=0x1f addr=10.0.0.1 took=1s waited=500ms carried_out=500ms`
	if !strings.Contains(last, want) {
		t.Errorf("%s\nnot %s", last, want)
	}
}

// TestSlowWriteTellsItsStages: in the line, and as histograms of all requests.
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
	var status admin.Status
	s.Status(&status)
	got := map[string]*admin.Histogram{}
	for _, x := range status.Extra {
		if x.Histogram != nil {
			got[x.Labels[0].Value] = x.Histogram
		}
	}
	for stage, want := range map[string]admin.Histogram{
		"waited":  {Count: 2, Sum: 0.100000001, Buckets: map[float64]uint64{0.0001: 1, 0.05: 1, 0.1: 2, 5: 2}},
		"logged":  {Count: 2, Sum: 0.800000001, Buckets: map[float64]uint64{0.0001: 1, 0.5: 1, 1: 2}},
		"applied": {Count: 2, Sum: 0.050000001, Buckets: map[float64]uint64{0.0001: 1, 0.01: 1, 0.05: 2}},
	} {
		h := got[stage]
		if h == nil || h.Count != want.Count || h.Sum != want.Sum {
			t.Errorf("%s: %+v, not %+v", stage, h, want)
			continue
		}
		for bound, n := range want.Buckets {
			expect.Equal(t, h.Buckets[bound], n, "%s up to %g s", stage, bound)
		}
	}
	if h := got["carried_out"]; h == nil || h.Count != 0 {
		t.Errorf("without the log: %+v", h)
	}
}

// Operators are told why a session ended, and how long its client had been silent.
func TestReasonsOfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clients
		c.Init(new(admin.Metrics), time.Now(), time.Now, nil)
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
				heard, nil)
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

// Clients that go away and do not come back take a bounded memory.
func TestLostConnectionsAreBounded(t *testing.T) {
	var c Clients
	c.Init(new(admin.Metrics), time.Now(), time.Now, nil)
	for id := range int64(maxLost + 10) {
		c.ConnLost(id, "reset", 0)
	}
	expect.Equal(t, len(c.lost.by), maxLost, "are kept")
}

// The newest refusal of an address is remembered, and so are not more addresses than a bound.
func TestRefusalsAreRemembered(t *testing.T) {
	var c Clients
	c.Init(new(admin.Metrics), time.Now(), time.Now, nil)
	for _, why := range []string{"first", "second"} {
		c.Refuse("a", why)
		r, ok := c.Refused("a")
		expect.That(t, ok && r.Why == why && !r.Time.IsZero(), "%+v", r)
	}
	for i := range keptRefusals {
		c.Refuse(fmt.Sprint(i), "again")
	}
	_, newest := c.Refused(fmt.Sprint(keptRefusals - 1))
	_, oldest := c.Refused("a")
	expect.That(t, newest && !oldest, "the newest is known: %v, the oldest: %v", newest, oldest)
}

// The sizes of replies are noted when they are written: of each write the least, the most and the last.
func TestSizesOfReplies(t *testing.T) {
	var s Conn
	var m admin.Metrics
	for _, n := range []int{20, 10, 30, 15} {
		s.Size(n)
	}
	s.Wrote(4, 75, &m)
	expect.Equal(t, m.Responses.Value(), admin.Sizes{Last: 15, Min: 10, Max: 30})
	m.Responses.Reset()
	s.Size(50)
	s.Wrote(1, 50, &m)
	s.Wrote(1, 20, &m) // an event
	expect.Equal(t, m.Responses.Value(), admin.Sizes{Last: 50, Min: 50, Max: 50})
}
