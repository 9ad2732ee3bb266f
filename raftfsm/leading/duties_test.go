package leading

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// sweeper returns a leader's term whose state has nodes with a time to live that is over. Node i has the
// path paths(i).
func sweeper(t *testing.T, paths func(i int) string, nodes int) *Term {
	t.Helper()
	a := applied.New()
	c := &tree.Change{Session: 1}
	for i := range nodes {
		c.Zxid++
		_, code, _ := a.State().Tree().Apply(c, jute.OpCreateTTL, applied.CreateTTL(paths(i),
			time.Millisecond), nil)
		must.Equal(t, code, jute.OK, "create node %d", i)
	}
	return termOf(t, a)
}

// One sweep proposes a limited number of removals, so that clients' requests need not wait long. The next
// sweep proposes the rest.
func TestSweepsAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path  string
		nodes int
		want  int
	}{
		"few":                {"/n", 1200, 1200},
		"many":               {"/n", reapPerSweep + 100, reapPerSweep},
		"some of long paths": {"/" + strings.Repeat("n", 60<<10), 60, 60},
		"many of long paths": {"/" + strings.Repeat("n", 60<<10), 100, sweepBytes/(60<<10) + 1},
	} {
		tm := sweeper(t, func(i int) string { return fmt.Sprint(c.path, i) }, c.nodes)
		tm.sweep()
		expect.Equal(t, len(tm.acts.reaps), c.want, "%s: removals proposed", name)
		if len(tm.acts.reaps) == 0 {
			continue
		}
		first := state.Request{Op: state.OpReap, Body: []byte(c.path + "0")}
		expect.That(t, bytes.Equal(tm.acts.reaps[0], first.Append(nil)), "%s: proposes %.60q", name,
			tm.acts.reaps[0])
		expect.That(t, len(tm.work) == 1, "%s: the batcher is not told", name)
	}
}

// A leader proposes the end of a session some time after the session's timeout. If the state does not know a
// session, the leader forgets the session.
func TestG11ExpiryIsProposed(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.NewSession())
	s := a.Sessions()[0]
	synctest.Test(t, func(t *testing.T) {
		tm := termOf(t, a)
		grace := tm.grace()
		expect.Equal(t, grace, 500*time.Millisecond)
		tm.deadlines.Touch(s.ID, 1000)
		tm.deadlines.Touch(77, 1000) // the state does not know session 77
		tm.expire(time.Now().Add(time.Second + grace - 1))
		if expect.Equal(t, len(tm.acts.ends), 0, "it is ended too early: len(tm.acts.ends)") {
			expect.Equal(t, len(tm.work), 0, "it is ended too early: len(tm.work)")
		}
		tm.expire(time.Now().Add(time.Second + grace))
		must.Equal(t, len(tm.acts.ends), 1, "sessions that are ended")
		end := state.Request{Session: s.ID, Gen: s.Gen, Op: state.OpExpire}
		entry, _ := tm.acts.take(nil)
		bl, _, err := entries.NextBlock(entry)
		must.OK(t, err)
		expect.List(t, bl.Requests, end.Append(nil))
		expect.Equal(t, len(tm.work), 1, "the batcher is told")
		left := tm.deadlines.All()
		expect.Equal(t, len(left), 1, "sessions with a deadline after the proposal")
		expect.That(t, left[s.ID] > 0, "the session has no time before the leader proposes its end again: %v", left)
	})
}

// Many sessions stay silent for several timeouts, while the log accepts nothing. The leader proposes the end
// of each session only once, and a limited number in each entry. It publishes the members before these ends.
func TestG11EndOfASessionWaitsOnce(t *testing.T) {
	t.Parallel()
	const many = 2*endsInEntry + 300
	a := applied.New()
	for range many {
		a.Entry(applied.NewSession())
	}
	synctest.Test(t, func(t *testing.T) {
		tm := termOf(t, a)
		for range 500 {
			time.Sleep(time.Second)
			tm.expire(time.Now())
		}
		expect.Equal(t, len(tm.acts.ends), many, "ends that wait")
		tm.propose(state.Request{Op: state.OpConfig, Body: []byte("members")})
		ended := map[int64]bool{}
		for _, want := range []uint32{endsInEntry + 1, endsInEntry, 300} {
			entry, more := tm.acts.take(nil)
			bl, _, err := entries.NextBlock(entry)
			must.OK(t, err)
			expect.Equal(t, bl.Count, want, "acts in an entry")
			expect.Equal(t, more, want != 300, "more acts wait")
			for rest := bl.Requests; len(rest) > 0; {
				var id int64
				if id, rest = entries.PeekRequest(rest); id == 0 {
					expect.Equal(t, len(ended), 0, "sessions that end before the members are published")
					continue
				}
				expect.That(t, !ended[id], "session %d ends twice", id)
				ended[id] = true
			}
		}
		expect.Equal(t, len(ended), many, "sessions that end")
	})
}

