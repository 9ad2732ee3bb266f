package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// Lead gives leadership to a server.
func (n *Node) Lead(ctx context.Context, id uint32) error {
	return n.ChangeMember(ctx, change.Change{Op: "lead", ID: id})
}

// quietLog logs only when ZLOCKD_TEST_LOG is set.
func quietLog(t testing.TB, id uint32) *slog.Logger {
	if os.Getenv("ZLOCKD_TEST_LOG") == "" {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("server",
		id)
}

// watcher is an Observer that counts what it hears.
type watcher struct {
	serving atomic.Bool
	mu      sync.Mutex
	heard   []state.Touch
	ended   map[int64]state.EndCause
	events  int
	resets  int
	links   int // how many links have begun
}

func (w *watcher) Events(_ int64, e []tree.Event) { w.mu.Lock(); w.events += len(e); w.mu.Unlock() }
func (w *watcher) SessionMoved(int64, uint32)     {}
func (w *watcher) Reset()                         { w.mu.Lock(); w.resets++; w.mu.Unlock() }
func (w *watcher) Applied()                       {}
func (w *watcher) Serving(s bool)                 { w.serving.Store(s) }
func (w *watcher) ReadOnly(bool)                  {}
func (w *watcher) SessionEnded(e *state.Ending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = map[int64]state.EndCause{}
	}
	w.ended[e.Session.ID] = e.Cause
}
func (w *watcher) Heard(b []state.Touch, all bool) []state.Touch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all {
		w.links++
	}
	return append(b, w.heard...)
}

func (w *watcher) resetCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resets
}

// hear() makes the server believe that it has heard from a session's client.
func (w *watcher) hear(id int64) {
	w.mu.Lock()
	w.heard = append(w.heard, state.Touch{Session: id})
	w.mu.Unlock()
}

func (w *watcher) endedBy(id int64) (state.EndCause, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.ended[id]
	return c, ok
}

// call is a Waiter that passes the outcome to a channel.
type call struct{ ch chan state.Outcome }

func (c *call) Done(o *state.Outcome, _ *state.State) {
	out := *o
	out.Reply = append([]byte(nil), o.Reply...)
	c.ch <- out
}

var errNoOutcome = errors.New("no outcome in time")

func propose(n *Node, r state.Request) (state.Outcome, error) {
	c := &call{make(chan state.Outcome, 1)}
	if err := n.Propose(r, c); err != nil {
		return state.Outcome{}, err
	}
	select {
	case o := <-c.ch:
		return o, nil
	case <-time.After(time.Minute):
		return state.Outcome{}, errNoOutcome
	}
}

// served() proposes a request, again and again until the server serves: on a busy machine a server may stop
// serving for a moment.
func served(t testing.TB, n *Node, r state.Request) (o state.Outcome) {
	t.Helper()
	var err error
	eventually(t, "the server serves", func() bool {
		o, err = propose(n, r)
		return !errors.Is(err, ErrClosed)
	})
	must.OK(t, err)
	return o
}

func openSession(t testing.TB, n *Node, timeout int32) state.Outcome {
	t.Helper()
	body := state.SessionBody{Timeout: timeout, Owner: n.ID(), Addr: "127.0.0.1"}
	var o state.Outcome
	eventually(t, "a session", func() bool { // tried again: on a busy machine the leader may change
		o = served(t, n, state.Request{Op: state.OpCreateSession, Body: body.Append(nil)})
		return !o.Unknown
	})
	must.That(t, o.Session.ID != 0, "create session: %+v", o)
	return o
}

