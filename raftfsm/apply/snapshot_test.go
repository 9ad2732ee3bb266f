package apply_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// written() returns the file of a snapshot.
func written(t *testing.T, s *state.State, at state.Position) []byte {
	t.Helper()
	var file bytes.Buffer
	snap := s.StartSnapshot(at)
	defer snap.Close()
	must.OK(t, snap.Write(&file, func(read func()) { read() }))
	return file.Bytes()
}

// writtenBy returns the file of a snapshot of a server's state.
func writtenBy(t *testing.T, a *applied.State, at state.Position) (file []byte) {
	t.Helper()
	a.View(func(s *state.State) { file = written(t, s, at) })
	return file
}

// opened() returns the content of a snapshot as raft opens it.
func opened(file []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(file)) }

// snapshotAt returns the opened snapshot of a state.
func snapshotAt(t *testing.T, s *state.State, at state.Position) io.ReadCloser {
	t.Helper()
	return opened(written(t, s, at))
}

// discard is a sink that drops a snapshot's bytes.
type discard struct{ io.Writer }

func (discard) Close() error  { return nil }
func (discard) ID() string    { return "discard" }
func (discard) Cancel() error { return nil }

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// A server has one open snapshot or backup at a time. Until it is closed, another snapshot is refused, and
// another backup waits. During a restore, a snapshot is refused, too.
func TestOneSnapshotAtATime(t *testing.T) {
	t.Parallel()
	a := applied.New()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	b := must.Get(a.Backup(t.Context()))(t)
	expect.Fails(t, expect.Err(a.Snapshot()), "a snapshot beside a backup")
	expect.Fails(t, expect.Err(a.Backup(over)), "a backup beside a backup")
	b.Close()
	for range 2 { // twice: a refused snapshot must not block the next one
		snap := must.Get(a.Snapshot())(t)
		expect.Fails(t, expect.Err(a.Backup(over)), "a backup beside a snapshot")
		must.OK(t, snap.Persist(discard{io.Discard}))
		snap.Release()
	}
	g := state.Staging{ID: 5, Origin: 1, Birth: 1, Size: 10}
	a.Entry(applied.OpenStream())
	a.Entry(g.Open())
	a.View(func(s *state.State) {
		_, _, open := s.Staged()
		must.That(t, open, "no restore is under way")
	})
	for range 2 {
		expect.Fails(t, expect.Err(a.Snapshot()), "a snapshot beside a restore")
	}
	a.Entry(g.GiveUp())
	must.Get(a.Snapshot())(t)
}

// A second backup waits until the first is closed. Each backup has the state of the moment at which the
// backup began.
func TestBackupIsOneMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := applied.New()
		a.Entry(applied.NewSession())
		first := must.Get(a.Backup(t.Context()))(t)
		next := make(chan *apply.Backup)
		go func() { next <- must.Get(a.Backup(t.Context()))(t) }()
		synctest.Wait()
		a.Entry(applied.NewSession())
		var file bytes.Buffer
		must.OK(t, first.Write(&file))
		restored, at, err := state.ReadSnapshot(&file)
		must.OK(t, err)
		expect.Equal(t, at, state.Position{Index: 1, Term: 1})
		expect.Equal(t, restored.Zxid(), first.Zxid)
		expect.Equal(t, len(first.ACLs), len(restored.Tree().ACLs()), "lists of ACLs")
		first.Close()
		second := <-next
		expect.Equal(t, second.Zxid, a.Zxid(), "the zxid of the second backup")
		expect.That(t, second.Zxid > first.Zxid, "zxid 0x%x after 0x%x", second.Zxid, first.Zxid)
		second.Close()
	})
}

