package raftfsm

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The writer of a snapshot leaves half of the state lock to requests: it rests as long as it has read, once
// it has read for a millisecond, and at most 50 ms at a time. It rests without the lock.
func TestWriterOfASnapshotRestsAsLongAsItReads(t *testing.T) {
	t.Parallel()
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

// A snapshot that is written takes what it covers off the log after it, and is the newest; one that is not
// written is not.
func TestWrittenSnapshotCountsItsEntries(t *testing.T) {
	t.Parallel()
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
		expect.Equal(t, requests, 1,
			"%d requests of %d bytes are left: requests", requests, size)
		expect.That(t, size > 0 && size < covered,
			"%d requests of %d bytes are left: want size > 0 && size < covered", requests, size)
		must.That(t, newest != nil, "it is not the newest")
		restored, at, err := state.ReadSnapshot(&file)
		must.OK(t, err)
		expect.Equal(t, at, state.Position{Index: 5, Term: 1},
			"it is as of %+v, zxid 0x%x: at", at, restored.Zxid())
		expect.Equal(t, newest.Zxid, restored.Zxid(),
			"it is as of %+v, zxid 0x%x: newest.Zxid", at, restored.Zxid())
		expect.That(t, restored.Zxid() < a.state.Zxid(),
			"it is as of %+v, zxid 0x%x: want restored.Zxid() < a.state.Zxid()",
			at, restored.Zxid())
		again := must.Get(a.Snapshot())(t)
		again.(*fsmSnapshot).sink = discard{io.Discard}
		again.Release()
	}
}

// A damaged snapshot is replaced, and what is asked of a leader that does not lead is not proposed.
func TestDamagedSnapshotIsReplaced(t *testing.T) {
	t.Parallel()
	var m measured
	n, _ := start(t, Options{DataDir: t.TempDir(), Measures: Measures{SnapshotWriteTime: m.kind("write")}})
	a := newAsker(t, n)
	must.OK(t, n.Snapshot())
	written := m.count("write")
	n.upkeep.Damaged(errors.New("rotten"))
	eventually(t, "another is written", func() bool {
		return m.count("write") > written
	})
	expect.Equal(t, int(a.create("/goes-on")), 0)
}
