package members

import (
	"cmp"
	"context"
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

// fakeCluster is a cluster of three servers: 2 leads, 3 votes, and 10 has no vote. A server that joins needs
// some time to catch up.
type fakeCluster struct {
	members  map[uint32]*status.Member
	leader   uint32
	answers  map[string]int    // by address: how many tries fail before the server answers
	known    map[string]bool   // addresses where the member's own directory is
	at       map[string]string // for an address: the different address that the server there reports
	stumble  int               // how many changes fail because there is no leader
	lost     int               // how many changes are made although their answers are lost
	notReady int               // how many promotions are refused because they come too early
	behind   uint64            // how many entries a joining server lags; 0: 5000
	mute     bool              // servers do not report their addresses
	joined   func()            // runs when a server has joined, if not nil
	got      []string
}

func newFakeCluster() *fakeCluster {
	f := &fakeCluster{members: map[uint32]*status.Member{}, leader: 2, answers: map[string]int{},
		known: map[string]bool{}, at: map[string]string{}}
	for _, id := range []uint32{2, 3, 10} {
		f.members[id] = &status.Member{ID: id, Peer: fmt.Sprintf("h%d:2888", id), Voter: id != 10,
			Progress: status.Progress{Applied: 9000, Heard: status.Ago(12), LagBytes: new(int64)}}
	}
	return f
}

// Members implements Cluster. With each call, a member that lags catches up a little.
func (f *fakeCluster) Members(context.Context) (*status.Members, error) {
	list := &status.Members{Leader: f.leader, Members: map[uint32]status.Member{}}
	for id, m := range f.members {
		if m.Lag > 0 {
			m.Applied, m.Lag, m.Heard = m.Applied+2500, m.Lag-2500, status.Ago(5)
			m.LagBytes = new(int64)
			*m.LagBytes = int64(m.Lag) * 100
		}
		list.Members[id] = *m
	}
	return list, nil
}

// Probe implements Cluster.
func (f *fakeCluster) Probe(_ context.Context, id uint32, addr string) (*status.Found, error) {
	if addr == "wrong:2888" {
		return nil, fmt.Errorf("the server at %s cannot become server %d: this is server 5", addr, id)
	}
	found := &status.Found{At: cmp.Or(f.at[addr], addr), Known: f.known[addr], Progress: status.Progress{
		Waits: "connection refused"}}
	if f.answers[addr]--; f.answers[addr] < 0 {
		found.Heard = status.Ago(0)
	}
	if f.mute {
		found.At = ""
	}
	return found, nil
}

// ChangeMember implements Cluster.
func (f *fakeCluster) ChangeMember(_ context.Context, c change.Change) error {
	if f.stumble > 0 {
		f.stumble--
		return status.Errorf(status.NoLeader, "there is no leader at the moment")
	}
	m := f.members[c.ID]
	switch {
	case c.Op == "add" && m != nil:
		return status.Errorf(status.IsMember, "server %d is a member already", c.ID)
	case c.Op == "add":
		f.members[c.ID] = &status.Member{ID: c.ID, Peer: c.Addr, Progress: status.Progress{
			Lag: cmp.Or(f.behind, 5000)}}
		if f.joined != nil {
			f.joined()
		}
	case m == nil:
		return status.Errorf(status.NotMember, "server %d is not a member", c.ID)
	case c.Op == "promote" && f.notReady > 0:
		f.notReady--
		return status.Errorf(status.NotReady, "server %d is not ready", c.ID)
	case c.Op == "promote":
		m.Voter = true
	case c.Op == "lead":
		f.leader = c.ID
	case c.Op == "remove":
		delete(f.members, c.ID)
	case c.Op == "move":
		m.Peer = c.Addr
	default:
		return fmt.Errorf("unknown change %q", c.Op)
	}
	f.got = append(f.got, strings.TrimSpace(fmt.Sprint(c.Op, " ", c.ID, " ", c.Addr)))
	if f.lost > 0 {
		f.lost--
		return status.Errorf(status.Interrupted, "the connection ended")
	}
	return nil
}

// anHour returns a context that ends a job which would go on forever.
func anHour(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

func TestJobsGoOnToTheirEnd(t *testing.T) {
	type job = change.Job
	short := int64(500)
	for _, tc := range []struct {
		job     job
		prepare func(*fakeCluster)
		told    string // a part of the steps
		err     string // a part of the error; empty: there is none
		got     string
	}{
		{job{Op: "add", ID: 4, Addr: "h4:2888"}, func(f *fakeCluster) { f.answers["h4:2888"] = 2 },
			"waiting for server 4 to answer at h4:2888: connection refused", "", "add 4 h4:2888, promote 4"},
		{job{Op: "add", ID: 4, Addr: "h4:2888"}, func(f *fakeCluster) { f.stumble = 2 },
			"server 4 follows, 2500 entries, 244 KiB behind\nserver 4 follows, 0 entries, 0 bytes behind\nserver 4 " +
				"votes\n", "", "add 4 h4:2888, promote 4"},
		{job{Op: "add", ID: 4, Addr: "h4:2888"}, func(f *fakeCluster) { f.lost = 2 }, "server 4 votes", "",
			"add 4 h4:2888, promote 4"},
		{job{Op: "add", ID: 4, Addr: "h4:2888"}, func(f *fakeCluster) { f.notReady = 2 }, "server 4 votes", "",
			"add 4 h4:2888, promote 4"},
		{job{Op: "add", ID: 4, Addr: "h4:2888"}, func(f *fakeCluster) { f.at["h4:2888"] = "h5:2888" },
			"server 4 reports the address h5:2888; the members", "", "add 4 h4:2888, promote 4"},
		{job{Op: "add", ID: 4, Addr: "h4:2888", NoVote: true}, nil, "server 4 follows; it has no vote", "",
			"add 4 h4:2888"},
		{job{Op: "add", ID: 10, Addr: "h10:2888"}, nil, "server 10 votes", "", "promote 10"},
		{job{Op: "add", ID: 4, Addr: "wrong:2888"}, nil, "",
			"the server at wrong:2888 cannot become server 4: this is server 5", ""},
		{job{Op: "add", ID: 4, Addr: "h3:2888"}, nil, "",
			"server 3 is at h3:2888; two members cannot have one address", ""},
		{job{Op: "add", ID: 3, Addr: "h3:2888"}, nil, "", "server 3 is a member already, at h3:2888", ""},
		{job{Op: "add", ID: 3, Addr: "h3:2888", Again: true}, nil, "server 3 votes", "", ""},
		{job{Op: "add", ID: 3, Addr: "h4:2888"}, nil, "",
			"to move it to h4:2888: zlock member replace 3 h4:2888", ""},
		{job{Op: "add", ID: 4, Addr: "h4:2888", Patience: short}, func(f *fakeCluster) {
			f.answers["h4:2888"] = 1000
		}, "",
			"server 4 does not answer at h4:2888: connection refused; start it there", ""},
		{job{Op: "promote", ID: 10}, nil, "server 10 votes", "", "promote 10"},
		{job{Op: "promote", ID: 3}, nil, "", "", ""},
		{job{Op: "promote", ID: 9}, nil, "", "server 9 is not a member", ""},
		{job{Op: "promote", ID: 10, Patience: short},
			func(f *fakeCluster) { f.members[10].Progress = status.Progress{Waits: "for its cluster"} },
			"server 10 does not answer: for its cluster",
			"there was no progress for 500ms: for its cluster. It stays a member without a vote", ""},
		{job{Op: "replace", ID: 3}, nil, "until server 3 has caught up there are 1 voters instead of 2", "",
			"remove 3, add 3 h3:2888, promote 3"},
		{job{Op: "replace", ID: 3, Addr: "h4:2888"}, func(f *fakeCluster) { f.lost, f.answers["h4:2888"] = 3, 1 },
			"server 3 votes", "",
			"remove 3, add 3 h4:2888, promote 3"},
		{job{Op: "replace", ID: 10}, nil, "server 10 follows; it has no vote", "", "remove 10, add 10 h10:2888"},
		{job{Op: "replace", ID: 3}, func(f *fakeCluster) { f.known["h3:2888"] = true }, "",
			"there is nothing to replace", ""},
		{job{Op: "replace", ID: 10}, func(f *fakeCluster) { f.known["h10:2888"] = true }, "",
			"has no vote. If it replaced a voter: zlock member promote 10", ""},
		{job{Op: "replace", ID: 3, Addr: "h4:2888"}, func(f *fakeCluster) { f.known["h4:2888"] = true },
			"has moved from h3:2888 to h4:2888 with its data", "", "move 3 h4:2888"},
		{job{Op: "replace", ID: 3, Addr: "h2:2888"}, nil, "",
			"server 2 is at h2:2888; two members cannot have one address", ""},
		{job{Op: "replace", ID: 9}, nil, "", "server 9 is not a member; add it", ""},
		{job{Op: "lead", ID: 3}, func(f *fakeCluster) { f.stumble = 1 },
			"waiting: there is no leader at the moment\nserver 3 leads", "", "lead 3"},
		{job{Op: "lead", ID: 2}, nil, "server 2 leads", "", ""},
		{job{Op: "lead", ID: 9}, nil, "", "server 9 is not a member", ""},
		{job{Op: "remove", ID: 3}, func(f *fakeCluster) { f.lost = 1 }, "", "", "remove 3"},
		{job{Op: "remove", ID: 9}, nil, "", "server 9 is not a member", ""},
		{job{Op: "remove", ID: 9, Again: true}, nil, "", "", ""},
		{job{Op: "remove", ID: 3, Patience: short}, func(f *fakeCluster) { f.stumble = 1000 }, "",
			"there is no leader", ""},
		{job{Op: "rename", ID: 3}, nil, "", `unknown change "rename"`, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeCluster()
			if tc.prepare != nil {
				tc.prepare(f)
			}
			var told strings.Builder
			err := Run(anHour(t), f, tc.job, func(s change.Step) { fmt.Fprintln(&told, s.Text) })
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%+v: %v", tc.job, err)
			}
			expect.Has(t, told.String(), tc.told, "%+v: told %s", tc.job, &told)
			if got := strings.Join(f.got, ", "); got != tc.got {
				t.Errorf("%+v: changed %s", tc.job, got)
			}
		})
	}
}

