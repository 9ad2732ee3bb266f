package raftfsm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

func createTTLBody(path string, ttl time.Duration) []byte {
	return jute.AppendLong(createBody(path, jute.FlagPersistentTTL), ttl.Milliseconds())
}

// A link to a server that was elected waits until the server's term begins. The links of a leader end with its
// term: the other server sends what it has to the next leader, and no block waits for an entry that this server
// does not propose.
func TestLinksBeginAndEndWithTheTerm(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	eventually(t, "a leader", func() bool { return n.term.Load() != nil && n.raft.Leads() })
	tm := n.term.Swap(nil)
	time.AfterFunc(20*time.Millisecond, func() { n.term.Store(tm) })
	here, there := net.Pipe()
	defer here.Close()
	served := make(chan struct{})
	go func() {
		host{n}.ServeLink(there, &peer.Greeting{From: 2, Version: peer.Version})
		there.Close()
		close(served)
	}()
	here.SetDeadline(time.Now().Add(20 * time.Second))
	w := bufio.NewWriter(here)
	must.OK(t, peer.WriteMessage(w, peer.LinkTouches, (&peer.Touches{Number: 1}).Append(nil)))
	must.OK(t, w.Flush())
	typ, _, err := peer.ReadMessage(bufio.NewReader(here))
	must.That(t, err == nil && typ == peer.LinkAck, "message %d, %v", typ, err)
	stop(t, n)
	must.Equal(t, expect.Err(here.Read(make([]byte, 1))), io.EOF, "the link goes on")
	<-served
	late, other := net.Pipe()
	defer other.Close()
	l := &followers.Link{Conn: late}
	expect.That(t, !tm.links.Add(l), "a link that comes after the end is taken")
	expect.That(t, !l.Push(state.Block{}), "a block that comes after the end is taken")
}

// slowEar is an observer that tells what it has heard when it is allowed to.
type slowEar struct {
	watcher
	asked, may chan struct{}
}

func (s *slowEar) Heard(b []state.Touch, all bool) []state.Touch {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-s.may
	return s.watcher.Heard(b, all)
}

// A term is over when its duties are done: none of them goes on beside the next term's.
func TestTermWaitsForItsDuties(t *testing.T) {
	t.Parallel()
	ear := &slowEar{asked: make(chan struct{}, 1), may: make(chan struct{})}
	var log must.Text
	n := must.Get(Start(t.Context(), Options{Observer: ear, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Fatal: func(err error) { t.Error(err) }}))(t)
	<-ear.asked
	ended := make(chan struct{})
	go func() { n.Abort(); close(ended) }()
	const over = "this server is no longer the leader"
	select {
	case <-ended:
		t.Error("it ends beside a duty of its leader")
	case <-time.After(100 * time.Millisecond):
	}
	expect.That(t, !strings.Contains(log.String(), over), "the term is over beside a duty")
	close(ear.may)
	<-ended
	expect.Has(t, log.String(), over)
}

// A leader removes containers that were used and are empty, and nodes whose time is over, and no others.
func TestLeaderReapsWhatIsDue(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{SweepInterval: 5 * time.Millisecond})
	a := newAsker(t, n)
	for _, path := range []string{"/used", "/never", "/full"} {
		code := a.do(jute.OpCreateContainer, createBody(path, jute.FlagContainer))
		must.Equal(t, code, jute.OK, "create %s", path)
	}
	must.Equal(t, a.do(jute.OpCreateTTL, createTTLBody("/hour", time.Hour)), jute.OK)
	must.Equal(t, a.create("/full/child"), jute.OK)
	must.Equal(t, a.create("/used/child"), jute.OK)
	must.Equal(t, a.remove("/used/child"), jute.OK)
	must.Equal(t, a.do(jute.OpCreateTTL, createTTLBody("/short", time.Millisecond)), jute.OK)
	has := func(path string) (ok bool) {
		n.View(func(s *state.State) { _, ok = s.Tree().Get(path) })
		return ok
	}
	eventually(t, "both are removed", func() bool { return !has("/used") && !has("/short") })
	expect.That(t, has("/never"),
		"a node is removed that is not due: want has(\"/never\")")
	expect.That(t, has("/full/child"),
		"a node is removed that is not due: want has(\"/full/child\")")
	expect.That(t, has("/hour"), "a node is removed that is not due: want has(\"/hour\")")
}

// The operator decides whether nodes may have a time to live.
func TestNodesWithATimeToLiveWhereTheyAreAllowed(t *testing.T) {
	t.Parallel()
	for refused, want := range map[bool]jute.ErrCode{false: jute.OK, true: jute.Unimplemented} {
		n, _ := start(t, Options{NoTTL: refused})
		code := newAsker(t, n).do(jute.OpCreateTTL, createTTLBody("/hour", time.Hour))
		expect.Equal(t, code, want, "refused: %v", refused)
	}
}

// sweeper is a leader with nodes that are due, made of their paths.
func sweeper(t *testing.T, paths func(i int) string, nodes int) *term {
	t.Helper()
	a := applied.New()
	c := &tree.Change{Session: 1}
	for i := range nodes {
		c.Zxid++
		_, code, _ := a.State().Tree().Apply(c, jute.OpCreateTTL, createTTLBody(paths(i), time.Millisecond),
			nil)
		must.Equal(t, code, jute.OK, "create node %d", i)
	}
	return &term{n: &Node{id: 1, fsm: a.FSM, o: Options{Now: time.Now}}, work: signal.New()}
}

// One sweep proposes so many removals that others have their turn soon, and the next proposes the rest.
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

