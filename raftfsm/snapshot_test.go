package raftfsm

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The writer of a snapshot leaves half of the state lock to requests: it rests as long as it has read, once
// it has read for a millisecond, and at most 50 ms at a time. It rests without the lock.
func TestWriterOfASnapshotRestsAsLongAsItReads(t *testing.T) {
	for _, c := range []struct{ read, rest time.Duration }{
		{readRest / 2, 0},
		{readRest - 1, 0},
		{readRest, readRest},
		{20 * readRest, 20 * readRest},
		{time.Minute, 50 * readRest}, // the process stood still
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &fsmSnapshot{f: &fsm{}}
			for round := range 3 {
				began := time.Now()
				free := make(chan bool, 1)
				go func() {
					time.Sleep(c.read + c.rest/2)
					got := s.f.mu.TryLock()
					if got {
						s.f.mu.Unlock()
					}
					free <- got
				}()
				s.read(func() { time.Sleep(c.read) })
				expect.Equal(t, time.Since(began)-c.read, c.rest, "rest after %v, round %d", c.read, round)
				got := <-free
				expect.That(t, got || c.rest == 0, "the lock is held during the rest after %v", c.read)
				s.reading = 0
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // short reads count together
		s := &fsmSnapshot{f: &fsm{}}
		began := time.Now()
		for range 30 {
			s.read(func() { time.Sleep(readRest / 3) })
		}
		whole := time.Since(began)
		expect.That(t, whole >= 2*10*readRest*99/100-readRest && whole <= 2*10*readRest, "30 short reads took %v", whole)
	})
}

// When a snapshot is due, to the request, the byte and the moment.
func TestSnapshotsAreDueAtTheirBounds(t *testing.T) {
	o := Options{SnapshotEntries: 100, SnapshotBytes: 1000}
	const took = time.Second
	for _, c := range []struct {
		requests, bytes, size int64
		ago                   time.Duration
		due                   bool
	}{
		{99, 999, 0, time.Hour, false}, {100, 0, 0, time.Hour, true}, {0, 1000, 50, time.Hour, true},
		{0, 1000, 50, 0, false}, {0, 1049, 50, 0, false}, {0, 1050, 50, 0, true},
		{100, 0, 0, snapshotRest*took - 1, false}, {100, 0, 0, snapshotRest * took, true},
	} {
		expect.Equal(t, o.snapshotDue(c.requests, c.bytes, c.size, c.ago, took), c.due, "%+v", c)
	}
	for _, c := range []struct {
		requests      int64
		ago, interval time.Duration
		due           bool
	}{
		{1, time.Hour, 0, false}, {1, time.Hour, time.Hour, true}, {1, time.Hour - 1, time.Hour, false},
		{0, time.Hour, time.Hour, false},
	} {
		o.SnapshotInterval = c.interval
		expect.Equal(t, o.snapshotDue(c.requests, 0, 0, c.ago, 0), c.due, "%+v", c)
	}
}

// How many entries stay behind a snapshot: more for a server that follows and is behind, within bounds.
func TestEntriesThatStayBehindASnapshot(t *testing.T) {
	n, _ := ended(t, Options{DataDir: t.TempDir(), DiskReserve: -1, TrailingLogs: 1 << 20})
	first := n.raft.LastIndex()
	for _, c := range []struct {
		most  uint64
		bytes int64
		want  uint64
	}{
		{1 << 20, 64 << 20, trailingLeast}, {10, 64 << 20, 10},
	} {
		n.o.TrailingLogs, n.o.TrailingBytes = c.most, c.bytes
		expect.Equal(t, n.trailing(), c.want, "%+v of %d entries", c, first)
	}
	memory, _ := ended(t, Options{TrailingLogs: 5000})
	expect.Equal(t, memory.trailing(), trailingLeast, "in memory, where no server needs the log")
	memory.o.Peers = map[uint32]string{1: "a:1", 2: "b:1"}
	expect.Equal(t, memory.trailing(), 5000, "where the log cannot tell")
	tm := &term{n: n}
	l := &inLink{Greeting: peer.Greeting{From: 2}, applied: 0, heard: time.Now().Add(time.Hour)}
	must.That(t, tm.links.add(l), "the link is not taken")
	n.term.Store(tm)
	n.o.TrailingLogs, n.o.TrailingBytes = 1<<20, 64<<20
	expect.Equal(t, n.trailing(), min(first+trailingLeast, max(n.raft.LastIndex(), trailingLeast)),
		"for one that is behind")
	n.term.Store(&term{n: n})
	expect.Equal(t, n.trailing(), trailingLeast, "without followers")
}

// A snapshot that is written takes what it covers off the log after it, and is the newest; one that is not
// written is not.
func TestWrittenSnapshotCountsItsEntries(t *testing.T) {
	for _, fails := range []error{nil, errors.New("the disk is full")} {
		a := newApplied()
		for range 5 {
			a.entry(newSession())
		}
		snap := must.Get(a.Snapshot())(t)
		covered := a.counted.bytes.Load()
		a.entry(newSession())
		var file bytes.Buffer
		err := snap.Persist(discard{writerFunc(func(b []byte) (int, error) {
			if fails != nil {
				return 0, fails
			}
			return file.Write(b)
		})})
		requests, size, newest := a.counted.requests.Load(), a.counted.bytes.Load(), a.snapshot.Load()
		snap.Release()
		if fails != nil {
			expect.Is(t, err, fails)
			expect.That(t, requests == 6 && size > covered && newest == nil, "%d requests, %d bytes, %v", requests,
				size, newest)
			continue
		}
		must.OK(t, err)
		expect.That(t, requests == 1 && size > 0 && size < covered, "%d requests of %d bytes are left", requests,
			size)
		must.That(t, newest != nil, "it is not the newest")
		restored, at, err := state.ReadSnapshot(&file)
		must.OK(t, err)
		expect.That(t, at == state.Position{Index: 5, Term: 1} && newest.Zxid == restored.Zxid() &&
			restored.Zxid() < a.state.Zxid(),
			"it is as of %+v, zxid 0x%x", at, restored.Zxid())
		again := must.Get(a.Snapshot())(t)
		again.(*fsmSnapshot).sink = discard{io.Discard}
		again.Release()
	}
}

// A damaged snapshot is replaced, and what is asked of a leader that does not lead is not proposed.
func TestDamagedSnapshotIsReplaced(t *testing.T) {
	var m measured
	n, _ := start(t, Options{DataDir: t.TempDir(), Measures: Measures{SnapshotWriteTime: m.kind("write")}})
	a := newAsker(t, n)
	must.OK(t, n.Snapshot())
	written := m.count("write")
	n.snapshotDamaged(errors.New("rotten"))
	eventually(t, "another is written", func() bool {
		return m.count("write") > written &&
			!n.replaceSnapshot.Load()
	})
	expect.Equal(t, int(a.create("/goes-on")), 0)
}