var createBody = applied.Create

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// start() runs one server until the test ends.
func start(t testing.TB, o Options) (*Node, *watcher) {
	t.Helper()
	w := new(watcher)
	o.Observer = w
	if o.Fatal == nil {
		o.Fatal = func(err error) { t.Errorf("server %d stopped: %v", o.ID, err) }
	}
	if o.Logger == nil {
		o.Logger = quietLog(t, o.ID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := must.Get(Start(ctx, o))(t)
	t.Cleanup(func() { stop(t, n) })
	return n, w
}

func stop(t testing.TB, n *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	expect.OK(t, n.Close(ctx), "close")
}

func TestSingleServerKeepsWhatItAcknowledgedOverARestart(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"wal", "bolt"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			n, w := start(t, Options{DataDir: dir, LogStore: kind})
			eventually(t, "serving", w.serving.Load)
			s := openSession(t, n, 60_000).Session
			var zxid int64
			for i := range 20 {
				o, err := propose(n, state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
					Body: createBody(fmt.Sprintf("/n%d", i), 0)})
				must.OK(t, err, "create %d", i)
				must.Equal(t, o.Code, jute.OK, "create %d: o.Code", i)
				zxid = o.Zxid
				if i == 10 {
					must.OK(t, n.Snapshot())
				}
			}
			stop(t, n)
			again := time.Now()
			var replayed, took atomic.Int64
			n, w = start(t, Options{DataDir: dir, LogStore: kind, Measures: Measures{ReplayEntries: replayed.Store,
				ReplayTime: took.Store}})
			eventually(t, "serving again", w.serving.Load)
			entries, us := replayed.Load(), took.Load()
			expect.That(t, entries >= 9, "%d entries were read again, want 9 or more", entries)
			expect.That(t, us > 0, "entries were read again in no time")
			expect.That(t, us <= time.Since(again).Microseconds(),
				"entries were read again in %d µs, longer than the start",
				us)
			expect.Equal(t, n.Zxid(), zxid, "zxid %d after restart", n.Zxid())
			n.View(func(st *state.State) {
				expect.Equal(t, len(st.Tree().Children("/")), 21, "children of the root after restart")
				_, ok := st.Sessions().Get(s.ID)
				expect.That(t, ok, "session is gone after restart")
			})
		})
	}
}

// record is an Observer that lists what it hears.
type record struct {
	watcher
	list    must.Text
	applied atomic.Int64
}

func (r *record) Events(zxid int64, events []tree.Event) {
	for _, e := range events {
		fmt.Fprintf(&r.list, "0x%x %v %s\n", zxid, e.Type, e.Path)
	}
}
func (r *record) SessionMoved(id int64, gen uint32) {
	fmt.Fprintf(&r.list, "0x%x moved to %d\n", id, gen)
}
func (r *record) SessionEnded(e *state.Ending) { fmt.Fprintf(&r.list, "0x%x ended\n", e.Session.ID) }
func (r *record) Applied()                     { r.applied.Add(1) }

// An observer hears of a change before the request that made it is answered.
func TestObserverHearsOfEveryChange(t *testing.T) {
	t.Parallel()
	r := new(record)
	n := must.Get(Start(t.Context(), Options{Observer: r, Logger: quietLog(t, 1),
		Fatal: func(err error) { t.Error(err) }}))(t)
	t.Cleanup(func() { stop(t, n) })
	a := newAsker(t, n)
	heard := r.list.String()
	hears := func(want ...string) {
		t.Helper()
		was := heard
		heard = r.list.String()
		expect.Equal(t, strings.TrimPrefix(heard, was), strings.Join(append(want, ""), "\n"))
	}
	id := fmt.Sprintf("0x%x", a.s.Session.ID)
	must.Equal(t, a.create("/x"), jute.OK)
	zxid := n.Zxid()
	at := func(later int64) string { return fmt.Sprintf("0x%x ", zxid+later) }
	hears(at(0)+"NodeCreated /x", at(0)+"NodeChildrenChanged /")
	must.Equal(t, a.create("/x"), jute.NodeExists)
	hears()
	must.Equal(t, a.set("/x", "data"), jute.OK)
	hears(at(1) + "NodeDataChanged /x")
	must.Equal(t, a.do(jute.OpCreate, createBody("/x/e", jute.FlagEphemeral)), jute.OK)
	hears(at(2)+"NodeCreated /x/e", at(2)+"NodeChildrenChanged /x")
	body := state.SessionBody{Timeout: 60_000, Password: a.s.Session.Password, Owner: 1}
	attach := state.Request{Op: state.OpAttach, Session: a.s.Session.ID, Body: body.Append(nil)}
	o := must.Get(propose(n, attach))(t)
	must.Equal(t, o.Code, jute.OK, "o.Code")
	must.That(t, o.Session.Gen > a.s.Session.Gen, "the session still has generation %d", o.Session.Gen)
	hears(fmt.Sprintf("%s moved to %d", id, o.Session.Gen))
	a.s = o
	must.Equal(t, a.do(jute.OpCloseSession, nil), jute.OK)
	got := strings.TrimPrefix(r.list.String(), heard)
	for _, line := range []string{"NodeDeleted /x/e\n", "NodeChildrenChanged /x\n", id + " ended\n"} {
		expect.Has(t, got, line)
	}
	eventually(t, "the end of each batch", func() bool { return r.applied.Load() >= 6 })
}

