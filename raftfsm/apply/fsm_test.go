package apply_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// entryOf is an entry with one request.
func entryOf(index uint64, r state.Request) *raft.Log {
	return applied.Logged(index, entries.Block{Count: 1, Requests: r.Append(nil)})
}

// refuses() checks that a server that has stopped, because its state may be wrong, applies no entry and hands
// out no snapshot and no backup.
func refuses(t *testing.T, a *applied.State) {
	t.Helper()
	sessions := len(a.Sessions())
	a.Entry(applied.NewSession())
	expect.Equal(t, len(a.Sessions()), sessions, "sessions after an entry")
	expect.That(t, a.Last > a.Index(), "the entry counts as applied")
	snap, err := a.Snapshot()
	expect.Fails(t, err, "a snapshot is taken")
	expect.That(t, snap == nil, "a snapshot comes back together with the error %v", err)
	for range 2 { // twice: a refused backup must not block the next one
		_, err = a.Backup(t.Context())
		expect.Fails(t, err, "a backup is taken")
		if err != nil {
			expect.Has(t, err.Error(), "has stopped")
		}
	}
}

// An entry is committed, but not yet durable on this server's own disk, and the disk fails. The server ends,
// and its state does not get the entry.
func TestServerWhoseDiskFailedStandsStill(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.NewSession())
	must.Equal(t, len(a.Sessions()), 1)
	a.Disk = errors.New("the disk failed")
	a.Entry(applied.NewSession())
	a.Disk = nil
	refuses(t, a)
	expect.Equal(t, len(a.Fatals), 0, "the server ends twice: %v", a.Fatals)
	expect.Equal(t, len(a.Sessions()), 1)
}

// An entry that cannot be applied ends the server, once.
func TestG26ServerThatCannotApplyAnEntryEnds(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.NewSession())
	bad := entryOf(a.Last, applied.NewSession())
	bad.Data[len(bad.Data)-1] ^= 1
	for range 2 {
		a.Apply(bad)
	}
	must.Equal(t, len(a.Fatals), 1, "the server ends with %v", a.Fatals)
	expect.Has(t, a.Fatals[0].Error(), "apply log entry 1")
	refuses(t, a)
}

// An entry of raft's own (noop, barrier, configuration) does not change the state.
func TestEntriesOfRaftAreNotApplied(t *testing.T) {
	t.Parallel()
	a := applied.New()
	l := entryOf(a.Last, applied.NewSession())
	for _, l.Type = range []raft.LogType{raft.LogNoop, raft.LogBarrier, raft.LogConfiguration} {
		a.Apply(l)
	}
	expect.Equal(t, len(a.Sessions()), 0, "sessions")
	expect.Equal(t, len(a.Fatals), 0, "the server ended: %v", a.Fatals)
}

// A leader keeps a deadline for each session, from the start of the term or from the session's entry, until
// the session ends.
func TestLeaderWaitsForSessionsThatThereAre(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.NewSession()) // this session begins while the server does not lead
	tr := a.Lead()
	expect.Equal(t, a.Deadlines(), tr)
	must.Equal(t, len(tr.All()), 1, "deadlines as the term begins")
	a.Entry(applied.NewSession())
	must.Equal(t, len(tr.All()), 2, "deadlines")
	for id, left := range tr.All() {
		expect.That(t, left > 5*time.Second && left < time.Minute, "time left: %v", left)
		a.Entry(state.Request{Session: id, Gen: 1, Op: jute.OpCloseSession})
	}
	expect.Equal(t, len(tr.All()), 0, "deadlines of sessions that ended")
	next := a.Lead()
	a.Leave(tr) // this ends only the old term, not the new one
	expect.Equal(t, a.Deadlines(), next)
	a.Leave(next)
	expect.That(t, a.Deadlines() == nil, "the deadlines stay behind their term")
	a.Entry(applied.NewSession())
	expect.Equal(t, len(next.All()), 0, "deadlines that a former leader keeps")
}

