package members

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A job goes on as long as there is progress, however slow.
func TestSlowProgressIsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		m := c.members[10]
		m.Progress = status.Progress{SnapshotSize: 100, Heard: status.Ago(1)}
		polls := 0
		err := Run(anHour(t), c, change.Job{Op: "promote", ID: 10, Patience: 300}, func(change.Step) {
			if polls++; polls%2 == 0 {
				m.SnapshotSent++
			}
			switch {
			case polls == 40:
				m.SnapshotSize, m.Waits, m.Lag = 0, "", 0
				m.Applied = 1
			}
		})
		if expect.OK(t, err) {
			expect.That(t, m.Voter, "%v after %d steps", err, polls)
			expect.That(t, polls > 40, "%v after %d steps", err, polls)
		}
	})
}

// A snapshot that is sent again and again is not progress, with or without pauses. A snapshot that the member
// applies is progress.
func TestSnapshotsWithoutEndAreNoProgress(t *testing.T) {
	const size = 30 << 20
	for name, c := range map[string]struct {
		pause   bool // whether no snapshot is under way for a moment, between two of them
		applied int  // the snapshot that the new member applies; 0: none
	}{
		"at once":            {false, 0},
		"after a pause":      {true, 0},
		"the fourth is good": {true, mostSnapshots},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster()
				m := f.members[10]
				m.Progress = status.Progress{SnapshotSize: size, Heard: status.Ago(1)}
				sent := 1
				j := change.Job{Op: "promote", ID: 10, Patience: 3000}
				err := Run(anHour(t), f, j, func(change.Step) {
					switch {
					case m.SnapshotSent < size:
						m.SnapshotSize, m.SnapshotSent = size, m.SnapshotSent+size/20
					case sent == c.applied:
						m.Progress = status.Progress{Applied: 9000, Heard: status.Ago(1)}
					default:
						sent, m.SnapshotSent = sent+1, 0
						if c.pause {
							m.SnapshotSize = 0
						}
					}
				})
				if c.applied > 0 {
					expect.OK(t, err)
					return
				}
				must.Fails(t, err, "it ends well")
				expect.Equal(t, status.Of(err), status.NotReady)
				expect.Has(t, err.Error(),
					fmt.Sprintf("no progress for 3s: it was sent %d snapshots and applied none", sent))
				expect.That(t, sent > mostSnapshots, "given up after %d snapshots", sent)
			})
		})
	}
}

// A job does not wait for a member that another operator removes.
func TestMemberThatIsTakenOutIsNotWaitedFor(t *testing.T) {
	c := newFakeCluster()
	c.members[10].Progress = status.Progress{}
	err := Run(anHour(t), c, change.Job{Op: "promote", ID: 10}, func(change.Step) { delete(c.members, 10) })
	expect.That(t, status.Of(err) == status.NotMember, "%v", err)
}

// The rate covers the last seconds. It is reported after two measurements, and only if it is at least one per
// second.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rate
		for _, c := range []struct {
			wait        time.Duration
			count, left int64
			want        string
		}{
			{0, 100, 10, ""},
			{999 * time.Millisecond, 400, 10, ""},
			{time.Millisecond, 500, 800, " (400 bytes/s, 2s to go)"},
			{0, 500, 800, " (400 bytes/s, 2s to go)"},
			{500 * time.Millisecond, 900, 400, " (400 bytes/s, 1s to go)"},
			{0, 900, 400, " (400 bytes/s, 1s to go)"}, // the count is the same, and so is the rate
			{500 * time.Millisecond, 600, 0, " (100 bytes/s)"},
			{time.Second, 601, 3, " (1 bytes/s, 3s to go)"},
			{2 * time.Second, 602, 3, ""},
			{time.Second, 602 + 20<<10, 10 << 10, " (20 KiB/s, 0s to go)"},
			{time.Second, 0, 10, ""}, // a lower count than before: the rate begins again
			{time.Second, 300, 300, " (300 bytes/s, 1s to go)"},
			{0, 100, 10, ""}, // lower again, so there is no rate yet
		} {
			time.Sleep(c.wait)
			expect.Equal(t, r.of(c.count, c.left, byteCount), c.want, "at %d", c.count)
		}
	})
	for n, want := range map[int64]string{0: "0 bytes", 10<<10 - 1: "10239 bytes", 10 << 10: "10 KiB",
		10<<20 - 1: "10239 KiB", 10 << 20: "10 MiB"} {
		expect.Equal(t, byteCount(n), want)
	}
}

// slowCluster answers no request before the context of the request ends.
type slowCluster struct{ *fakeCluster }

// Members implements Cluster.
func (c slowCluster) Members(ctx context.Context) (*status.Members, error) {
	<-ctx.Done()
	return nil, status.With(status.Interrupted, ctx.Err())
}

// If a server does not answer a request, the job gives up the request after a while. It gives up the whole
// job when there was no progress for the job's patience.
func TestRequestWithoutAnAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Run(anHour(t), slowCluster{newFakeCluster()}, change.Job{Op: "promote", ID: 10, Patience: 21_000},
			func(change.Step) {})
		expect.Is(t, err, context.DeadlineExceeded)
		expect.Equal(t, time.Since(began), 2*jobRequest+jobPoll, "since")
	})
}
