package members

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
)

// steps runs a job and returns its steps and its error, one per line. Each line has the time since the job
// began, and the kind of the step.
func steps(t *testing.T, c Cluster, j change.Job) string {
	var b strings.Builder
	began := time.Now()
	line := func(kind, text string) { fmt.Fprintf(&b, "%v %s: %s\n", time.Since(began), kind, text) }
	err := Run(anHour(t), c, j, func(s change.Step) { line(s.Kind, s.Text) })
	line("end", fmt.Sprint(err))
	return b.String()
}

// A job reports its steps and nothing else, and each step without delay.
func TestStepsOfJobs(t *testing.T) {
	type job = change.Job
	add, replace := job{Op: "add", ID: 4, Addr: "h4:2888"}, job{Op: "replace", ID: 3, Addr: "h4:2888"}
	const catchesUp = "0s follows: server 4 follows, 2500 entries, 244 KiB behind\n" +
		"200ms follows: server 4 follows, 0 entries, 0 bytes behind\n"
	for _, tc := range []struct {
		name    string
		job     job
		prepare func(*fakeCluster)
		want    string
	}{
		{"add", add, nil, "0s member: server 4 is a member without a vote\n" + catchesUp +
			"200ms votes: server 4 votes\n200ms end: <nil>\n"},
		{"add without a vote", job{Op: "add", ID: 4, Addr: "h4:2888", NoVote: true}, nil,
			"0s member: server 4 is a member without a vote\n" + catchesUp +
				"200ms follows: server 4 follows; it has no vote\n200ms end: <nil>\n"},
		{"add a server that says nothing of its address", add, func(f *fakeCluster) { f.mute = true },
			"0s member: server 4 is a member without a vote\n" + catchesUp +
				"200ms votes: server 4 votes\n200ms end: <nil>\n"},
		{"add a server that starts later", add, func(f *fakeCluster) { f.answers["h4:2888"], f.behind = 2, 2500 },
			"0s answers: waiting for server 4 to answer at h4:2888: connection refused\n" +
				"200ms answers: waiting for server 4 to answer at h4:2888: connection refused\n" +
				"400ms member: server 4 is a member without a vote\n" +
				"400ms follows: server 4 follows, 0 entries, 0 bytes behind\n" +
				"400ms votes: server 4 votes\n400ms end: <nil>\n"},
		{"add a server of another address", add, func(f *fakeCluster) { f.at["h4:2888"], f.behind = "h5:2888", 2500 },
			"0s : server 4 reports the address h5:2888; the members use that address once the server answers there\n" +
				"0s member: server 4 is a member without a vote\n" +
				"0s follows: server 4 follows, 0 entries, 0 bytes behind\n0s votes: server 4 votes\n0s end: <nil>\n"},
		{"add again", job{Op: "add", ID: 10, Addr: "h10:2888"}, nil,
			"0s member: server 10 is a member without a vote\n0s follows: server 10 follows, 0 entries, 0 bytes behind\n" +
				"0s votes: server 10 votes\n0s end: <nil>\n"},
		{"add a voter again", job{Op: "add", ID: 3, Addr: "h3:2888", Again: true}, nil,
			"0s votes: server 3 votes\n0s end: <nil>\n"},
		{"add while no server leads", add, func(f *fakeCluster) { f.stumble, f.behind = 1, 2500 },
			"0s leader: waiting: there is no leader at the moment\n" +
				"200ms member: server 4 is a member without a vote\n" +
				"200ms follows: server 4 follows, 0 entries, 0 bytes behind\n" +
				"200ms votes: server 4 votes\n200ms end: <nil>\n"},
		{"promote", job{Op: "promote", ID: 10}, func(f *fakeCluster) { f.notReady = 1 },
			"0s follows: server 10 follows, 0 entries, 0 bytes behind\n" +
				"200ms follows: server 10 follows, 0 entries, 0 bytes behind\n" +
				"200ms votes: server 10 votes\n200ms end: <nil>\n"},
		{"promote a voter", job{Op: "promote", ID: 3}, nil, "0s end: <nil>\n"},
		{"replace", replace, func(f *fakeCluster) { f.behind = 2500 },
			"0s : until server 3 has caught up there are 1 voters instead of 2, and a majority of these must run\n" +
				"0s removed: server 3 is removed\n0s member: server 3 is a member without a vote\n" +
				"0s follows: server 3 follows, 0 entries, 0 bytes behind\n0s votes: server 3 votes\n0s end: <nil>\n"},
		{"replace a member without a vote", job{Op: "replace", ID: 10}, func(f *fakeCluster) { f.behind = 2500 },
			"0s removed: server 10 is removed\n0s member: server 10 is a member without a vote\n" +
				"0s follows: server 10 follows, 0 entries, 0 bytes behind\n" +
				"0s follows: server 10 follows; it has no vote\n0s end: <nil>\n"},
		{"replace one that has moved", replace, func(f *fakeCluster) { f.known["h4:2888"] = true },
			"0s moved: server 3 has moved from h3:2888 to h4:2888 with its data\n0s end: <nil>\n"},
		{"replace one without a vote that has moved", job{Op: "replace", ID: 10, Addr: "h4:2888"},
			func(f *fakeCluster) { f.known["h4:2888"] = true },
			"0s moved: server 10 has moved from h10:2888 to h4:2888 with its data\n" +
				"0s follows: server 10 follows, 0 entries, 0 bytes behind\n" +
				"0s follows: server 10 follows; it has no vote\n0s end: <nil>\n"},
		{"lead", job{Op: "lead", ID: 3}, nil, "200ms leads: server 3 leads\n200ms end: <nil>\n"},
		{"lead already", job{Op: "lead", ID: 2}, nil, "0s leads: server 2 leads\n0s end: <nil>\n"},
		{"remove", job{Op: "remove", ID: 3}, nil, "0s end: <nil>\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeCluster()
			if tc.prepare != nil {
				tc.prepare(f)
			}
			expect.Equal(t, steps(t, f, tc.job), tc.want, "%s", tc.name)
		})
	}
}

