package members

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// trouble is a cluster in which calls of one kind fail after a number of calls have succeeded.
type trouble struct {
	*fakeCluster
	kind  string // "members", "probe", or the operation of a change
	after int    // number of calls that succeed before calls fail
	err   error
	deaf  bool // the leader accepts a request to hand the leadership over, but keeps it
}

func (c *trouble) fails(kind string) error {
	if kind != c.kind {
		return nil
	}
	if c.after--; c.after < 0 {
		return c.err
	}
	return nil
}

func (c *trouble) Members(ctx context.Context) (*status.Members, error) {
	if err := c.fails("members"); err != nil {
		return nil, err
	}
	return c.fakeCluster.Members(ctx)
}

func (c *trouble) Probe(ctx context.Context, id uint32, addr string) (*status.Found, error) {
	if err := c.fails("probe"); err != nil {
		return nil, err
	}
	return c.fakeCluster.Probe(ctx, id, addr)
}

func (c *trouble) ChangeMember(ctx context.Context, m change.Change) error {
	if err := c.fails(string(m.Op)); err != nil {
		return err
	}
	if c.deaf && m.Op == "lead" {
		return nil
	}
	return c.fakeCluster.ChangeMember(ctx, m)
}

// A job ends with the error of the first request that fails permanently, and does nothing more.
func TestJobsEndWithTheirErrors(t *testing.T) {
	final := errors.New("the disk is full")
	type job = change.Job
	add, replace := job{Op: "add", ID: 4, Addr: "h4:2888"}, job{Op: "replace", ID: 3, Addr: "h4:2888"}
	for _, tc := range []struct {
		job   job
		kind  string
		after int
		said  string // what follows the final error in the job's error
		got   string
	}{
		{job{Op: "replace", ID: 3, Addr: "moved:2888"}, "move", 0, "", ""},
		{add, "members", 0, "", ""},
		{add, "probe", 0, "", ""},
		{add, "add", 0, "", ""},
		{add, "members", 1, "", "add 4 h4:2888"},
		{add, "promote", 0, "", "add 4 h4:2888"},
		{job{Op: "add", ID: 10, Addr: "h10:2888"}, "promote", 0, "", ""},
		{job{Op: "promote", ID: 10}, "members", 0, "", ""},
		{job{Op: "promote", ID: 10}, "members", 1, "", ""},
		{job{Op: "promote", ID: 10}, "promote", 0, "", ""},
		{replace, "members", 0, "", ""},
		{replace, "probe", 0, "", ""},
		{replace, "remove", 0, "", ""},
		{replace, "add", 0, " (server 3 was removed; to go on: zlock member add 3 h4:2888)", "remove 3"},
		{replace, "members", 1, "", ""},
		{replace, "members", 2, " (server 3 was removed; to go on: zlock member add 3 h4:2888)",
			"remove 3, add 3 h4:2888"},
		{job{Op: "lead", ID: 3}, "members", 0, "", ""},
		{job{Op: "lead", ID: 3}, "members", 1, "", "lead 3"},
		{job{Op: "lead", ID: 3}, "lead", 0, "", ""},
		{job{Op: "remove", ID: 3}, "remove", 0, "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &trouble{fakeCluster: newFakeCluster(), kind: tc.kind, after: tc.after, err: final}
			c.known["moved:2888"] = true
			began := time.Now()
			err := Run(anHour(t), c, tc.job, func(change.Step) {})
			expect.Is(t, err, final)
			expect.Equal(t, err.Error(), final.Error()+tc.said, "error")
			expect.Equal(t, strings.Join(c.got, ", "), tc.got, "%+v, %s %d: changes", tc.job, tc.kind, tc.after)
			expect.That(t, time.Since(began) <= jobPoll, "%+v, %s %d: after %v", tc.job, tc.kind, tc.after,
				time.Since(began))
		})
	}
}

