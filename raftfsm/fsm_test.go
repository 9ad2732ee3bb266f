package raftfsm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// applied is an fsm to which a test gives entries.
type applied struct {
	*fsm
	fatals []error
	index  uint64
}

func newApplied() *applied {
	a := new(applied)
	a.fsm = newFSM(1, "c", new(watcher), func(err error) { a.fatals = append(a.fatals, err) })
	return a
}

// entry applies one entry with a request.
func (a *applied) entry(r state.Request) {
	a.index++
	a.Apply(a.log(r))
}

func (a *applied) log(r state.Request) *raft.Log {
	return logged(a.index, state.Block{Count: 1, Requests: r.Append(nil)})
}

// block applies one entry with a block of requests.
func (a *applied) block(bl state.Block) {
	a.index++
	a.Apply(logged(a.index, bl))
}

// logged is an entry of the log with one block.
func logged(index uint64, bl state.Block) *raft.Log {
	entry := bl.Append(state.BeginEntry(nil, 0))
	state.SealEntry(entry, 1)
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry}
}

func newSession() state.Request {
	body := state.SessionBody{Timeout: 10_000, Owner: 1, Addr: "10.0.0.1"}
	return state.Request{Op: state.OpCreateSession, Body: body.Append(nil)}
}

// waits is a waiter that notes what came of its request.
type waits struct{ unknown, done int }

func (w *waits) Done(o *state.Outcome, _ *state.State) {
	w.done++
	if o.Unknown {
		w.unknown++
	}
}

// openStream opens the first stream of server 1.
func openStream() state.Request {
	m := state.Member{ID: 1, Incarnation: "a"}
	return state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), 1)}
}

func (a *applied) sessions() (n int) {
	(&Node{fsm: a.fsm}).View(func(s *state.State) { s.Sessions().All(func(session.Session) { n++ }) })
	return n
}

// refuses checks that a server whose state cannot be trusted changes it no more, and shows it to no server
// and no operator.
func (a *applied) refuses(t *testing.T) {
	t.Helper()
	sessions := a.sessions()
	a.entry(newSession())
	expect.Equal(t, a.sessions(), sessions, "sessions after an entry")
	expect.That(t, a.index > a.fsm.index.Load(), "the entry counts as applied")
	snap, err := a.Snapshot()
	if expect.Fails(t, err, "a snapshot is taken") {
		expect.That(t, snap == nil, "a snapshot is taken: %v: want snap == nil", err)
	}
	for range 2 { // and the place for a backup stays free
		_, err = (&Node{fsm: a.fsm}).Backup(t.Context())
		expect.Fails(t, err, "a backup is taken")
		if err != nil {
			expect.Has(t, err.Error(), "has stopped")
		}
	}
}

// A server hears of an entry that its own disk could still forget, and the disk fails: the disk ends the
// server. The state does not get the entry.
func TestServerWhoseDiskFailedStandsStill(t *testing.T) {
	t.Parallel()
	a := newApplied()
	a.entry(newSession())
	must.Equal(t, a.sessions(), 1)
	a.durable = func(uint64) error { return errors.New("the disk failed") }
	a.entry(newSession())
	a.durable = func(uint64) error { return nil }
	a.refuses(t)
	expect.Equal(t, len(a.fatals), 0, "the server ends twice: %v", a.fatals)
	expect.Equal(t, a.sessions(), 1)
}

// An entry that cannot be applied ends the server, once.
func TestG26ServerThatCannotApplyAnEntryEnds(t *testing.T) {
	t.Parallel()
	a := newApplied()
	a.entry(newSession())
	bad := a.log(newSession())
	bad.Data[len(bad.Data)-1] ^= 1
	for range 2 {
		a.Apply(bad)
	}
	must.Equal(t, len(a.fatals), 1, "the server ends with %v", a.fatals)
	expect.Has(t, a.fatals[0].Error(), "apply log entry 1")
	a.refuses(t)
}

// Entries of raft's own change nothing.
func TestEntriesOfRaftAreNotApplied(t *testing.T) {
	t.Parallel()
	a := newApplied()
	l := a.log(newSession())
	for _, l.Type = range []raft.LogType{raft.LogNoop, raft.LogBarrier, raft.LogConfiguration} {
		a.Apply(l)
	}
	expect.Equal(t, a.sessions(), 0, "sessions")
	expect.Equal(t, len(a.fatals), 0, "the server ended: %v", a.fatals)
}