// A job stops at its present step when its caller's context ends.
func TestJobEndsWithItsCaller(t *testing.T) {
	f := newFakeCluster()
	f.answers["h4:2888"] = 1000
	ctx, cancel := context.WithCancel(t.Context())
	err := Run(ctx, f, change.Job{Op: "add", ID: 4, Addr: "h4:2888"}, func(change.Step) { cancel() })
	expect.Equal(t, status.Of(err), status.Interrupted)
	expect.That(t, len(f.got) <= 0, "%v, changed %v", err, f.got)
}

// A replacement that stops after any step continues with the job in Step.Rest. This job has what the list of
// members no longer shows: the address of the new server, and whether it votes.
func TestReplacementGoesOnAfterAnyStep(t *testing.T) {
	for id, want := range map[uint32]string{3: "remove 3, add 3 h3:2888, promote 3",
		10: "remove 10, add 10 h10:2888"} {
		for _, end := range []string{"removed", "member", "follows", "votes"} {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster()
				f.joined = func() { f.known[f.members[id].Peer] = true }
				var rest *change.Job
				ctx, cancel := context.WithCancel(anHour(t))
				_ = Run(ctx, &lostCluster{f, ctx}, change.Job{Op: "replace", ID: id}, func(s change.Step) {
					if s.Rest != nil {
						rest = s.Rest
					}
					if s.Kind == end {
						cancel()
					}
				})
				must.That(t, rest != nil, "server %d, %s: no rest", id, end)
				expect.OK(t, Run(anHour(t), f, *rest, func(change.Step) {}), "server %d, %s", id, end)
				expect.Equal(t, strings.Join(f.got, ", "), want, "server %d, %s", id, end)
			})
		}
	}
}

// lostCluster answers no request after the request's context has ended.
type lostCluster struct {
	*fakeCluster
	ctx context.Context
}

func (c *lostCluster) ChangeMember(_ context.Context, m change.Change) error {
	if err := c.ctx.Err(); err != nil {
		return status.With(status.Interrupted, err)
	}
	return c.fakeCluster.ChangeMember(c.ctx, m)
}
