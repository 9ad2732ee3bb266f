package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/script"
)

// TestJobScripts runs testdata/job/*.txt. In each block, an operator starts a job in a cluster of three
// servers: 2 leads, 3 votes, and 10 has no vote.
//
//	answers h4:2888 2      the server at this address answers after two tries
//	reports h4:2888 h5:1   the server at the first address says that the second is its own
//	mute                   servers do not say which addresses are theirs
//	known h4:2888          the server at this address has the member's own data directory
//	member 10 silent       the member is not heard from; also: waits, snapshot, lag 1000
//	still                  no member catches up
//	behind 2500            a server that joins lags by so many entries, and not by 5000
//	no-leader 2            the next two changes fail, because no server leads
//	lost 2                 the next two changes are made, but their answers are lost
//	not-ready 2            the next two promotions come too early
//	deaf                   the leader does not hand over, and says that it has
//	full members 1         after one call, the calls of this kind fail: the disk is full
//	quiet add 0s 4s        no server leads for calls of this kind, from 0 s to 4 s
//	add 4 h4:2888 again    the job; further words: no-vote, patience=3s, ends=100ms (its caller goes)
//
// A block prints the steps of the job and their times, its end, and the changes that were made.
func TestJobScripts(t *testing.T) {
	script.Run(t, "testdata/job/*.txt", func(t *testing.T, commands [][]string) (out string) {
		synctest.Test(t, func(t *testing.T) {
			c := &trouble{fakeCluster: newFakeCluster(), began: time.Now(), after: -1}
			for _, words := range commands {
				if !c.run(t, words) {
					out += c.job(t, words)
				}
			}
		})
		return out
	})
}

// trouble is a cluster in which calls of one kind fail.
type trouble struct {
	*fakeCluster
	full  string // the kind of calls that fail: "members", "probe", or the operation of a change
	after int    // number of calls that succeed before calls fail
	deaf  bool   // the leader accepts a request to hand the leadership over, but keeps it
	still bool   // no member catches up

	quiet    string // the kind of calls for which no server leads
	began    time.Time
	from, to time.Duration // when no server leads for them
}

func (c *trouble) fails(kind string) error {
	at := time.Since(c.began)
	switch {
	case kind == c.quiet && at >= c.from && at <= c.to:
		return status.Errorf(status.NoLeader, "no leader")
	case kind == c.full:
		if c.after--; c.after < 0 {
			return errors.New("the disk is full")
		}
	}
	return nil
}

func (c *trouble) Members(ctx context.Context) (*status.Members, error) {
	if err := c.fails("members"); err != nil {
		return nil, err
	}
	if c.still {
		list := &status.Members{Leader: c.leader, Members: map[uint32]status.Member{}}
		for id, m := range c.members {
			list.Members[id] = *m
		}
		return list, nil
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
	if c.deaf && m.Op == change.Lead {
		return nil
	}
	return c.fakeCluster.ChangeMember(ctx, m)
}

// run() carries out a command. It returns false if the command is a job.
func (c *trouble) run(t *testing.T, words []string) bool {
	count := func(n int) int { return must.Get(strconv.Atoi(words[n]))(t) }
	at := func(n int) time.Duration { return must.Get(time.ParseDuration(words[n]))(t) }
	switch words[0] {
	case "answers":
		c.answers[words[1]] = count(2)
	case "reports":
		c.at[words[1]] = words[2]
	case "mute":
		c.fakeCluster.mute = true
	case "known":
		c.known[words[1]] = true
	case "member":
		m := c.members[uint32(count(1))]
		switch p := &m.Progress; words[2] {
		case "silent":
			*p = status.Progress{Waits: "refused"}
		case "waits":
			p.Waits = "a disk"
		case "starts":
			*p = status.Progress{Waits: "a snapshot", Heard: status.Ago(1)}
		case "snapshot":
			*p = status.Progress{SnapshotSize: 30 << 20, SnapshotSent: 20 << 10, Heard: status.Ago(1)}
		case "lag":
			p.Lag, p.LagBytes = uint64(count(3)), nil
		}
	case "still":
		c.still = true
	case "behind":
		c.behind = uint64(count(1))
	case "no-leader":
		c.stumble = count(1)
	case "lost":
		c.lost = count(1)
	case "not-ready":
		c.notReady = count(1)
	case "deaf":
		c.deaf = true
	case "full":
		c.full, c.after = words[1], count(2)
	case "quiet":
		c.quiet, c.from, c.to = words[1], at(2), at(3)
	default:
		return false
	}
	return true
}

// job() does a job, and prints it. A step that is repeated is printed once.
func (c *trouble) job(t *testing.T, words []string) string {
	j := change.Job{Op: change.Op(words[0]), ID: uint32(must.Get(strconv.Atoi(words[1]))(t))}
	ctx := anHour(t)
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "again":
			j.Again = true
		case "no-vote":
			j.NoVote = true
		case "patience":
			j.Patience = must.Get(time.ParseDuration(value))(t).Milliseconds()
		case "ends":
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, must.Get(time.ParseDuration(value))(t))
			defer cancel()
		default:
			j.Addr = w
		}
	}
	var out strings.Builder
	var last change.Step
	times := 0
	again := func() {
		if times > 1 {
			fmt.Fprintf(&out, "  %d times\n", times)
		}
	}
	err := Run(ctx, c, j, func(s change.Step) {
		if s.Kind+s.Text == last.Kind+last.Text {
			times++
			return
		}
		again()
		times, last = 1, s
		fmt.Fprintf(&out, "%v %s: %s\n", time.Since(c.began), cmp.Or(s.Kind, "note"), s.Text)
	})
	again()
	fmt.Fprintf(&out, "%v %s\n", time.Since(c.began), end(err))
	for _, made := range c.got {
		fmt.Fprintf(&out, "made: %s\n", made)
	}
	return out.String()
}

// end prints how a change has ended.
func end(err error) string {
	switch {
	case err == nil:
		return "done"
	case status.Of(err) == "":
		return "refused: " + err.Error()
	}
	return fmt.Sprintf("refused (%s): %v", status.Of(err), err)
}

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