// One snapshot or backup is open at a time; raft's is put off, an operator's waits. None shows a restore
// that is under way.
func TestOneSnapshotAtATime(t *testing.T) {
	t.Parallel()
	a := newApplied()
	n := &Node{fsm: a.fsm}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	b := must.Get(n.Backup(t.Context()))(t)
	expect.Fails(t, expect.Err(a.Snapshot()), "a snapshot beside a backup")
	expect.Fails(t, expect.Err(n.Backup(over)), "a backup beside a backup")
	b.Close()
	for range 2 { // what is refused keeps no place
		snap := must.Get(a.Snapshot())(t)
		expect.Fails(t, expect.Err(n.Backup(over)), "a backup beside a snapshot")
		snap.(*fsmSnapshot).sink = discard{io.Discard}
		snap.Release()
	}
	g := state.Staging{ID: 5, Origin: 1, Birth: 1, Size: 10}
	a.entry(openStream())
	a.entry(g.Open())
	_, _, open := a.state.Staged()
	must.That(t, open, "no restore is under way")
	for range 2 {
		expect.Fails(t, expect.Err(a.Snapshot()), "a snapshot beside a restore")
	}
	a.entry(g.GiveUp())
	must.Get(a.Snapshot())(t)
}

// A server takes the state of its own cluster from another server, or from its disk, and no other.
func TestSnapshotOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	for _, cluster := range []string{"c", "other"} {
		var file bytes.Buffer
		from := newFSM(2, cluster, new(watcher), nil)
		from.at(7, 3)
		must.OK(t, from.hold().state.Write(&file, func(read func()) { read() }))
		a := newApplied()
		sent := a.verify(bytes.NewReader(file.Bytes()))
		found := newApplied()
		onDisk := found.Restore(io.NopCloser(bytes.NewReader(file.Bytes())))
		if cluster == "c" {
			expect.OK(t, sent)
			expect.OK(t, onDisk)
			expect.Equal(t, found.fsm.index.Load(), 7)
			expect.Equal(t, found.term.Load(), 3)
			expect.Equal(t, len(found.fatals), 0, "%v", found.fatals)
			continue
		}
		expect.Fails(t, sent, "a snapshot of another cluster is believed")
		expect.That(t, a.received.Load() == nil, "it is kept for the restore")
		expect.Equal(t, len(a.fatals), 0, "what another server sends ends this one: %v", a.fatals)
		expect.Fails(t, onDisk, "a snapshot of another cluster is restored")
		expect.Equal(t, len(found.fatals), 1, "the server goes on with it")
		expect.Equal(t, found.fsm.index.Load(), 0, "how far the state is")
	}
}

// A server that takes its state from a snapshot serves without another entry: the snapshot tells
// whether the members are published.
func TestSnapshotTellsThatTheMembersArePublished(t *testing.T) {
	t.Parallel()
	for _, published := range []bool{false, true} {
		a := newApplied()
		a.entry(openStream())
		if published {
			a.entry(state.Request{Op: state.OpConfig, Body: []byte("server.1=h:1:2:participant;h:3")})
		}
		expect.Equal(t, a.fsm.config.Load(), published, "published, at the server that applied it")
		var file bytes.Buffer
		snap := a.state.StartSnapshot(state.Position{Index: 7, Term: 3})
		must.OK(t, snap.Write(&file, func(read func()) { read() }))
		snap.Close()
		b := newApplied()
		must.OK(t, b.Restore(io.NopCloser(&file)))
		expect.Equal(t, b.fsm.config.Load(), published, "published, by the snapshot")
	}
}

