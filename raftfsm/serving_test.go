package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server that stops serving warns, unless it was told to stop: then the others may have stopped, too.
func TestStoppingServerDoesNotWarn(t *testing.T) {
	t.Parallel()
	var log must.Text
	n, _ := start(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	g := &serving{n: n, on: true}
	g.set("a reason")
	expect.Has(t, log.String(), `level=WARN msg="not serving clients" reason="a reason"`)
	n.closed.Store(true)
	g.on = true
	g.set("another reason")
	n.closed.Store(false)
	expect.Has(t, log.String(), `level=INFO msg="not serving clients" reason="another reason"`)
	g.on, g.final = true, true
	g.set("a third reason")
	expect.Has(t, log.String(), `level=INFO msg="not serving clients" reason="a third reason"`)
}

// readers is an observer that counts how reading without a leader is turned on and off.
type readers struct {
	watcher
	reads atomic.Bool
	told  atomic.Int64
}

func (r *readers) ReadOnly(on bool) { r.reads.Store(on); r.told.Add(1) }

// ended is a server whose raft has ended, so that it knows no leader and nothing of it changes by itself.
func ended(t *testing.T, o Options) (*Node, *readers) {
	t.Helper()
	r := new(readers)
	o.Observer, o.Logger, o.Fatal = r, quietLog(t, 1), func(err error) { t.Error(err) }
	n := must.Get(Start(t.Context(), o))(t)
	newAsker(t, n)
	n.Abort()
	return n, r
}

// Why a server serves its clients or not, to the moment.
func TestG23WhyAServerServesOrNot(t *testing.T) {
	t.Parallel()
	n, seen := ended(t, Options{DataDir: t.TempDir(), DiskReserve: -1, ReadOnly: true})
	own, port, index, dir := n.id, n.port, n.fsm.index.Load(), n.o.DataDir
	birth := n.fsm.stream.Birth()
	outlasts := n.o.HeartbeatTimeout + servingGrace
	advice := "; start the servers that are down. If a majority of them is gone for good, stop this one and run: " +
		"zlockd recover --data-dir " + dir
	const ago = -time.Nanosecond
	for _, c := range []struct {
		name  string
		tune  func(g *serving, now time.Time)
		want  string
		reads bool
	}{
		{"all is well", func(*serving, time.Time) {}, "", false},
		{"it stops", func(g *serving, _ time.Time) { g.final = true }, "this server is stopping", false},
		{"it begins", func(g *serving, _ time.Time) { g.lastGood = time.Time{} }, "no leader yet", false},
		{"it waits for a leader", func(g *serving, now time.Time) {
			g.lastGood, g.offSince = time.Time{}, now.Add(-outlasts)
		}, "no leader yet", false},
		{"it waits for a leader for long", func(g *serving, now time.Time) {
			g.lastGood, g.offSince = time.Time{}, now.Add(-outlasts+ago)
		}, "no leader yet", true},
		{"it has a term that raft does not know", func(g *serving, _ time.Time) {
			g.lastGood = time.Time{}
			n.term.Store(&term{})
		}, "no leader yet", false},
		{"the leader is silent", func(g *serving, now time.Time) { g.lastGood = now.Add(-outlasts) }, "", false},
		{"the leader is lost", func(g *serving, now time.Time) { g.lastGood = now.Add(-outlasts + ago) },
			"no contact with a leader", true},
		{"the leader is lost, soon an operator must act", func(g *serving, now time.Time) {
			g.lastGood, g.offSince = now.Add(-time.Hour), now.Add(-adviceAfter-ago)
		}, "no contact with a leader", true},
		{"the leader is lost for long", func(g *serving, now time.Time) {
			g.lastGood, g.offSince = now.Add(-time.Hour), now.Add(-adviceAfter)
			n.port = new(peer.Port)
		}, "no contact with a leader" + advice, true},
		{"there never was a leader", func(g *serving, now time.Time) {
			g.lastGood, g.offSince = time.Time{}, now.Add(-time.Hour)
			n.port = new(peer.Port)
		}, "no leader yet" + advice, true},
		{"it was removed while it was away", func(g *serving, now time.Time) {
			g.lastGood, n.port = now.Add(-time.Hour), new(peer.Port)
			n.removed.Store(1 << 40)
		}, "no contact with a leader; this server was removed from the cluster: stop it", true},
		{"it was removed while it was away, long ago", func(g *serving, now time.Time) {
			g.lastGood, g.offSince, n.port = now.Add(-time.Hour), now.Add(-time.Hour), new(peer.Port)
			n.removed.Store(1 << 40)
		}, "no contact with a leader; this server was removed from the cluster: stop it", true},
		{"a server without others has no leader", func(g *serving, now time.Time) {
			g.lastGood, g.offSince = time.Time{}, now.Add(-time.Hour)
		}, "no leader yet", true},
		{"it has not caught up for long", func(g *serving, now time.Time) {
			g.started, g.offSince = false, now.Add(-time.Hour)
		}, "catching up with the leader", false},
		{"it has caught up by now", func(g *serving, _ time.Time) { g.started, g.behind = false, index }, "",
			false},
		{"its stream is not open", func(*serving, time.Time) { n.fsm.stream.Open(0) }, "opening the request stream",
			false},
		{"the members are not published", func(*serving, time.Time) {
			n.port = new(peer.Port)
			n.fsm.config.Store(false)
		}, "publishing the members", false},
		{"the members are published", func(*serving, time.Time) {
			n.port = new(peer.Port)
			n.fsm.config.Store(true)
		}, "", false},
		{"it has no members to publish", func(*serving, time.Time) { n.fsm.config.Store(false) }, "", false},
		{"it is behind", func(g *serving, now time.Time) { g.behind, g.since = index+1, now.Add(-servingLag) }, "",
			false},
		{"it is behind for long", func(g *serving, now time.Time) {
			g.behind, g.since = index+1, now.Add(-servingLag+ago)
		}, "far behind the leader", false},
		{"it was behind", func(g *serving, now time.Time) { g.behind, g.since = index, now.Add(-time.Hour) }, "",
			false},
		{"it is no member", func(*serving, time.Time) { n.id = 9 }, "", false},
		{"it is no member for a moment", func(g *serving, now time.Time) {
			n.id = 9
			g.removed = now.Add(-removedGrace)
		}, "", false},
		{"it was removed", func(g *serving, now time.Time) {
			n.id = 9
			g.removed = now.Add(-removedGrace + ago)
		}, "this server was removed from the cluster", false},
		{"it was removed, and is a member again", func(g *serving, now time.Time) {
			g.removed = now.Add(-time.Hour)
		}, "", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n.id, n.port = own, port
			n.term.Store(nil)
			n.removed.Store(0)
			n.fsm.stream.Open(birth)
			now := time.Now()
			g := &serving{n: n, lastGood: now, started: true, offSince: now}
			seen.reads.Store(false)
			seen.serving.Store(false)
			c.tune(g, now)
			again := g.look()
			expect.Equal(t, g.reason, c.want, "%s", c.name)
			expect.Equal(t, g.on, c.want == "", "%s: g.on", c.name)
			expect.Equal(t, seen.serving.Load(), g.on, "%s: seen.serving.Load()", c.name)
			expect.Equal(t, seen.reads.Load(), c.reads, "%s: seen.reads.Load()", c.name)
			expect.Equal(t, g.reads(), c.reads, "%s: g.reads()", c.name)
			if g.on {
				expect.That(t, again >= servingLook && again <= 2*servingRest,
					"%s: looks again after %v: want again >= servingLook && again <= 2*servingRest",
					c.name, again)
				expect.That(t, again <=
					max(outlasts-now.Sub(g.lastGood), servingLook),
					"%s: looks again after %v: want again <= max(outlasts-now.Sub(g.lastGood), servingLook)",
					c.name, again)
			} else {
				expect.Equal(t, again, servingLook, "%s", c.name)
			}
			expect.That(t, g.removed.IsZero() == (n.id == own), "%s: removed since %v", c.name, g.removed)
			expect.That(t, g.behind == 0 || g.behind > index, "%s: behind entry %d", c.name, g.behind)
			expect.That(t, g.advised == "" || c.want != "" && n.port != nil, "%s: advises %q", c.name, g.advised)
			expect.Equal(t, status.Of(g.noLeader()), map[bool]status.Code{true: status.NoLeader,
				false: status.NoMajority}[g.advised == ""], "%s", c.name)
			if g.advised != "" {
				expect.Equal(t, g.noLeader().Error(), "there is no leader"+g.advised)
				n.o.DataDir = ""
				expect.Equal(t, n.adviceAlone(), "", "a server in memory has nothing to recover from")
				n.o.DataDir = dir
			}
		})
	}
	n.id, n.port = own, port
	n.removed.Store(0)
}