// A waiting job ends when its caller's context ends, or when it has made no progress for the time in
// Job.Patience.
func TestWaitingJobsEnd(t *testing.T) {
	const patience = 3 * time.Second
	no := status.Errorf(status.NoLeader, "no leader")
	type job = change.Job
	silent := status.Progress{Waits: "refused"}
	for _, tc := range []struct {
		name    string
		job     job
		prepare func(*trouble)
		told    string // a part of the last step while the job waits
		err     string // the error when there was no progress for `patience`
	}{
		{"no leader", job{Op: "remove", ID: 3}, func(c *trouble) { c.kind, c.err = "remove", no },
			"waiting: no leader", "no leader"},
		{"no list", job{Op: "promote", ID: 10}, func(c *trouble) { c.kind, c.err = "members", no },
			"waiting: no leader", "no leader"},
		{"no answer", job{Op: "add", ID: 4, Addr: "h4:2888"}, func(c *trouble) { c.answers["h4:2888"] = 1e6 },
			"waiting for server 4 to answer at h4:2888: connection refused",
			"server 4 does not answer at h4:2888: connection refused; start it there with"},
		{"does not lead", job{Op: "lead", ID: 3}, func(c *trouble) { c.deaf = true }, "", "server 3 does not lead yet"},
		{"silent member", job{Op: "add", ID: 10, Addr: "h10:2888"},
			func(c *trouble) { c.members[10].Progress = silent }, "server 10 does not answer: refused",
			"server 10 is not ready, and there was no progress for 3s: refused. It stays"},
		{"waiting member", job{Op: "promote", ID: 10},
			func(c *trouble) { c.members[10].Progress = status.Progress{Waits: "a snapshot", Heard: status.Ago(1)} },
			"server 10 waits: a snapshot", "no progress for 3s: it waits: a snapshot. It stays"},
		{"snapshot", job{Op: "promote", ID: 10}, func(c *trouble) {
			c.members[10].Progress = status.Progress{SnapshotSize: 30 << 20, SnapshotSent: 20 << 10, Heard: status.Ago(1)}
		}, "server 10 receives a snapshot: 20 KiB of 30 MiB",
			"no progress for 3s: it receives a snapshot, 20 KiB of 30 MiB. It stays"},
		{"not ready", job{Op: "promote", ID: 10}, func(c *trouble) { c.notReady = 1e6 },
			"server 10 follows, 0 entries, 0 bytes behind", "for 3s: server 10 is not ready. It stays"},
		{"no leader to promote it", job{Op: "promote", ID: 10}, func(c *trouble) { c.kind, c.err = "promote", no },
			"server 10 follows, 0 entries, 0 bytes behind", "for 3s: 0 entries, 0 bytes behind. It stays"},
		{"moved", job{Op: "replace", ID: 10, Addr: "h4:2888"}, func(c *trouble) {
			c.known["h4:2888"], c.members[10].Progress = true, silent
		}, "server 10 does not answer: refused", "for 3s: refused. It stays"},
	} {
		run := func(t *testing.T, patience time.Duration, end bool) (steps []string, took time.Duration, err error) {
			ctx, cancel := context.WithCancel(anHour(t))
			defer cancel()
			c := &trouble{fakeCluster: newFakeCluster()}
			tc.prepare(c)
			if end {
				time.AfterFunc(jobPoll/2, cancel)
			}
			j, began := tc.job, time.Now()
			j.Patience = patience.Milliseconds()
			err = Run(ctx, c, j, func(s change.Step) { steps = append(steps, s.Text) })
			return steps, time.Since(began), err
		}
		synctest.Test(t, func(t *testing.T) {
			steps, took, err := run(t, patience, false)
			if expect.Fails(t, err, "%s", tc.name) {
				expect.Has(t, err.Error(), tc.err, "%s: error", tc.name)
				expect.Equal(t, took, patience+jobPoll, "%s: took", tc.name)
			}
			if tc.told != "" {
				expect.Has(t, fmt.Sprint(steps[len(steps)-1], "\n"), tc.told+"\n", "%s", tc.name)
			}
			_, took, err = run(t, 0, false)
			expect.Fails(t, err, "%s without a patience", tc.name)
			expect.That(t, took > defaultPatience, "%s without a patience: %v after %v", tc.name, err, took)
			_, took, err = run(t, patience, true)
			expect.Equal(t, status.Of(err), status.Interrupted, "%s", tc.name)
			expect.Equal(t, took, jobPoll/2, "%s: took", tc.name)
		})
	}
}

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
						m.SnapshotSize, m.SnapshotSent = size, m.SnapshotSent+size/10
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