// The server measures once how long it took to replay its log: when it has applied the last entry that was
// there at its start.
func TestReplayIsMeasuredAtItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var requests, entries, replays, propagated, committed, proposed []int64
		to := func(list *[]int64) signal.Measure { return func(v int64) { *list = append(*list, v) } }
		a := applied.With(apply.Options{ID: 1, Cluster: "c", Logged: 4, Measures: signal.Set{
			EntryRequests: to(&requests), ReplayEntries: to(&entries), ReplayTime: to(&replays),
			PropagationTime: to(&propagated), CommitTime: to(&committed), ProposalTime: to(&proposed)}})
		must.OK(t, a.Restore(snapshotAt(t, state.New("c"), state.Position{Index: 2, Term: 1})))
		time.Sleep(time.Hour)
		a.Last = 2
		want := []string{"1 0 0 0", "2 1 0 0", "3 1 0 0", "4 1 1 0", "5 1 2 1"}
		for i := range want {
			a.Last++
			l := entryOf(a.Last, applied.NewSession())
			if i != 2 {
				l.AppendedAt = time.Now().Add(-time.Minute)
			}
			if i == 4 {
				a.Lead()
			}
			a.Apply(l)
			got := fmt.Sprint(len(requests), len(entries), len(propagated), len(committed))
			expect.Equal(t, got, want[i], "behind entry %d", a.Last)
		}
		expect.List(t, requests, []int64{1, 1, 1, 1, 1}, "requests in each entry")
		expect.List(t, entries, []int64{2}, "entries that were replayed")
		expect.List(t, replays, []int64{time.Hour.Microseconds()}, "the time that took")
		minute := time.Minute.Microseconds()
		expect.List(t, propagated, []int64{minute, minute})
		expect.List(t, committed, []int64{minute})
		expect.List(t, proposed, []int64{minute})
	})
}

// teller hears of changes and outcomes, as the connections do, and reads the zxid at that moment.
type teller struct {
	applied.Ear
	fsm  *apply.FSM
	told []string
}

func (w *teller) tell(what string, zxid int64) {
	w.told = append(w.told, fmt.Sprint(what, " ", zxid, " at ", w.fsm.Zxid()))
}

func (w *teller) Events(zxid int64, _ []tree.Event)     { w.tell("change", zxid) }
func (w *teller) Done(o *state.Outcome, _ *state.State) { w.tell("outcome", o.Zxid) }

// While a server applies an entry, it also sends other replies, for example to pings. The zxid in such a
// reply must be at least that of each outcome that was sent. It must be lower than the zxid of a change whose
// event was not sent yet: with a higher one, a client that reconnects would not ask for the event.
func TestG4G17ZxidRisesBetweenEventsAndOutcomes(t *testing.T) {
	t.Parallel()
	w := new(teller)
	a := applied.With(apply.Options{ID: 1, Cluster: "c", Observer: w})
	w.fsm = a.FSM
	a.Entry(applied.OpenStream())
	a.Entry(applied.NewSession())
	s := a.Sessions()[0]
	w.told = nil
	a.Stream.SetClosed(false)
	a.Stream.Open(1)
	bl := entries.Block{Origin: 1, Birth: 1, First: 1}
	for _, path := range []string{"/a", "/no/b", "/c"} {
		r := &state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: applied.Create(path, 0)}
		must.OK(t, a.Stream.Put(r, w))
		bl.Requests = r.Append(bl.Requests)
		bl.Count++
	}
	must.Equal(t, a.Zxid(), 1)
	a.Block(bl)
	expect.Equal(t, strings.Join(w.told, ", "), "change 2 at 1, outcome 2 at 2, outcome 2 at 2, "+
		"change 3 at 2, outcome 3 at 3")
}

// If a session deletes a node that has siblings, it may pass a lock on, and the leader notes this. The leader
// does not note the delete of the last node in a directory, nor the end of a session.
func TestDeletesBesideOthersPassOn(t *testing.T) {
	t.Parallel()
	a := applied.New()
	passes := func(r state.Request) bool {
		for _, s := range a.Sessions() {
			r.Session, r.Gen = s.ID, s.Gen
		}
		a.Entry(r)
		return a.PassedOn()
	}
	create := func(path string) bool {
		return passes(state.Request{Op: jute.OpCreate, Body: applied.Create(path, 0)})
	}
	remove := func(path string) bool {
		return passes(state.Request{Op: jute.OpDelete, Body: jute.AppendInt(jute.AppendString(nil, path),
			-1)})
	}
	passes(applied.NewSession())
	for _, path := range []string{"/a", "/a/1", "/a/2", "/a/3"} {
		must.That(t, !create(path), "creating %s passed something on", path)
	}
	expect.That(t, !remove("/a/1"), "noted by a server that does not lead")
	a.Lead()
	expect.That(t, remove("/a/2"), "not noted")
	expect.That(t, !remove("/a/3"), "the last one passes nothing on")
	expect.That(t, !remove("/a/3"), "a delete that fails passes nothing on")
	create("/a/4")
	passes(state.Request{Op: jute.OpCreate, Body: applied.Create("/a/5", jute.FlagEphemeral)})
	expect.That(t, !passes(state.Request{Op: jute.OpCloseSession}),
		"a client that is gone does not queue again")
}