// A server accepts a snapshot of its own cluster, from another server or from its disk. It refuses a snapshot
// of another cluster.
func TestSnapshotOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	for _, cluster := range []string{"c", "other"} {
		file := written(t, state.New(cluster), state.Position{Index: 7, Term: 3})
		a := applied.New()
		sent := a.Verify(bytes.NewReader(file))
		found := applied.New()
		onDisk := found.Restore(opened(file))
		if cluster == "c" {
			expect.OK(t, sent)
			expect.OK(t, onDisk)
			expect.Equal(t, found.Index(), 7)
			expect.Equal(t, found.Term(), 3)
			expect.Equal(t, len(found.Fatals), 0, "%v", found.Fatals)
			continue
		}
		expect.Fails(t, sent, "a snapshot of another cluster is believed")
		expect.Equal(t, len(a.Fatals), 0, "what another server sends ends this one: %v", a.Fatals)
		expect.Fails(t, a.Restore(opened(file)), "it is kept for the restore")
		expect.Fails(t, onDisk, "a snapshot of another cluster is restored")
		expect.Equal(t, len(found.Fatals), 1, "the server goes on with it")
		expect.Equal(t, found.Index(), 0, "how far the state is")
	}
}

// A server that reads its state from a snapshot serves before it applies another entry. So the snapshot says
// whether the members are published.
func TestSnapshotTellsThatTheMembersArePublished(t *testing.T) {
	t.Parallel()
	for _, published := range []bool{false, true} {
		a := applied.New()
		a.Entry(applied.OpenStream())
		if published {
			a.Entry(state.Request{Op: state.OpConfig, Body: []byte("server.1=h:1:2:participant;h:3")})
		}
		expect.Equal(t, a.Published(), published, "published, at the server that applied it")
		b := applied.New()
		must.OK(t, b.Restore(opened(writtenBy(t, a, state.Position{Index: 7, Term: 3}))))
		expect.Equal(t, b.Published(), published, "published, by the snapshot")
	}
}

// To verify a received snapshot, a server reads its state, and keeps this state. When it installs the
// snapshot, it does not read the file again. The test shows this with half a file, from which no state can be
// read.
func TestSnapshotThatWasReadIsNotReadAgain(t *testing.T) {
	t.Parallel()
	file := func(index, term uint64) []byte {
		return written(t, state.New("c"), state.Position{Index: index, Term: term})
	}
	half := func(file []byte) []byte { return file[:len(file)-1] }
	sent := file(7, 3)
	for _, c := range []struct {
		name string
		file []byte
		kept bool
	}{{"the same", sent, true}, {"a later one", file(8, 3), false}, {"one of another term", file(7, 4),
		false}} {
		a := applied.New()
		must.OK(t, a.Verify(bytes.NewReader(sent)))
		must.OK(t, a.Restore(opened(c.file)), "%s", c.name)
		at := must.Get(state.ReadPosition(bytes.NewReader(c.file)))(t)
		expect.Equal(t, a.Index(), at.Index, "%s: a.Index()", c.name)
		expect.Equal(t, a.Term(), at.Term, "%s: a.Term()", c.name)
		expect.Fails(t, a.Restore(opened(half(sent))), "%s: the state is kept", c.name)

		b := applied.New()
		must.OK(t, b.Verify(bytes.NewReader(sent)))
		err := b.Restore(opened(half(c.file)))
		expect.Equal(t, err == nil, c.kept, "%s: its state is the one that was kept: %v", c.name, err)
		expect.Equal(t, len(b.Fatals) == 0, c.kept, "%s: the server goes on", c.name)
	}
	a := applied.New()
	must.OK(t, a.Verify(bytes.NewReader(sent)))
	expect.Fails(t, a.Verify(bytes.NewReader(half(sent))), "half a snapshot")
	expect.Fails(t, a.Restore(opened(half(sent))), "what was kept before half a snapshot came")
	expect.Equal(t, len(a.Fatals), 1)
}

// The type waits is a waiter that counts the outcomes of its requests.
type waits struct{ unknown, done int }

func (w *waits) Done(o *state.Outcome, _ *state.State) {
	w.done++
	if o.Unknown {
		w.unknown++
	}
}

