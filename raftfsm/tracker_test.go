package raftfsm

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// A server that stalls again and again gives its sessions more time, but not
// forever: silence still ends them.
func TestR25StallsDelayExpiryButNotForEver(t *testing.T) {
	tr := newTracker()
	tr.touch(1, 1000)
	began := tr.start
	sleep := func(d time.Duration) { tr.start = tr.start.Add(-d) } // the clock moves on
	for range 100 {
		sleep(90 * time.Millisecond)
		if due := tr.due(0, 10); len(due) > 0 {
			took := began.Sub(tr.start)
			expect.That(t, took >= time.Second, "expired after %v", took)
			return
		}
		sleep(10 * time.Millisecond)
		tr.stalled(10 * time.Millisecond)
	}
	t.Error("a silent session never ended")
}

// A long stall gives the whole timeout back, whatever was left of it.
func TestR25LongStallGivesTheFullTimeout(t *testing.T) {
	tr := newTracker()
	tr.touch(1, 1000)
	tr.start = tr.start.Add(-61 * time.Second)
	tr.stalled(60 * time.Second)
	tr.start = tr.start.Add(-900 * time.Millisecond)
	if due := tr.due(0, 10); len(due) > 0 {
		t.Error("expired before its client had a full timeout to be heard")
	}
	tr.start = tr.start.Add(-200 * time.Millisecond)
	expect.Equal(t, len(tr.due(0, 10)), 1)
}