// What a server keeps of a snapshot that another sent is used for that snapshot, and no other.
func TestSnapshotThatWasReadIsNotReadAgain(t *testing.T) {
	t.Parallel()
	file := func(index, term uint64) []byte {
		var b bytes.Buffer
		from := newFSM(2, "c", new(watcher), nil)
		from.at(index, term)
		must.OK(t, from.hold().state.Write(&b, func(read func()) { read() }))
		return b.Bytes()
	}
	sent := file(7, 3)
	for _, c := range []struct {
		name string
		file []byte
		kept bool
	}{{"the same", sent, true}, {"a later one", file(8, 3), false}, {"one of another term", file(7, 4), false}} {
		a := newApplied()
		must.OK(t, a.verify(bytes.NewReader(sent)))
		kept := a.received.Load().state
		must.OK(t, a.Restore(io.NopCloser(bytes.NewReader(c.file))))
		expect.Equal(t, a.state == kept, c.kept, "%s: its state is the one that was kept", c.name)
		expect.That(t, a.received.Load() == nil, "%s: the state is kept", c.name)
		at := must.Get(state.ReadPosition(bytes.NewReader(c.file)))(t)
		expect.Equal(t, a.fsm.index.Load(), at.Index, "%s: a.fsm.index.Load()", c.name)
		expect.Equal(t, a.term.Load(), at.Term, "%s: a.term.Load()", c.name)
	}
	a := newApplied()
	must.OK(t, a.verify(bytes.NewReader(sent)))
	expect.Fails(t, a.Restore(io.NopCloser(bytes.NewReader(sent[:5]))), "half a snapshot")
	expect.Equal(t, len(a.fatals), 1)
}

// A snapshot hides the outcomes of requests under way. Those that it covers are unknown; where it hides that
// the stream was opened or taken away, all are.
func TestSnapshotLeavesRequestsUnknown(t *testing.T) {
	t.Parallel()
	from := newApplied()
	from.entry(openStream())
	stream := func(first uint64) {
		r := state.Request{Op: jute.OpSync, Body: jute.AppendString(nil, "/")}
		from.block(state.Block{Origin: 1, Birth: 1, First: first, Count: 1, Requests: r.Append(nil)})
	}
	stream(1)
	stream(2)
	var file bytes.Buffer
	snap := from.state.StartSnapshot(state.Position{Index: 9, Term: 3})
	must.OK(t, snap.Write(&file, func(read func()) { read() }))
	snap.Close()
	for _, c := range []struct {
		birth          uint32
		nonce          int64 // of its own request for one; the snapshot has 1
		unknown, stays int
		then           uint32
		reopens        int
	}{{1, 1, 2, 1, 1, 0}, {1, 9, 2, 1, 0, 1}, {2, 9, 3, 0, 0, 1}, {0, 9, 3, 0, 0, 0}, {0, 1, 3, 0, 1, 0}} {
		a := newApplied()
		reopened, waited := 0, make(chan bool, 1)
		a.reopen = func() { reopened++ }
		var w waits
		s := a.stream
		s.SetClosed(false)
		if c.nonce != 0 {
			s.Opening(state.Member{ID: 1}, bytes.NewReader(binary.BigEndian.AppendUint64(nil, uint64(c.nonce)<<1)))
		}
		s.Open(c.birth)
		for range 3 {
			must.OK(t, s.Put(&state.Request{Op: jute.OpSync}, &w))
		}
		go func() { waited <- a.wait(t.Context().Done(), func() bool { return a.fsm.index.Load() == 9 }) }()
		eventually(t, "a goroutine waits for the entry", func() bool { return a.waiting.Load() == 1 })
		must.OK(t, a.Restore(io.NopCloser(bytes.NewReader(file.Bytes()))))
		expect.That(t, <-waited, "birth %d: the entry is not awaited", c.birth)
		expect.Equal(t, fmt.Sprint(w.unknown, w.done, s.Len(), s.Birth(), reopened),
			fmt.Sprint(c.unknown, c.unknown, c.stays, c.then, c.reopens), "birth %d", c.birth)
		expect.Equal(t, a.obs.(*watcher).resetCount(), 1, "times that clients were cut off")
		expect.Equal(t, a.zxid.Load(), from.zxid.Load())
		expect.Equal(t, a.snapshot.Load().Zxid, from.zxid.Load())
	}
}