// A snapshot from the leader may cover requests of this server, which then get the outcome "unknown". If the
// snapshot may also cover that the server's stream was opened or removed, all its requests get this outcome.
func TestSnapshotLeavesRequestsUnknown(t *testing.T) {
	t.Parallel()
	from := applied.New()
	from.Entry(applied.OpenStream())
	from.Entry(applied.NewSession()) // the new session takes a zxid
	stream := func(first uint64) {
		r := state.Request{Op: jute.OpSync, Body: jute.AppendString(nil, "/")}
		from.Block(entries.Block{Origin: 1, Birth: 1, First: first, Count: 1, Requests: r.Append(nil)})
	}
	stream(1)
	stream(2)
	file := writtenBy(t, from, state.Position{Index: 9, Term: 3})
	for _, c := range []struct {
		birth uint32
		// Nonce with which this server asked for a stream; the stream in the snapshot has nonce 1.
		nonce          int64
		unknown, stays int
		then           uint32
		reopens        int
	}{{1, 1, 2, 1, 1, 0}, {1, 9, 2, 1, 0, 1}, {2, 9, 3, 0, 0, 1}, {0, 9, 3, 0, 0, 0}, {0, 1, 3, 0, 1, 0}} {
		reopened, looks, waited := 0, make(chan bool, 9), make(chan bool, 1)
		a := applied.With(apply.Options{ID: 1, Cluster: "c", Reopen: func() { reopened++ }})
		var w waits
		s := a.Stream
		s.SetClosed(false)
		if c.nonce != 0 {
			s.Opening(state.Member{ID: 1}, bytes.NewReader(binary.BigEndian.AppendUint64(nil,
				uint64(c.nonce)<<1)))
		}
		s.Open(c.birth)
		for range 3 {
			must.OK(t, s.Put(&state.Request{Op: jute.OpSync}, &w))
		}
		go func() {
			waited <- a.Wait(t.Context().Done(), func() bool { looks <- true; return a.Index() == 9 })
		}()
		<-looks
		must.OK(t, a.Restore(opened(file)))
		expect.That(t, <-waited, "birth %d: the entry is not awaited", c.birth)
		expect.Equal(t, fmt.Sprint(w.unknown, w.done, s.Len(), s.Birth(), reopened),
			fmt.Sprint(c.unknown, c.unknown, c.stays, c.then, c.reopens), "birth %d", c.birth)
		expect.Equal(t, a.Ear.Resets(), 1, "times that clients were cut off")
		expect.Equal(t, a.Zxid(), from.Zxid())
		expect.Equal(t, a.Newest().Zxid, from.Zxid())
	}
}

// Once a snapshot is written, it is the newest, and its entries no longer count towards the next snapshot. A
// snapshot whose write fails changes neither the newest snapshot nor the count.
func TestWrittenSnapshotCountsItsEntries(t *testing.T) {
	t.Parallel()
	for _, fails := range []error{nil, errors.New("the disk is full")} {
		a := applied.New()
		for range 5 {
			a.Entry(applied.NewSession())
		}
		snap := must.Get(a.Snapshot())(t)
		_, covered := a.Counted()
		a.Entry(applied.NewSession())
		var file bytes.Buffer
		err := snap.Persist(discard{writerFunc(func(b []byte) (int, error) {
			if fails != nil {
				return 0, fails
			}
			return file.Write(b)
		})})
		requests, size := a.Counted()
		newest := a.Newest()
		snap.Release()
		if fails != nil {
			expect.Is(t, err, fails)
			expect.Equal(t, requests, 6, "requests after the last snapshot")
			expect.That(t, size > covered, "%d bytes after the last snapshot, %d before", size, covered)
			expect.That(t, newest == nil, "it is the newest")
			continue
		}
		must.OK(t, err)
		expect.Equal(t, requests, 1, "requests that are left")
		expect.That(t, size > 0 && size < covered, "%d of %d bytes are left", size, covered)
		must.That(t, newest != nil, "it is not the newest")
		restored, at, err := state.ReadSnapshot(&file)
		must.OK(t, err)
		expect.Equal(t, at, state.Position{Index: 5, Term: 1})
		expect.Equal(t, newest.Zxid, restored.Zxid(), "zxid of the newest")
		expect.That(t, restored.Zxid() < a.Zxid(), "it is as of zxid 0x%x", restored.Zxid())
		expect.That(t, time.Since(newest.Time) < time.Hour, "written at %v", newest.Time)
		a.Found(time.Unix(7, 0))
		expect.Equal(t, a.Newest().Time.Unix(), 7, "when the newest was written")
		expect.Equal(t, a.Newest().Zxid, restored.Zxid(), "zxid of the newest")
		again := must.Get(a.Snapshot())(t)
		must.OK(t, again.Persist(discard{io.Discard}))
		again.Release()
	}
}