func TestG10G11SessionExpiresWhenSilentAndNotBefore(t *testing.T) {
	t.Parallel()
	n, w := start(t, Options{MinSessionTimeout: time.Second}) // a stall of 250 ms or more prolongs sessions
	eventually(t, "serving", w.serving.Load)
	loud := openSession(t, n, 1000).Session
	w.hear(loud.ID)
	began := time.Now()
	quiet := openSession(t, n, 1000).Session
	eventually(t, "expiry", func() bool { _, ok := w.endedBy(quiet.ID); return ok })
	d := time.Since(began)
	expect.That(t, d >= time.Second, "expired after %v, before its timeout of a second", d)
	if _, ok := w.endedBy(loud.ID); ok {
		t.Error("a session that was heard from has expired")
	}
	o, err := propose(n, state.Request{Session: quiet.ID, Gen: quiet.Gen, Op: jute.OpCreate,
		Body: createBody("/x", 1)})
	if expect.OK(t, err, "write of an expired session") {
		expect.That(t, o.Refused, "a write of an expired session is accepted: %+v", o)
	}
}

// trio is a cluster of three on loopback.
type trio struct {
	t     testing.TB
	opts  [4]Options
	nodes [4]*Node
	seen  [4]*watcher
}

func freeAddr(t testing.TB) string {
	list := must.Get(cluster.FreePorts(1))(t)
	return list[0]
}

