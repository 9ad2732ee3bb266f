package raftfsm

import (
	"bytes"
	"fmt"
	"runtime/trace"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/stream"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An execution trace has a mark for each step of a write.
func TestTraceShowsTheStepsOfAWrite(t *testing.T) {
	t.Parallel()
	if trace.IsEnabled() {
		t.Skip("a trace is recorded already")
	}
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	n := c.nodes[lead%3+1]
	s := openSession(t, n, 60_000).Session
	body := createBody("/traced", 0)
	var recorded bytes.Buffer
	must.OK(t, trace.Start(&recorded))
	defer trace.Stop()
	o := served(t, n, state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: body})
	// The answer may come before the link adds to the trace that it has sent the request. By the time a second
	// request is answered, the trace has that step of the first.
	must.Equal(t, served(t, n, state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
		Body: createBody("/traced-2", 0)}).Code, jute.OK)
	empty := stream.New()
	empty.Open(1)
	empty.Take(empty.Rewind(), 1, 1, 100, nil)
	trace.Stop()
	must.Equal(t, o.Code, jute.OK)
	for _, step := range []string{
		fmt.Sprintf("session 0x%x: create, %d bytes: queued for the leader", s.ID, len(body)),
		"leave the queue as one block",
		"all blocks that left the queue are sent to the leader, server ",
		"bytes is given to raft",
		"is applied",
	} {
		expect.That(t, bytes.Contains(recorded.Bytes(), []byte(step)), "the trace lacks %q", step)
	}
	const nothing = "requests 1 to 0 leave"
	expect.That(t, !bytes.Contains(recorded.Bytes(), []byte(nothing)),
		"the trace has a step where nothing is taken")
}

// measured keeps the values of each measure.
type measured struct {
	mu     sync.Mutex
	values map[string][]int64
}

func (m *measured) kind(name string) Measure {
	return func(v int64) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.values == nil {
			m.values = map[string][]int64{}
		}
		m.values[name] = append(m.values[name], v)
	}
}

// last() returns the newest value of a measure. It returns -1 if the measure has no value.
func (m *measured) last(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if list := m.values[name]; len(list) > 0 {
		return list[len(list)-1]
	}
	return -1
}

func (m *measured) count(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values[name])
}

// An entry is measured where it is proposed and where it is applied.
func TestEntriesAreMeasured(t *testing.T) {
	t.Parallel()
	var m measured
	n, _ := start(t, Options{Measures: Measures{EntryBytes: m.kind("bytes"), StreamWaiting: m.kind("waiting"),
		EntryRequests: m.kind("requests"), CommitTime: m.kind("commit"), ProposalTime: m.kind("proposal"),
		PropagationTime: m.kind("propagation"), Unavailable: m.kind("unavailable")}})
	a := newAsker(t, n)
	body := createBody("/measured", 0)
	before := m.count("waiting")
	c := &call{make(chan state.Outcome, 1)}
	n.View(func(*state.State) { // while the state is locked, the entry cannot be applied
		must.OK(t, n.Propose(state.Request{Session: a.s.Session.ID, Gen: a.s.Session.Gen, Op: jute.OpCreate,
			Body: body}, c))
		eventually(t, "the entry is measured as proposed", func() bool { return m.count("waiting") > before })
	})
	expect.Equal(t, m.last("waiting"), 1, "requests under way")
	size := m.last("bytes")
	expect.That(t, size > int64(len(body)) && size < int64(len(body))+1000, "an entry of %d bytes", size)
	must.Equal(t, (<-c.ch).Code, jute.OK)
	eventually(t, "the entry is measured as applied", func() bool { return m.last("propagation") >= 0 })
	eventually(t, "the leader measures it", func() bool {
		return m.last("commit") >= 0 && m.last("proposal") >= 0
	})
	expect.Equal(t, m.last("requests"), 1, "requests in the entry")
	expect.That(t, m.last("unavailable") > 0, "clients were served after no time")
}

// A snapshot is measured when it is written, read at a start, and sent.
func TestSnapshotsAreMeasured(t *testing.T) {
	t.Parallel()
	var m measured
	o := Options{DataDir: t.TempDir(), Measures: Measures{SnapshotWriteTime: m.kind("write"),
		SnapshotReadTime: m.kind("read"), SnapshotSent: m.kind("sent")}}
	n, _ := start(t, o)
	newAsker(t, n)
	must.OK(t, n.Snapshot())
	expect.Equal(t, fmt.Sprint(m.count("write"), m.count("read"), m.count("sent")), "1 0 0")
	host{n}.SnapshotSent()
	expect.Equal(t, m.last("sent"), 1)
	written := n.Status().Snapshot
	expect.Equal(t, written.Zxid, n.Zxid(), "the newest snapshot")
	stop(t, n)
	n, _ = start(t, o)
	expect.Equal(t, fmt.Sprint(m.count("write"), m.count("read"), m.count("sent")), "1 1 1")
	again := n.Status().Snapshot
	expect.Equal(t, again.Zxid, written.Zxid,
		"the newest snapshot is %+v, before the start it was %+v: again.Zxid", again, written)
	expect.That(t, again.Time.Sub(written.Time).Abs() < time.Minute,
		"the newest snapshot is %+v, before the start it was %+v",
		again, written)
}

// The time without a leader starts when the connection to the leader breaks, or when the leader loses the
// leadership.
func TestTimeWithoutALeaderIsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m measured
		n := &Node{id: 1, log: quietLog(t, 1), o: Options{Measures: Measures{Elections: m.kind("elections"),
			ElectionTime: m.kind("time"), LeaderUnavailable: m.kind("own")}}}
		w := &leaderWatch{n: n, news: signal.New(), lost: time.Now()}
		counted := func(what string, elections int, last, own time.Duration) {
			t.Helper()
			got := fmt.Sprint(len(m.values["elections"]), m.last("time"), m.last("own"))
			expect.Equal(t, got, fmt.Sprint(elections, last.Microseconds(), own.Microseconds()), "%s", what)
		}
		const none = -time.Microsecond
		time.Sleep(time.Second)
		w.set(2)
		counted("the first leader", 0, time.Second, none)
		time.Sleep(time.Second)
		w.broken()
		time.Sleep(2 * time.Second)
		w.held(2)
		time.Sleep(time.Second)
		w.broken()
		time.Sleep(2 * time.Second)
		w.set(2) // the leader is the same, so the time since the connection broke does not count
		w.broken()
		time.Sleep(2 * time.Second)
		w.broken()
		w.held(3) // server 3 is not the leader, so this connection changes nothing
		w.set(0)
		counted("no leader", 1, time.Second, none)
		time.Sleep(3 * time.Second)
		w.set(0)
		w.set(1)
		counted("this server leads", 1, 5*time.Second, 5*time.Second)
		time.Sleep(time.Second)
		w.set(3)
		counted("another took over", 2, 0, 5*time.Second)
		time.Sleep(time.Second)
		w.set(0)
		time.Sleep(time.Second)
		w.set(2)
		counted("one was lost", 3, time.Second, 5*time.Second)
	})
}