// A server is current that has applied what any other has answered, as its leader confirms, and it says so in
// no other case.
func TestCurrentServerHasAppliedWhatOthersAnswered(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	for id := 1; id <= 3; id++ {
		path := fmt.Sprint("/n", id)
		c.create(id%3+1, path)
		eventually(t, "it serves", func() bool { ok, _ := c.nodes[id].Serving(); return ok })
		expect.OK(t, c.nodes[id].Current(t.Context()), "server %d", id)
		expect.That(t, c.has(id, path), "server %d is current without %s", id, path)
	}
	for id := 1; id <= 3; id++ {
		if id != lead {
			stop(t, c.nodes[id])
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := c.nodes[lead].Current(ctx)
	expect.That(t, status.Of(err).Passes(), "a server without a majority: %v", err)
}

// A server looks whether it was removed until it stops.
func TestServerLooksWhetherItWasRemoved(t *testing.T) {
	t.Parallel()
	n, _ := ended(t, Options{})
	g := &serving{n: n}
	expect.That(t, g.watch(t.Context(), nil), "raft has ended by itself")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	expect.That(t, !g.watch(over, nil), "the server is told to stop")
}

// What a server hears of its leader decides how far behind it is, and whether it answers pings.
func TestWordOfTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &Node{fsm: newFSM(1, "c", new(watcher), nil), o: Options{HeartbeatTimeout: time.Second}}
		g := &n.serving
		g.n = n
		n.fsm.index.Store(10)
		now := time.Now()
		for _, c := range []struct {
			leader, behind uint64 // before, and after
			want           string // behind, started, since now
		}{
			{10, 0, "0 true false"}, {10, 12, "0 true false"}, {9, 0, "0 true false"},
			{11, 0, "11 false true"}, {12, 11, "11 false false"}, {12, 10, "12 false true"}, {12, 9, "12 false true"},
		} {
			g.started, g.behind, g.since = false, c.behind, now.Add(-time.Hour)
			sent := now.Add(-time.Duration(c.leader) * time.Second)
			g.acked(sent, c.leader)
			expect.Equal(t, fmt.Sprint(g.behind, g.started, g.since.Equal(now)), c.want,
				"the leader is at %d, behind %d",
				c.leader, c.behind)
			expect.That(t, g.lastAck.Equal(sent), "acked %v", g.lastAck)
		}
		g.started, g.behind = false, 12
		g.contact()
		expect.That(t, g.started,
			"as a leader: %v %v %v %v: want g.started", g.started, g.behind, g.lastAck, g.lastGood)
		expect.Equal(t, g.behind, 0, "as a leader: g.behind")
		expect.That(t, g.lastAck.Equal(now),
			"as a leader: %v %v %v %v: want g.lastAck.Equal(now)",
			g.started, g.behind, g.lastAck, g.lastGood)
		expect.That(t, g.lastGood.Equal(now.Add(-time.Second)),
			"as a leader: %v %v %v %v: want g.lastGood.Equal(now.Add(-time.Second))",
			g.started, g.behind, g.lastAck, g.lastGood)
		time.Sleep(time.Second - 1)
		expect.That(t, n.PingOK(3*time.Second), "a ping is not answered in time")
		time.Sleep(time.Nanosecond)
		expect.That(t, !n.PingOK(3*time.Second), "a ping is answered too late")
	})
}