// A member that lags a little gets its vote. If a member lags more, the job reports how far it is behind, or
// what it waits for.
func TestStepsOfMembersThatAreBehind(t *testing.T) {
	const far = status.EnoughToVote + 1
	for _, tc := range []struct {
		is   status.Progress
		told string // the first step
		got  string
	}{
		{status.Progress{Lag: far - 1}, "follows: server 10 follows, 1000 entries behind", "promote 10"},
		{status.Progress{Lag: far}, "follows: server 10 follows, 1001 entries behind", ""},
		{status.Progress{Lag: far - 1, Waits: "a disk"}, "follows: server 10 follows, 1000 entries behind",
			"promote 10"},
		{status.Progress{Lag: far, Waits: "a disk"}, "waits: server 10 waits: a disk", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &stillCluster{fakeCluster: newFakeCluster()}
			tc.is.Applied, tc.is.Heard = 9000, status.Ago(1)
			c.members[10].Progress = tc.is
			told := steps(t, c, change.Job{Op: "promote", ID: 10, Patience: 300})
			first, _, _ := strings.Cut(told, "\n")
			expect.Equal(t, first, "0s "+tc.told, "%+v", tc.is)
			expect.Equal(t, strings.Join(c.got, ", "), tc.got, "%+v", tc.is)
		})
	}
}

// stillCluster is a cluster in which a member that lags never catches up.
type stillCluster struct{ *fakeCluster }

// Members implements Cluster.
func (c *stillCluster) Members(context.Context) (*status.Members, error) {
	list := &status.Members{Leader: c.leader, Members: map[uint32]status.Member{}}
	for id, m := range c.members {
		list.Members[id] = *m
	}
	return list, nil
}

// leaderless is a cluster that refuses requests of one kind for a time, because no server leads.
type leaderless struct {
	*fakeCluster
	kind  string
	until time.Time
}

func (c *leaderless) fails(kind string) error {
	if kind != c.kind || time.Now().After(c.until) {
		return nil
	}
	return status.Errorf(status.NoLeader, "no leader")
}

func (c *leaderless) Members(ctx context.Context) (*status.Members, error) {
	if err := c.fails("members"); err != nil {
		return nil, err
	}
	return c.fakeCluster.Members(ctx)
}

func (c *leaderless) ChangeMember(ctx context.Context, m change.Change) error {
	if err := c.fails(string(m.Op)); err != nil {
		return err
	}
	return c.fakeCluster.ChangeMember(ctx, m)
}

// Each step of a job is progress: the job waits its whole patience for the next step.
func TestEachStepHasItsWholePatience(t *testing.T) {
	const patience = 3000 // ms
	for _, tc := range []struct {
		name    string
		prepare func(*leaderless)
		job     change.Job
		err     string
		took    time.Duration
	}{
		{"the server answers", func(c *leaderless) { // it answers after 2 s, but for 2.5 s more no server leads
			c.answers["h4:2888"], c.kind, c.until = 10, "add", time.Now().Add(4500*time.Millisecond)
			c.behind = 2500
		}, change.Job{Op: "add", ID: 4, Addr: "h4:2888"}, "", 4600 * time.Millisecond},
		// It joins after 2 s, but for 2.5 s more there is no list of members.
		{"the server is a member", func(c *leaderless) {
			c.kind, c.until, c.behind = "add", time.Now().Add(2*time.Second), 2500
			c.joined = func() { c.kind, c.until = "members", time.Now().Add(2500*time.Millisecond) }
		}, change.Job{Op: "add", ID: 4, Addr: "h4:2888"}, "", 4800 * time.Millisecond},
		{"the member is there, silent", func(c *leaderless) { // for 2 s there is no list of members
			c.kind, c.until = "members", time.Now().Add(2*time.Second)
			c.members[10].Progress = status.Progress{Waits: "refused"}
		}, change.Job{Op: "promote", ID: 10}, "server 10 is not ready", 5400 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &leaderless{fakeCluster: newFakeCluster()}
			tc.prepare(c)
			tc.job.Patience = patience
			began := time.Now()
			err := Run(anHour(t), c, tc.job, func(change.Step) {})
			took := time.Since(began)
			expect.Equal(t, err == nil, tc.err == "", "%s: whether it succeeds", tc.name)
			expect.Has(t, fmt.Sprint(err), tc.err, "%s: the error", tc.name)
			expect.Equal(t, took, tc.took, "%s", tc.name)
		})
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
