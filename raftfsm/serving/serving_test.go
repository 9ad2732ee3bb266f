package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// fakeRaft tells the Service what a test sets.
type fakeRaft struct {
	heard time.Time // when the server last heard from a leader
	lacks bool
	leads bool
	state raft.RaftState
}

func (r *fakeRaft) HeardOfLeader() time.Time           { return r.heard }
func (r *fakeRaft) Lacks(uint32) bool                  { return r.lacks }
func (r *fakeRaft) Leads() bool                        { return r.leads }
func (r *fakeRaft) State() raft.RaftState              { return r.state }
func (r *fakeRaft) Beat(d time.Duration) time.Duration { return d }

// The type `clients` keeps what it was told: whether clients are served, and whether they may read.
type clients struct {
	served, read atomic.Bool
	told         int
}

func (c *clients) Serving(on bool)  { c.served.Store(on) }
func (c *clients) ReadOnly(on bool) { c.read.Store(on); c.told++ }

// world is a Service together with everything that the Service uses. At first, its server serves clients.
type world struct {
	*Service
	raft        fakeRaft
	state       *applied.State
	clients     clients
	log         must.Text
	term        bool // whether this server leads
	gone        bool // whether this server was removed
	closed      atomic.Bool
	unavailable []int64
}

func newWorld(port *peer.Port) *world {
	w := &world{state: applied.New()}
	w.Service = New(Options{ID: 1, Heartbeat: time.Second, ReadOnly: true, DataDir: "/data",
		Clients:     &w.clients,
		Unavailable: func(v int64) { w.unavailable = append(w.unavailable, v) },
		Leads:       func() bool { return w.term }, Gone: func() bool { return w.gone }, Closed: &w.closed,
		Log: slog.New(slog.NewTextHandler(&w.log, nil))})
	w.Use(&w.raft, w.state.FSM, port)
	w.state.Stream.Open(1)
	applied.At(w.state.FSM, 10, 1)
	w.started, w.lastGood = true, time.Now()
	return w
}

// A server that stops serving logs a warning. A server that was told to stop does not warn, because the other
// servers may be stopping too.
func TestStoppingServerDoesNotWarn(t *testing.T) {
	t.Parallel()
	g := newWorld(nil)
	g.on = true
	g.set("a reason")
	expect.Has(t, g.log.String(), `level=WARN msg="not serving clients" reason="a reason"`)
	g.closed.Store(true)
	g.on = true
	g.set("another reason")
	g.closed.Store(false)
	expect.Has(t, g.log.String(), `level=INFO msg="not serving clients" reason="another reason"`)
	g.on, g.final = true, true
	g.set("a third reason")
	expect.Has(t, g.log.String(), `level=INFO msg="not serving clients" reason="a third reason"`)
}