// A leader of several servers proposes now and then to compare a digest of the state. A lone server does not.
func TestDigestsAreCompared(t *testing.T) {
	t.Parallel()
	tm, a := publisher(t)
	var last state.Digest
	for ok := false; !ok; { // the state notes a digest only at some zxids
		must.That(t, a.Last < 100_000, "no digest is taken")
		a.Entry(applied.NewSession())
		last, ok = a.State().LastDigest()
	}
	body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(last.Zxid)), last.Sum)
	want := state.Request{Op: state.OpDigest, Body: body}
	for _, c := range []struct{ done, then int64 }{
		{last.Zxid - digestGap, last.Zxid},
		{last.Zxid - digestGap + 1, last.Zxid - digestGap + 1},
		{last.Zxid, last.Zxid},
	} {
		expect.Equal(t, tm.compareDigests(c.done), c.then, "last compared at 0x%x, newest digest at 0x%x", c.done,
			last.Zxid)
		list := tm.proposes()
		if c.then == c.done {
			expect.Equal(t, len(list), 0, "digests proposed soon after 0x%x", c.done)
		} else {
			expect.List(t, list, []string{string(want.Append(nil))})
		}
	}
	tm.o.Port = nil
	expect.Equal(t, tm.compareDigests(0), 0)
	expect.Equal(t, len(tm.proposes()), 0, "digests of a server without others")
}

// A leader logs once that requests are refused for lack of room, and once that they are accepted again. When
// the free space of its own disk becomes too little, or sufficient again, it proposes an entry, so that all
// servers learn of it.
func TestL20RoomIsLookedAt(t *testing.T) {
	t.Parallel()
	var log must.Text
	a := applied.New()
	tm := termOf(t, a)
	tm.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	nodes := a.State().Tree().Count()
	barrier := state.Request{Op: state.OpBarrier}
	for _, c := range []struct {
		low       string
		most      int
		full, own bool // full: requests are refused; own: the leader's disk has little free space
		told      string
		barrier   bool
	}{
		{"", 0, false, false, "", false},
		{"", nodes, true, false, "are refused", false},
		{"", nodes, true, false, "", false},
		{"little room", nodes, true, true, "", true},
		{"little room", 0, true, true, "", false},
		{"", 0, false, false, "are accepted again", true},
		{"little room", 0, true, true, "are refused", true},
	} {
		tm.o.Upkeep = upkeep.New(upkeep.Options{MaxNodes: c.most, View: a.View})
		tm.o.Upkeep.NoteDisk(c.low)
		before := log.String()
		tm.lookAtRoom()
		expect.Equal(t, tm.full.Load(), c.full, "%+v: requests are refused", c)
		expect.Equal(t, tm.low.Load(), c.own, "%+v: the leader's disk is low", c)
		said := strings.TrimPrefix(log.String(), before)
		expect.Has(t, said, c.told, "%+v", c)
		expect.Equal(t, said == "", c.told == "", "%+v: the log stays silent; it says %q", c, said)
		list := tm.proposes()
		expect.Equal(t, len(list) == 1, c.barrier, "%+v: an entry tells it", c)
		if len(list) == 1 {
			expect.Equal(t, list[0], string(barrier.Append(nil)))
		}
	}
	for range 100 { // the room on the disk does not change
		tm.lookAtRoom()
	}
	expect.Equal(t, len(tm.proposes()), 0, "entries of looks")
	tm.o.Upkeep.NoteDisk("")
	l := &followers.Link{Greeting: peer.Greeting{From: 3}}
	tm.links.Add(l)
	l.SetFull("little room")
	expect.Equal(t, tm.Lowest(), "server 3: little room")
}

// The leader gives up a restore that no server continues.
func TestAbandonedRestoreIsGivenUp(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.OpenStream())
	synctest.Test(t, func(t *testing.T) {
		tm := termOf(t, a)
		g := state.Staging{ID: 5, Origin: 1, Birth: 1, Size: 10}
		a.Entry(g.Open())
		var watch restore.Watch
		tm.giveUpRestore(&watch)
		expect.Equal(t, len(tm.proposes()), 0, "proposals at once")
		time.Sleep(time.Hour)
		tm.giveUpRestore(&watch)
		expect.Equal(t, len(tm.proposes()), 1, "proposals after an hour")
	})
}

// A leader reads the clock, stalls, and then ends sessions. It ends only those that were due when it read the
// clock. Sessions that became due during the stall live on.
func TestR25StallBehindTheLookAtTheClockEndsNothing(t *testing.T) {
	t.Parallel()
	a := applied.New()
	tm := termOf(t, a)
	tm.deadlines.Touch(1, 1)
	looked := time.Now()
	known := func() bool { _, is := tm.deadlines.All()[1]; return is }
	must.Await(t, "its time is over", time.Minute,
		func() bool { return tm.deadlines.All()[1] < -2*tm.grace() })
	tm.expire(looked)
	expect.That(t, known(), "a session ended before the stall was seen")
	tm.expire(time.Now()) // expire forgets the session, which the state does not know
	expect.That(t, !known(), "a silent session lives on")
}