// Entries that were found at the start are measured together, when the last of them is applied.
func TestReplayIsMeasuredAtItsEnd(t *testing.T) {
	t.Parallel()
	var m measured
	a := newApplied()
	a.measures = Measures{EntryRequests: m.kind("requests"), ReplayEntries: m.kind("entries"),
		ReplayTime:      m.kind("time"),
		PropagationTime: m.kind("propagation"), CommitTime: m.kind("commit"), ProposalTime: m.kind("proposal")}
	a.replay.from, a.replay.to, a.replay.began = 2, 4, time.Now().Add(-time.Hour)
	a.index = 2
	want := []string{"1 0 0 0", "2 1 0 0", "3 1 0 0", "4 1 1 0", "5 1 2 1"}
	for i := range want {
		a.index++
		l := a.log(newSession())
		if i != 2 {
			l.AppendedAt = time.Now().Add(-time.Minute)
		}
		if i == 4 {
			a.tracker.Store(newTracker())
		}
		a.Apply(l)
		got := fmt.Sprint(m.count("requests"), m.count("entries"), m.count("propagation"), m.count("commit"))
		expect.Equal(t, got, want[i], "behind entry %d", a.index)
	}
	expect.Equal(t, m.last("entries"), 2,
		"%d entries in %d µs", m.last("entries"), m.last("time"))
	expect.That(t, m.last("time") >= time.Hour.Microseconds(),
		"%d entries in %d µs: want m.last(\"time\") >= time.Hour.Microseconds()",
		m.last("entries"), m.last("time"))
	minute := time.Minute.Microseconds()
	expect.That(t, m.last("propagation") >= minute,
		"%v: want m.last(\"propagation\") >= minute", m.values)
	expect.That(t, m.last("commit") >= minute &&
		m.last("proposal") >= m.last("commit"),
		"%v", m.values)
}

// A leader waits for the sessions that there are: for a new one from its entry on, and for none that ended.
func TestLeaderWaitsForSessionsThatThereAre(t *testing.T) {
	t.Parallel()
	a := newApplied()
	a.entry(newSession()) // while it does not lead
	tr := newTracker()
	a.tracker.Store(tr)
	a.entry(newSession())
	must.Equal(t, len(tr.deadlines()), 1, "deadlines")
	for id, left := range tr.deadlines() {
		expect.That(t, left > 5*time.Second && left < time.Minute, "time left: %v", left)
		a.entry(state.Request{Session: id, Gen: 1, Op: jute.OpCloseSession})
	}
	expect.Equal(t, len(tr.deadlines()), 0, "deadlines of sessions that ended")
}

// teller hears of changes and outcomes, as the connections do, and asks for the zxid then.
type teller struct {
	watcher
	fsm  *fsm
	told []string
}

func (w *teller) tell(what string, zxid int64) {
	w.told = append(w.told, fmt.Sprint(what, " ", zxid, " at ", w.fsm.zxid.Load()))
}

func (w *teller) Events(zxid int64, _ []tree.Event)     { w.tell("change", zxid) }
func (w *teller) Done(o *state.Outcome, _ *state.State) { w.tell("outcome", o.Zxid) }

// While an entry is applied, the server makes other replies by itself, to pings for example. Their zxid is not
// below that of an outcome that a client has, and not that of a change of which it has not been told: the
// client would not ask for such an event on its next connection.
func TestG4G17ZxidRisesBetweenEventsAndOutcomes(t *testing.T) {
	t.Parallel()
	a := newApplied()
	a.entry(openStream())
	a.entry(newSession())
	w := &teller{fsm: a.fsm}
	a.obs = w
	var s session.Session
	(&Node{fsm: a.fsm}).View(func(st *state.State) { st.Sessions().All(func(is session.Session) { s = is }) })
	a.stream.SetClosed(false)
	a.stream.Open(1)
	bl := state.Block{Origin: 1, Birth: 1, First: 1}
	for _, path := range []string{"/a", "/no/b", "/c"} {
		r := &state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody(path, 0)}
		must.OK(t, a.stream.Put(r, w))
		bl.Requests = r.Append(bl.Requests)
		bl.Count++
	}
	must.Equal(t, a.zxid.Load(), 1)
	a.block(bl)
	expect.Equal(t, strings.Join(w.told, ", "), "change 2 at 1, outcome 2 at 2, outcome 2 at 2, "+
		"change 3 at 2, outcome 3 at 3")
}