// A server serves its clients unless there is a reason not to. Each reason counts from an exact time on: the
// cases are just before that time and at it.
func TestG23WhyAServerServesOrNot(t *testing.T) {
	t.Parallel()
	const outlasts = time.Second + grace
	const advice = "; start the servers that are down. If a majority of them is gone for good, " +
		"stop this one and run: zlockd recover --data-dir /data"
	const ago = -time.Nanosecond
	for _, c := range []struct {
		name  string
		tune  func(g *world, now time.Time)
		want  string
		reads bool
	}{
		{"all is well", func(*world, time.Time) {}, "", false},
		{"it stops", func(g *world, _ time.Time) { g.final = true }, "this server is stopping", false},
		{"it begins", func(g *world, _ time.Time) { g.lastGood = time.Time{} }, "no leader yet", false},
		{"it waits for a leader", func(g *world, now time.Time) {
			g.lastGood, g.offSince = time.Time{}, now.Add(-outlasts)
		}, "no leader yet", false},
		{"it waits for a leader for long", func(g *world, now time.Time) {
			g.lastGood, g.offSince = time.Time{}, now.Add(-outlasts+ago)
		}, "no leader yet", true},
		{"it has a term that raft does not know", func(g *world, _ time.Time) {
			g.lastGood = time.Time{}
			g.term = true
		}, "no leader yet", false},
		{"it leads", func(g *world, _ time.Time) {
			g.lastGood, g.term, g.raft.leads = time.Time{}, true,
				true
		}, "",
			false},
		{"it leads by raft's word alone", func(g *world, _ time.Time) {
			g.lastGood, g.raft.leads = time.Time{}, true
		}, "no leader yet", false},
		{"it has just heard of a leader", func(g *world, now time.Time) {
			g.lastGood, g.raft.heard = now.Add(-time.Hour), now
		}, "", false},
		{"the leader is silent", func(g *world, now time.Time) { g.lastGood = now.Add(-outlasts) }, "",
			false},
		{"the leader is lost", func(g *world, now time.Time) { g.lastGood = now.Add(-outlasts + ago) },
			"no contact with a leader", true},
		{"the leader is lost, soon an operator must act", func(g *world, now time.Time) {
			g.lastGood, g.offSince = now.Add(-time.Hour), now.Add(-adviceAfter-ago)
		}, "no contact with a leader", true},
		{"the leader is lost for long", func(g *world, now time.Time) {
			g.lastGood, g.offSince = now.Add(-time.Hour), now.Add(-adviceAfter)
			g.port = new(peer.Port)
		}, "no contact with a leader" + advice, true},
		{"there never was a leader", func(g *world, now time.Time) {
			g.lastGood, g.offSince = time.Time{}, now.Add(-time.Hour)
			g.port = new(peer.Port)
		}, "no leader yet" + advice, true},
		{"it was removed while it was away", func(g *world, now time.Time) {
			g.lastGood, g.port = now.Add(-time.Hour), new(peer.Port)
			g.gone = true
		}, "no contact with a leader; this server was removed from the cluster: stop it", true},
		{"it was removed while it was away, long ago", func(g *world, now time.Time) {
			g.lastGood, g.offSince, g.port = now.Add(-time.Hour), now.Add(-time.Hour), new(peer.Port)
			g.gone = true
		}, "no contact with a leader; this server was removed from the cluster: stop it", true},
		{"a server without others has no leader", func(g *world, now time.Time) {
			g.lastGood, g.offSince = time.Time{}, now.Add(-time.Hour)
		}, "no leader yet", true},
		{"it has not caught up for long", func(g *world, now time.Time) {
			g.started, g.offSince = false, now.Add(-time.Hour)
		}, "catching up with the leader", false},
		{"it has caught up by now", func(g *world, _ time.Time) { g.started, g.behind = false, 10 }, "",
			false},
		{"its stream is not open", func(g *world, _ time.Time) { g.state.Stream.Open(0) },
			"opening the request stream",
			false},
		{"it has no members to publish", func(*world, time.Time) {}, "", false},
		{"the members are not published", func(g *world, _ time.Time) { g.port = new(peer.Port) },
			"publishing the members", false},
		{"the members are published", func(g *world, _ time.Time) {
			g.port = new(peer.Port)
			g.state.Last = 9
			g.state.Entry(state.Request{Op: state.OpConfig, Body: []byte("server.1=h:1:2:participant;h:3")})
		}, "", false},
		{"it is behind", func(g *world, now time.Time) { g.behind, g.since = 11, now.Add(-mostLag) }, "",
			false},
		{"it is behind for long", func(g *world, now time.Time) {
			g.behind, g.since = 11, now.Add(-mostLag+ago)
		}, "far behind the leader", false},
		{"it was behind", func(g *world, now time.Time) { g.behind, g.since = 10, now.Add(-time.Hour) }, "",
			false},
		{"it is no member", func(g *world, _ time.Time) { g.raft.lacks = true }, "", false},
		{"it is no member for a moment", func(g *world, now time.Time) {
			g.raft.lacks = true
			g.removed = now.Add(-removedGrace)
		}, "", false},
		{"it was removed", func(g *world, now time.Time) {
			g.raft.lacks = true
			g.removed = now.Add(-removedGrace + ago)
		}, "this server was removed from the cluster", false},
		{"it was removed, and is a member again", func(g *world, now time.Time) {
			g.removed = now.Add(-time.Hour)
		}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				g := newWorld(nil)
				c.tune(g, now)
				again := g.look()
				expect.Equal(t, g.reason, c.want)
				on, reason := g.On()
				expect.Equal(t, on, c.want == "", "clients are served")
				expect.Equal(t, reason, c.want)
				expect.Equal(t, g.clients.served.Load(), on, "clients are told that they are served")
				expect.Equal(t, g.clients.read.Load(), c.reads, "clients are told that they may read")
				expect.Equal(t, g.Reads(), c.reads)
				if on {
					expect.That(t, again >= lookOff && again <= lookOn, "it looks again after %v, want %v to %v",
						again, lookOff, lookOn)
					most := max(outlasts-now.Sub(g.lastGood), lookOff)
					expect.That(t, again <= most, "it looks again after %v, want at most %v", again, most)
				} else {
					expect.Equal(t, again, lookOff)
				}
				expect.Equal(t, g.removed.IsZero(), !g.raft.lacks, "since when it is no member")
				expect.That(t, g.behind == 0 || g.behind > 10, "it lags behind entry %d, which it has applied", g.behind)
				advised := g.advised != ""
				if advised {
					expect.That(t, c.want != "", "it serves, and advises %q", g.advised)
					expect.That(t, g.port != nil, "it is alone, and advises %q", g.advised)
				}
				expect.Equal(t, status.Of(g.NoLeader()),
					map[bool]status.Code{false: status.NoLeader, true: status.NoMajority}[advised])
				if advised {
					expect.Equal(t, g.NoLeader().Error(), "there is no leader"+g.advised)
					g.o.DataDir = ""
					expect.Equal(t, g.adviceAlone(), "", "a server in memory has nothing to recover from")
				}
			})
		})
	}
}