// A leader ends the sessions whose time is over a while after that, by what the state says of them.
func TestG11ExpiryIsProposed(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.NewSession())
	s := a.Sessions()[0]
	synctest.Test(t, func(t *testing.T) {
		tm := &term{n: &Node{fsm: a.FSM, o: Options{MinSessionTimeout: 4 * time.Second}}, tracker: a.Lead(),
			work: signal.New()}
		grace := tm.grace()
		expect.Equal(t, grace, 500*time.Millisecond)
		tm.tracker.Touch(s.ID, 1000)
		tm.tracker.Touch(77, 1000) // which the state does not know
		tm.expire(time.Now().Add(time.Second + grace - 1))
		if expect.Equal(t, len(tm.acts.ends), 0, "it is ended too early: len(tm.acts.ends)") {
			expect.Equal(t, len(tm.work), 0, "it is ended too early: len(tm.work)")
		}
		tm.expire(time.Now().Add(time.Second + grace))
		must.Equal(t, len(tm.acts.ends), 1, "sessions that are ended")
		end := state.Request{Session: s.ID, Gen: s.Gen, Op: state.OpExpire}
		entry, _ := tm.acts.take(nil)
		bl, _, err := state.NextBlock(entry)
		must.OK(t, err)
		expect.List(t, bl.Requests, end.Append(nil))
		expect.Equal(t, len(tm.work), 1, "the batcher is told")
		left := tm.tracker.All()
		if expect.Equal(t, len(left), 1, "it is ended again if that is lost: len(left)") {
			expect.That(t, left[s.ID] > 0,
				"it is ended again if that is lost: %v: want left[s.ID] > 0", left)
		}
	})
}

// Many sessions are silent for many of their timeouts while the log takes nothing. The end of each is proposed
// once, in entries that end so many sessions and nodes, and what the leader publishes goes first.
func TestG11EndOfASessionWaitsOnce(t *testing.T) {
	t.Parallel()
	const many = 2*endsInEntry + 300
	a := applied.New()
	for range many {
		a.Entry(applied.NewSession())
	}
	synctest.Test(t, func(t *testing.T) {
		tm := &term{n: &Node{fsm: a.FSM, o: Options{MinSessionTimeout: time.Second}}, tracker: a.Lead(),
			work: signal.New()}
		for range 500 {
			time.Sleep(time.Second)
			tm.expire(time.Now())
		}
		expect.Equal(t, len(tm.acts.ends), many, "ends that wait")
		tm.propose(state.Request{Op: state.OpConfig, Body: []byte("members")})
		ended := map[int64]bool{}
		for _, want := range []uint32{endsInEntry + 1, endsInEntry, 300} {
			entry, more := tm.acts.take(nil)
			bl, _, err := state.NextBlock(entry)
			must.OK(t, err)
			expect.Equal(t, bl.Count, want, "acts in an entry")
			expect.Equal(t, more, want != 300, "more acts wait")
			for rest := bl.Requests; len(rest) > 0; {
				var id int64
				if id, rest = state.PeekRequest(rest); id == 0 {
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

// Every server compares its state with the leader's now and then, where there are others.
func TestDigestsAreCompared(t *testing.T) {
	t.Parallel()
	tm := publisher(t)
	a := &applied.State{FSM: tm.n.fsm, Last: tm.n.fsm.Index()}
	var last state.Digest
	for ok := false; !ok; { // a digest is taken now and then
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
		expect.Equal(t, tm.compareDigests(c.done), c.then, "behind 0x%x, at 0x%x", c.done, last.Zxid)
		list := tm.proposes()
		if c.then == c.done {
			expect.Equal(t, len(list), 0, "digests behind 0x%x", c.done)
		} else {
			expect.List(t, list, []string{string(want.Append(nil))})
		}
	}
	tm.n.port = nil
	expect.Equal(t, tm.compareDigests(0), 0)
	expect.Equal(t, len(tm.proposes()), 0, "digests of a server without others")
}

// What is refused for want of room is told with the next entry, and once.
func TestL20RoomIsLookedAt(t *testing.T) {
	t.Parallel()
	var log must.Text
	a := applied.New()
	n := &Node{id: 1, fsm: a.FSM, log: slog.New(slog.NewTextHandler(&log, nil))}
	tm := &term{n: n, work: signal.New()}
	n.term.Store(tm)
	nodes := a.State().Tree().Count()
	barrier := state.Request{Op: state.OpBarrier}
	for _, c := range []struct {
		low       string
		most      int
		full, own bool // and the disk
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
		n.upkeep = upkeep.New(upkeep.Options{MaxNodes: c.most, View: n.View})
		n.upkeep.NoteDisk(c.low)
		before := log.String()
		tm.lookAtRoom()
		expect.Equal(t, tm.full.Load(), c.full, "%+v: tm.full.Load()", c)
		expect.Equal(t, tm.low.Load(), c.own, "%+v: tm.low.Load()", c)
		said := strings.TrimPrefix(log.String(), before)
		expect.That(t, strings.Contains(said, c.told) && (said == "") == (c.told == ""), "%+v: says %q", c, said)
		list := tm.proposes()
		expect.Equal(t, len(list) == 1, c.barrier, "%+v: an entry tells it", c)
		if len(list) == 1 {
			expect.Equal(t, list[0], string(barrier.Append(nil)))
		}
	}
	n.upkeep.NoteDisk("")
	l := &followers.Link{Greeting: peer.Greeting{From: 3}}
	tm.links.Add(l)
	l.SetFull("little room")
	expect.Equal(t, tm.lowest(), "server 3: little room")
	n.term.Store(nil)
	n.addBarrier() // by a server that does not lead: nothing
	expect.Equal(t, len(tm.acts.list), 0)
}