// The newest entry shows how far the leader's clock is ahead of this server's. If the entry's time is before
// this server's time, it shows nothing.
func TestClockOfTheLeader(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	f := apply.New(apply.Options{ID: 1, Cluster: "c", Observer: new(applied.Ear),
		Now: func() time.Time { return now }})
	for index, c := range []struct{ entry, later, want int64 }{{0, 0, 0}, {-60_000, 0, 0}, {60_000, 0, 60_000},
		{60_000, 5_000, 60_000}, {-1, 0, 0}} {
		entry := entries.Begin(nil, 0)
		entries.Seal(entry, now.UnixMilli()+c.entry)
		f.Apply(&raft.Log{Index: uint64(index + 1), Term: 1, Type: raft.LogCommand, Data: entry})
		now = now.Add(time.Duration(c.later) * time.Millisecond)
		expect.Equal(t, f.Ahead().Milliseconds(), c.want, "entry %d", index)
	}
}

// A goroutine waits until its entry is applied, or until it is told to stop.
func TestEntriesAreAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, stop, ended := applied.New(), make(chan struct{}), make(chan bool, 1)
		wait := func(index uint64) {
			go func() { ended <- a.Wait(stop, func() bool { return a.Index() >= index }) }()
			synctest.Wait()
		}
		wait(2)
		applied.At(a.FSM, 1, 1)
		synctest.Wait()
		must.Equal(t, len(ended), 0, "goroutines that wait no more for entry 2, after entry 1")
		applied.At(a.FSM, 2, 1)
		expect.That(t, <-ended, "entry 2 is not awaited")
		wait(3)
		close(stop)
		expect.That(t, !<-ended, "entry 3 is there")
	})
}

// A server that finds its stream opened for another process asks to open its own stream again.
func TestStreamOfAnotherProcessIsOpenedAgain(t *testing.T) {
	t.Parallel()
	reopens, opened := 0, 0
	a := applied.With(apply.Options{ID: 1, Cluster: "c", Reopen: func() { reopens++ },
		Opened: func() { opened++ }})
	a.Entry(applied.OpenStream())
	a.Stream.Open(1)
	expect.Equal(t, reopens, 0, "times that it asks, and has asked for nothing yet")
	r := applied.OpenStream()
	r.Body[len(r.Body)-1]++ // the request of another process has another nonce
	a.Stream.Open(7)
	a.Entry(r)
	expect.Equal(t, reopens, 1, "times that it asks")
	expect.Equal(t, opened, 2, "streams opened")
}

// Ephemerals() reads the ephemeral nodes in pieces, and calls a function for each node with its session. The
// function may end the call.
func TestEphemeralsAreToldInPieces(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.NewSession())
	s := a.Sessions()[0]
	create := func(path string, flags int32) {
		a.Entry(state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: applied.Create(path,
			flags)})
	}
	want := map[string]bool{}
	for i := range 600 {
		path := fmt.Sprint("/e", i)
		want[path] = true
		create(path, jute.FlagEphemeral)
	}
	create("/stays", 0)
	told := 0
	a.Ephemerals(func(session int64, path string) bool {
		expect.That(t, want[path], "%s is told", path)
		expect.Equal(t, session, s.ID, "the session of %s", path)
		delete(want, path)
		told++
		return true
	})
	expect.Equal(t, len(want), 0, "nodes that are not told")
	expect.Equal(t, told, 600, "nodes that are told")
	a.Ephemerals(func(int64, string) bool { told++; return told < 600+300 })
	expect.Equal(t, told, 600+300, "nodes that are told until the caller ends it")
}
