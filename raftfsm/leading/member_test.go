package leading

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server that lags far behind, or does not answer, gets no vote yet. The leader says what it waits for.
func TestServerThatIsNotReadyToVote(t *testing.T) {
	t.Parallel()
	const ours = 10_000
	a := applied.New()
	applied.At(a.FSM, ours, 1)
	for _, c := range []struct {
		name    string
		applied uint64
		heard   bool
		port    port
		want    []string
	}{
		{"near enough", ours - status.EnoughToVote, true, port{}, nil},
		{"ahead", ours + 5, true, port{}, nil},
		{"too far", ours - status.EnoughToVote - 1, true, port{},
			[]string{"server 2 is not ready: it has applied"}},
		{"silent", ours, false, port{}, []string{"it has applied 0 of 10000 log entries"}},
		{"gone", 0, true, port{err: errors.New("refused")},
			[]string{"server 2 is not ready: it does not answer at there: refused"}},
		{"it waits", 0, true, port{says: peer.Status{Waits: "its turn"}},
			[]string{"it has applied 0 of 10000 log entries, and says: its turn"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			tm := termOf(t, a)
			tm.o.Port, tm.began = c.port, time.Now()
			l := &followers.Link{Greeting: peer.Greeting{From: 2}}
			if tm.links.Add(l); c.heard {
				l.SetApplied(c.applied)
			}
			err := tm.caughtUp(t.Context(), &raft.Server{ID: "2", Address: "there"})
			if c.want == nil {
				expect.OK(t, err, "%s", c.name)
				return
			}
			must.Fails(t, err, c.name)
			expect.Equal(t, status.Of(err), status.NotReady, "%s", c.name)
			for _, part := range c.want {
				expect.Has(t, err.Error(), part, "%s", c.name)
			}
			expect.Equal(t, time.Since(tm.began) >= linkPatience, !c.heard,
				"%s: it was given time to be heard", c.name)
		})
	}
}

// A change that raft refuses is an error.
func TestChangesThatRaftRefuses(t *testing.T) {
	t.Parallel()
	a := applied.New()
	tm := termOf(t, a)
	tm.o.Raft = raftOf(t, a.FSM)
	must.OK(t, tm.o.Raft.Shutdown().Error())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	err := tm.handOn(over, change.Change{Op: "remove", ID: 1})
	must.Fails(t, err, "raft has ended, and hands over")
	expect.Equal(t, status.Of(err), status.Interrupted)
	expect.Has(t, err.Error(), "could not hand over leadership before the change")
	for _, op := range []change.Op{change.Vote, change.Add} {
		expect.Fails(t, tm.change(t.Context(), change.Change{Op: op, ID: 2, Addr: "127.0.0.1:9"}, nil, 0),
			"%s", op)
	}
	is := &raft.Server{ID: "2", Address: "127.0.0.1:9"}
	for _, op := range []change.Op{change.Remove, change.Demote, change.Move} {
		expect.Fails(t, tm.change(t.Context(), change.Change{Op: op, ID: 2, Addr: "127.0.0.1:8"}, is, 0),
			"%s",
			op)
	}
	stale := change.Change{Op: "describe", ID: 2, By: 2, Since: 77}
	expect.Is(t, tm.change(t.Context(), stale, is, 0), ErrStale)
}

// A server is refused as a member if its release is older than that of every member.
func TestServersThatAreTooOld(t *testing.T) {
	t.Parallel()
	tm := termOf(t, applied.New())
	expect.OK(t, tm.TooOld(4, &peer.Status{Version: peer.Version}))
	expect.OK(t, tm.TooOld(4, &peer.Status{Version: peer.Version + 1}))
	err := tm.TooOld(4, &peer.Status{Version: peer.Version - 1})
	must.Fails(t, err)
	expect.Has(t, err.Error(), "server 4 runs an older release")
	must.That(t, tm.links.Add(&followers.Link{Greeting: peer.Greeting{From: 2, Version: peer.Version - 1}}),
		"no link")
	expect.OK(t, tm.TooOld(4, &peer.Status{Version: peer.Version - 1}), "the members are as old")
}
