package observe

import (
	"testing"
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
