package raftfsm

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
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
	l := &inLink{c: late}
	expect.That(t, !tm.links.add(l), "a link that comes after the end is taken")
	expect.That(t, !l.push(state.Block{}), "a block that comes after the end is taken")
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
	ear := &slowEar{asked: make(chan struct{}, 1), may: make(chan struct{})}
	var log must.Text
	n := must.Get(Start(t.Context(), Options{Observer: ear, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Fatal: func(err error) { t.Error(err) }}))(t)
	<-ear.asked
	ended := make(chan struct{})
	go func() { n.Abort(); close(ended) }()
	const over = "this server leads no more"
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
	expect.That(t, has("/never") && has("/full/child") && has("/hour"), "a node is removed that is not due")
}

// The operator decides whether nodes may have a time to live.
func TestNodesWithATimeToLiveWhereTheyAreAllowed(t *testing.T) {
	for refused, want := range map[bool]jute.ErrCode{false: jute.OK, true: jute.Unimplemented} {
		n, _ := start(t, Options{NoTTL: refused})
		code := newAsker(t, n).do(jute.OpCreateTTL, createTTLBody("/hour", time.Hour))
		expect.Equal(t, code, want, "refused: %v", refused)
	}
}

// sweeper is a leader with nodes that are due, made of their paths.
func sweeper(t *testing.T, paths func(i int) string, nodes int) *term {
	t.Helper()
	f := newFSM(1, "c", new(watcher), nil)
	c := &tree.Change{Session: 1}
	for i := range nodes {
		c.Zxid++
		_, code, _ := f.state.Tree().Apply(c, jute.OpCreateTTL, createTTLBody(paths(i), time.Millisecond), nil)
		must.Equal(t, code, jute.OK, "create node %d", i)
	}
	return &term{n: &Node{id: 1, fsm: f, o: Options{Now: time.Now}}, work: newSignal()}
}

// One sweep proposes so many removals that others have their turn soon, and the next proposes the rest.
func TestSweepsAreBounded(t *testing.T) {
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
		expect.Equal(t, len(tm.acts.list), c.want, "%s: removals proposed", name)
		if len(tm.acts.list) == 0 {
			continue
		}
		first := state.Request{Op: state.OpReap, Body: []byte(c.path + "0")}
		expect.That(t, bytes.Equal(tm.acts.list[0], first.Append(nil)), "%s: proposes %.60q", name, tm.acts.list[0])
		expect.That(t, len(tm.work) == 1, "%s: the batcher is not told", name)
	}
}