// newTrio starts a trio with long heartbeats, so that the leader stays the leader even on a busy machine.
// Because of them, a server also notices late that it is cut off.
func newTrio(t testing.TB, durable bool, tune func(*Options)) *trio {
	t.Helper()
	c := &trio{t: t}
	peers := map[uint32]string{1: freeAddr(t), 2: freeAddr(t), 3: freeAddr(t)}
	for id := uint32(1); id <= 3; id++ {
		o := Options{ID: id, Peers: peers, Stores: disk.NewMemoryStores(false),
			HeartbeatTimeout: 5 * time.Second, MinSessionTimeout: 7 * time.Second}
		if durable {
			o.Stores, o.DataDir = nil, t.TempDir()
		}
		if tune != nil {
			tune(&o)
		}
		c.opts[id] = o
	}
	var wg sync.WaitGroup
	for id := 1; id <= 3; id++ {
		wg.Go(func() { c.start(id) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for id := 1; id <= 3; id++ {
		eventually(t, fmt.Sprintf("server %d serves", id), c.seen[id].serving.Load)
	}
	return c
}

// brisk() makes servers notice soon that their leader is gone. On a busy machine the leader may then change
// at any time.
func brisk(o *Options) { o.HeartbeatTimeout, o.MinSessionTimeout = 300*time.Millisecond, 0 }

func (c *trio) start(id int) {
	w := new(watcher)
	o := c.opts[id]
	o.Observer = w
	if o.Logger == nil {
		o.Logger = quietLog(c.t, o.ID)
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { c.t.Errorf("server %d stopped: %v", id, err) }
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := Start(ctx, o)
	if err != nil {
		c.t.Errorf("server %d: %v", id, err)
		return
	}
	c.nodes[id], c.seen[id] = n, w
	c.t.Cleanup(func() { stop(c.t, n) })
}

// mustLead waits until a server leads.
func (c *trio) mustLead() (id int) {
	c.t.Helper()
	eventually(c.t, "a leader", func() bool { id = c.leader(); return id != 0 })
	return id
}

// leader() returns the id of the leader. It returns 0 if no server leads.
func (c *trio) leader() int {
	for id := 1; id <= 3; id++ {
		if n := c.nodes[id]; n != nil && !n.closed.Load() && n.leader.Term() != nil {
			return id
		}
	}
	return 0
}

func TestThreeServersShareOneState(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	for id := 1; id <= 3; id++ {
		s := openSession(t, c.nodes[id], 60_000).Session
		for i := range 50 {
			o, err := propose(c.nodes[id], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
				Body: createBody(fmt.Sprintf("/s%d-%d", id, i), 0)})
			must.OK(t, err, "create at %d (leader %d)", id, lead)
			must.Equal(t, o.Code, jute.OK, "create at %d (leader %d): o.Code", id, lead)
			c.nodes[id].View(func(st *state.State) {
				expect.That(t, st.Zxid() >= o.Zxid, "answered before its own apply")
			})
		}
	}
	c.sameDigest()
	eventually(t, "the members are published", func() (ok bool) {
		c.nodes[1].View(func(st *state.State) {
			info, _ := st.Tree().Get("/zookeeper/config")
			ok = strings.Count(string(info.Data), ":participant") == 3 && strings.Contains(string(info.Data),
				"\nversion=")
		})
		return ok
	})
}

// sameDigest waits until all running servers have applied the same entries, and compares their digests.
func (c *trio) sameDigest() {
	c.t.Helper()
	var digests [4]uint64
	eventually(c.t, "equal states", func() bool {
		var zxids []int64
		for id := 1; id <= 3; id++ {
			if c.nodes[id].closed.Load() {
				continue
			}
			c.nodes[id].View(func(s *state.State) { zxids = append(zxids, s.Zxid()); digests[id] = s.Digest() })
		}
		for i := range zxids {
			if zxids[i] != zxids[0] {
				return false
			}
		}
		return true
	})
	var want uint64
	for id := 1; id <= 3; id++ {
		if c.nodes[id].closed.Load() {
			continue
		}
		if want == 0 {
			want = digests[id]
		}
		if digests[id] != want {
			c.t.Errorf("digests differ: %x", digests[1:])
		}
	}
}

func TestWritesOfSurvivorsAreAppliedOnceWhenTheLeaderDies(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	s := map[int]state.Outcome{}
	for id := 1; id <= 3; id++ {
		s[id] = openSession(t, c.nodes[id], 60_000)
	}
	lead := c.mustLead()
	var wg sync.WaitGroup
	var stopping atomic.Bool
	var done [4]int
	var slowest [4]time.Duration
	for id := 1; id <= 3; id++ {
		if id == lead {
			continue
		}
		wg.Go(func() {
			for i := 0; !stopping.Load(); i++ {
				began := time.Now()
				o, err := propose(c.nodes[id], state.Request{Session: s[id].Session.ID, Gen: 1, Op: jute.OpCreate,
					Body: createBody(fmt.Sprintf("/w%d-", id), 2)})
				if err != nil || o.Refused || o.Unknown || o.Code != jute.OK {
					t.Errorf("write %d at %d: %+v %v", i, id, o, err)
					return
				}
				slowest[id] = max(slowest[id], time.Since(began))
				done[id]++
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	stop(t, c.nodes[lead])
	eventually(t, "a new leader", func() bool { l := c.leader(); return l != 0 && l != lead })
	time.Sleep(300 * time.Millisecond)
	stopping.Store(true)
	wg.Wait()
	c.sameDigest()
	for id := 1; id <= 3; id++ {
		if id == lead {
			continue
		}
		t.Logf("server %d: %d writes, slowest %v", id, done[id], slowest[id])
		c.nodes[id].View(func(st *state.State) {
			count := 0
			for _, name := range st.Tree().Children("/") {
				if strings.HasPrefix(name, fmt.Sprintf("w%d-", id)) {
					count++
				}
			}
			expect.Equal(t, count, done[id],
				"server %d: %d writes answered, %d nodes", id, done[id], count)
		})
	}
}