// Watch ends when raft has ended because the server was removed, and when the server is told to stop. Its
// result tells which.
func TestServerLooksWhetherItWasRemoved(t *testing.T) {
	t.Parallel()
	g := newWorld(nil)
	g.raft.state = raft.Shutdown
	expect.That(t, g.Watch(t.Context(), nil), "raft has ended by itself")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	expect.That(t, !g.Watch(over, nil), "the server is told to stop")
}

// When its stream is opened, a server checks at once whether it may serve. It checks again by itself, and
// stops serving without a leader.
func TestServerLooksWhenItsStreamIsOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := newWorld(nil)
		g.state.Stream.Open(0)
		ended, opened := make(chan bool), make(chan struct{})
		go func() { ended <- g.Watch(ctx, opened) }()
		synctest.Wait()
		expect.That(t, !g.clients.served.Load(), "clients are served before the stream is open")
		g.state.Stream.Open(1)
		opened <- struct{}{}
		synctest.Wait()
		expect.That(t, g.clients.served.Load(), "clients are not served, and the stream is open")
		time.Sleep(time.Minute)
		expect.That(t, !g.clients.served.Load(), "clients are served after a minute without a leader")
		cancel()
		expect.That(t, !<-ended, "it was removed")
	})
}

// A message of the leader tells a server at which entry the leader is. If it is a later entry than the server
// has reached, the server lags behind. Pings are answered only for some time after such a message.
func TestWordOfTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newWorld(nil)
		now := time.Now()
		for _, c := range []struct {
			leader, behind uint64 // the entry in the leader's message, and g.behind before the message
			want           string // g.behind, g.started, and whether g.since was set to now
		}{
			{10, 0, "0 true false"}, {10, 12, "0 true false"}, {9, 0, "0 true false"},
			{11, 0, "11 false true"}, {12, 11, "11 false false"}, {12, 10, "12 false true"}, {12, 9,
				"12 false true"},
		} {
			g.started, g.behind, g.since = false, c.behind, now.Add(-time.Hour)
			sent := now.Add(-time.Duration(c.leader) * time.Second)
			g.Acked(sent, c.leader)
			expect.Equal(t, fmt.Sprint(g.behind, g.started, g.since.Equal(now)), c.want,
				"the leader is at entry %d, this server lagged behind %d", c.leader, c.behind)
			expect.That(t, g.lastAck.Equal(sent), "last acknowledged: got %v, want %v", g.lastAck, sent)
		}
		g.started, g.behind = false, 12
		g.Contact()
		expect.That(t, g.started, "a leader has not started")
		expect.Equal(t, g.behind, 0, "the entry that a leader lags behind")
		expect.That(t, g.lastAck.Equal(now), "at a leader, last acknowledged: got %v, want %v", g.lastAck, now)
		expect.That(t, g.lastGood.Equal(now.Add(-time.Second)), "at a leader, last good: got %v, want %v", g.lastGood,
			now.Add(-time.Second))
		time.Sleep(time.Second - 1)
		expect.That(t, g.PingOK(3*time.Second), "a ping is not answered in time")
		time.Sleep(time.Nanosecond)
		expect.That(t, !g.PingOK(3*time.Second), "a ping is answered too late")
	})
}