// A server that stops serves no more, whatever comes, and no client reads from it.
func TestServerThatStopsServesNoMore(t *testing.T) {
	t.Parallel()
	n, seen := ended(t, Options{})
	ok, why := n.Serving()
	expect.That(t, !ok, "it serves: %v, %s: want !ok", ok, why)
	expect.Equal(t, why, "this server is stopping", "it serves: why")
	expect.That(t, !seen.serving.Load(),
		"it serves: %v, %s: want !seen.serving.Load()", ok, why)
	var m measured
	n.o.Measures.Unavailable = m.kind("unavailable")
	now := time.Now()
	g := &serving{n: n, lastGood: now.Add(time.Hour), started: true, offSince: now.Add(-time.Hour)}
	g.look()
	expect.That(t, g.on,
		"it does not serve after %d µs: %s: want g.on", m.last("unavailable"), g.reason)
	expect.That(t, seen.serving.Load(),
		"it does not serve after %d µs: %s: want seen.serving.Load()",
		m.last("unavailable"), g.reason)
	expect.That(t, m.last("unavailable") >= time.Hour.Microseconds(),
		"it does not serve after %d µs: %s: want m.last(\"unavailable\") >= time.Hour.Microseconds()",
		m.last("unavailable"), g.reason)
	g.look()
	expect.Equal(t, m.count("unavailable"), 1, "times it began to serve")
	expect.OK(t, n.fsm.stream.Put(requestOf(newSession()), nil))
	g.setReadOnly(true)
	g.setReadOnly(true)
	told := seen.told.Load()
	g.end()
	expect.That(t, !g.on, "it serves: want !g.on")
	expect.That(t, !seen.serving.Load(), "it serves: want !seen.serving.Load()")
	expect.That(t, g.final, "it serves: want g.final")
	expect.That(t, !g.reads(), "clients read: want !g.reads()")
	expect.That(t, !seen.reads.Load(), "clients read: want !seen.reads.Load()")
	expect.Equal(t, seen.told.Load(), told+1, "clients read: seen.told.Load()")
	expect.That(t, g.offSince.After(now.Add(-time.Minute)), "it ceased to serve at %v", g.offSince)
	expect.Equal(t, g.reason, "this server is stopping")
	expect.That(t, errors.Is(n.fsm.stream.Put(requestOf(newSession()), nil), ErrClosed), "it takes requests")
	g.look()
	expect.That(t, !g.on, "it serves again")
	expect.Equal(t, told, 1, "it was told that clients read")
}

func requestOf(r state.Request) *state.Request { return &r }