// R24: a server applies entries while it writes a snapshot of a large state. The disk of the test takes the
// next piece only after another entry was applied.
func TestR24SnapshotKeepsNoWriteWaiting(t *testing.T) {
	t.Parallel()
	const nodes = 200_000
	a := applied.New()
	entry := func(list ...state.Request) {
		var b []byte
		for i := range list {
			b = list[i].Append(b)
		}
		a.Block(entries.Block{Count: uint32(len(list)), Requests: b})
	}
	entry(applied.NewSession())
	s := a.Sessions()[0]
	write := state.Request{Op: jute.OpCreate, Session: s.ID, Gen: s.Gen}
	var batch []state.Request
	for i := range nodes {
		r := write
		r.Body = applied.Create(fmt.Sprintf("/n%d", i), 0)
		if batch = append(batch, r); len(batch) == 1000 {
			entry(batch...)
			batch = batch[:0]
		}
	}
	n := 0
	a.View(func(s *state.State) { n = s.Tree().Count() })
	must.That(t, n >= nodes, "%d nodes", n)
	snap := must.Get(a.Snapshot())(t)
	size, entries := 0, 0
	sink := discard{writerFunc(func(p []byte) (int, error) {
		r := write
		r.Op, r.Body = jute.OpSetData,
			append(jute.AppendBuffer(jute.AppendString(nil, fmt.Sprintf("/n%d", entries)), []byte("new")),
				255, 255,
				255, 255)
		done := make(chan struct{})
		go func() {
			defer close(done)
			entry(r)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			return 0, errors.New("an entry waits for the snapshot")
		}
		entries++
		size += len(p)
		return len(p), nil
	})}
	must.OK(t, snap.Persist(sink), "R24")
	snap.Release()
	// However slow the disk is, no entry waits for it: an entry waits at most while one piece of the state is
	// read.
	must.That(t, entries >= 100, "R24: %d entries between the pieces of %d bytes", entries, size)
	expect.That(t, size/entries <= 256<<10, "R24: %d entries between the pieces of %d bytes", entries, size)
	reads := 0
	a.View(func(s *state.State) {
		all := s.StartSnapshot(state.Position{})
		defer all.Close()
		must.OK(t, all.Write(io.Discard, func(read func()) { reads++; read() }))
	})
	expect.That(t, reads >= nodes/1000, "R24: the state is locked %d times for %d nodes", reads, nodes)
}

// After a restore from a snapshot the log counts zero requests and bytes towards the next snapshot: the
// restored state contains all that was counted.
func TestLogBehindARestoredSnapshotIsEmpty(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.NewSession())
	must.OK(t, a.Restore(snapshotAt(t, state.New("c"), state.Position{Index: 7, Term: 3})))
	n, b := a.Counted()
	expect.Equal(t, n, 0, "requests after it")
	expect.Equal(t, b, 0, "bytes after it")
	expect.Equal(t, a.Index(), 7)
	expect.Equal(t, a.Term(), 3)
}

// refusedSink is a sink that fails when it would become the newest snapshot.
type refusedSink struct{ discard }

func (refusedSink) Close() error { return errors.New("a newer one was sent") }

// While a server writes its own snapshot, another server's snapshot replaces the state. The server's own
// snapshot is then refused. After that the log counts zero requests and bytes towards the next snapshot, not
// fewer.
func TestSnapshotThatIsRefusedCountsNothing(t *testing.T) {
	t.Parallel()
	a := applied.New()
	a.Entry(applied.NewSession())
	own := must.Get(a.Snapshot())(t)
	defer own.Release()
	must.OK(t, a.Restore(snapshotAt(t, state.New("c"), state.Position{Index: 7, Term: 3})))
	must.Fails(t, own.Persist(refusedSink{discard{io.Discard}}), "it is not refused")
	n, b := a.Counted()
	expect.Equal(t, n, 0, "requests after it")
	expect.Equal(t, b, 0, "bytes after it")
}