// A server that stops does not serve clients, and lets no client read, whatever the Service sees later.
func TestServerThatStopsServesNoMore(t *testing.T) {
	t.Parallel()
	g := newWorld(nil)
	now := time.Now()
	g.lastGood, g.offSince = now.Add(time.Hour), now.Add(-time.Hour)
	g.look()
	expect.That(t, g.on, "it does not serve: %s", g.reason)
	expect.That(t, g.clients.served.Load(), "its clients do not know that it serves")
	g.look()
	must.Equal(t, len(g.unavailable), 1, "times it began to serve")
	expect.That(t, g.unavailable[0] >= time.Hour.Microseconds(), "it served after %d µs", g.unavailable[0])
	r := applied.NewSession()
	expect.OK(t, g.state.Stream.Put(&r, nil))
	g.setReadOnly(true)
	g.setReadOnly(true)
	expect.Equal(t, g.clients.told, 1, "times clients were told that they may read")
	g.End()
	expect.That(t, !g.on, "it serves")
	expect.That(t, !g.clients.served.Load(), "its clients do not know that it stops")
	expect.That(t, !g.Reads(), "clients read")
	expect.That(t, !g.clients.read.Load(), "clients do not know that they may not read")
	expect.Equal(t, g.clients.told, 2, "times clients were told")
	expect.That(t, g.offSince.After(now.Add(-time.Minute)), "it ceased to serve at %v", g.offSince)
	expect.Equal(t, g.reason, "this server is stopping")
	expect.That(t, errors.Is(g.state.Stream.Put(&r, nil), stream.ErrClosed), "it takes requests")
	g.look()
	expect.That(t, !g.on, "it serves again")
}

// Acknowledged waits until this server has applied as much as the leader had at its acknowledgement.
func TestAcknowledgedIsNotOlderThanTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newWorld(nil)
		any := func(time.Time) bool { return true }
		g.Acked(time.Now(), 12)
		got := make(chan error, 1)
		go func() { got <- g.Acknowledged(t.Context(), any) }()
		for _, index := range []uint64{11, 12} {
			synctest.Wait()
			expect.Equal(t, len(got), 0, "answers at index %d", g.state.Index())
			applied.At(g.state.FSM, index, 1)
		}
		expect.OK(t, <-got)
		g.Acked(time.Now(), 13)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect.Equal(t, g.Acknowledged(ctx, any), context.DeadlineExceeded)
		g.Contact()
		expect.OK(t, g.Acknowledged(t.Context(), any), "while this server leads")
	})
}

// Each acknowledgement wakes the goroutine in Acknowledged, which goes on waiting if enough() returns false.
func TestAcknowledgementsAreAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, begin, got := newWorld(nil), time.Now(), make(chan error, 1)
		go func() {
			got <- g.Acknowledged(t.Context(), func(sent time.Time) bool { return sent.After(begin) })
		}()
		synctest.Wait()
		g.Acked(begin, 10)
		synctest.Wait()
		must.Equal(t, len(got), 0, "goroutines that an older acknowledgement satisfies")
		g.Acked(begin.Add(1), 10)
		expect.OK(t, <-got)
	})
}
