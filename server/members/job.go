package members

import (
	"context"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// Cluster has what a job needs of the cluster. Any server of the cluster can carry it out.
type Cluster interface {
	// Members lists the members as the leader knows them.
	Members(context.Context) (*status.Members, error)
	// Probe checks whether a server could be a member at an address.
	Probe(ctx context.Context, id uint32, addr string) (*status.Found, error)
	// ChangeMember makes one change.
	ChangeMember(context.Context, change.Change) error
}

const (
	jobPoll         = 200 * time.Millisecond
	jobRequest      = 20 * time.Second // how long a job waits for one answer
	defaultPatience = 30 * time.Second
	safePatience    = 2 * time.Second // how long a job waits for silent members to follow again
	// if more snapshots than this are sent to a member in a row, that is no progress
	mostSnapshots = 4
)

// Run does a job, and reports its steps. It returns when the job is done, was refused, or has made no
// progress for too long. If ctx ends, the job stops where it is. The same job can be started again, and goes
// on from there.
func Run(ctx context.Context, c Cluster, j change.Job, tell func(change.Step)) error {
	r := &job{Job: j, ctx: ctx, cluster: c, tell: tell, since: time.Now(),
		patience: time.Duration(j.Patience) * time.Millisecond}
	if r.patience <= 0 {
		r.patience = defaultPatience
	}
	switch j.Op {
	case change.Add:
		return r.add()
	case change.Promote:
		return r.promote()
	case change.Replace:
		return r.replace()
	case change.Lead:
		return r.lead()
	case change.Remove:
		return r.remove()
	}
	return r.change(j.Op, j.Addr)
}

// job is a job that is being done.
type job struct {
	change.Job
	ctx      context.Context
	cluster  Cluster
	tell     func(change.Step)
	patience time.Duration // how long the job may make no progress

	since   time.Time // when the job last made progress
	best    uint64    // the index of the newest entry that the member has applied
	sent    int64     // how many bytes of the member's snapshot have been sent
	begun   int       // how many snapshots were begun since the member last applied an entry
	problem string    // why there is no progress
	rate    rate
}

// show reports a step of the job.
func (j *job) show(kind, format string, args ...any) {
	j.tell(change.Step{Kind: kind, Text: fmt.Sprintf(format, args...)})
}

func (j *job) progress()     { j.since = time.Now() }
func (j *job) expired() bool { return time.Since(j.since) > j.patience }

func (j *job) pause() error {
	select {
	case <-j.ctx.Done():
		return status.With(status.Interrupted, context.Cause(j.ctx))
	case <-time.After(jobPoll):
		return nil
	}
}

// again() makes a request, and repeats it after an error that may pass: leaders change, and servers are
// restarted.
func (j *job) again(request func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(j.ctx, jobRequest)
		err := request(ctx)
		cancel()
		if err == nil || !status.Of(err).Passes() || j.expired() {
			return err
		}
		j.show("leader", "waiting: %v", err)
		if err := j.pause(); err != nil {
			return err
		}
	}
}

// members reads the list of members. `ours` is the server of this job in it, or nil if that is not a member.
func (j *job) members() (all *status.Members, ours *status.Member, err error) {
	err = j.again(func(ctx context.Context) (err error) {
		all, err = j.cluster.Members(ctx)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if m, is := all.Members[j.ID]; is {
		ours = &m
	}
	return all, ours, nil
}

// change() makes one change. If it is refused with a code in `done`, the change is made already. That is a
// success if an earlier request had no answer: then that request has made it.
func (j *job) change(op change.Op, addr string, done ...status.Code) error {
	lost := j.Again
	return j.again(func(ctx context.Context) error {
		err := j.cluster.ChangeMember(ctx, change.Change{Op: op, ID: j.ID, Addr: addr})
		for _, code := range done {
			if lost && status.Of(err) == code {
				return nil
			}
		}
		lost = lost || status.Of(err) == status.Interrupted
		return err
	})
}

// add makes a server a member. It waits until the server follows and, unless it must not vote, has a vote.
func (j *job) add() error {
	all, m, err := j.members()
	switch {
	case err != nil:
		return err
	case m != nil && m.Peer != j.Addr:
		return status.Errorf(status.IsMember,
			"server %d is a member already, at %s; to move it to %s: zlock member replace %d %s",
			j.ID, m.Peer, j.Addr, j.ID, j.Addr)
	case m != nil && m.Voter && j.Again:
		j.show("votes", "server %d votes", j.ID)
		return nil
	case m != nil && m.Voter:
		return status.Errorf(status.IsMember, "server %d is a member already, at %s", j.ID, m.Peer)
	case m != nil:
		j.show("member", "server %d is a member without a vote", j.ID)
		return j.follow(!j.NoVote)
	}
	if err := j.vacant(all, j.Addr); err != nil {
		return err
	}
	if _, err := j.answers(j.Addr); err != nil {
		return err
	}
	return j.join(j.Addr, !j.NoVote)
}

// vacant returns an error if another member has the address.
func (j *job) vacant(all *status.Members, addr string) error {
	for _, m := range all.Members {
		if m.Peer == addr && m.ID != j.ID {
			return fmt.Errorf("server %d is at %s; two members cannot have one address", m.ID, addr)
		}
	}
	return nil
}

// answers() waits until the server answers at the address.
func (j *job) answers(addr string) (found *status.Found, err error) {
	for {
		err = j.again(func(ctx context.Context) (err error) {
			found, err = j.cluster.Probe(ctx, j.ID, addr)
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case found.Heard != nil:
			if found.At != "" && found.At != addr {
				j.show("", "server %d reports the address %s; the members use that address once the server answers there",
					j.ID, found.At)
			}
			j.progress()
			return found, nil
		case j.expired():
			return nil, fmt.Errorf(
				"server %d does not answer at %s: %s; start it there with --peers that list the members and itself, "+
					"or correct the address: every member must reach it", j.ID, addr, found.Waits)
		}
		j.show("answers", "waiting for server %d to answer at %s: %s", j.ID, addr, found.Waits)
		if err := j.pause(); err != nil {
			return nil, err
		}
	}
}

// join makes a server that runs a member, and then waits for it in follow().
func (j *job) join(addr string, vote bool) error {
	if err := j.change(change.Add, addr, status.IsMember); err != nil {
		return err
	}
	j.progress()
	j.show("member", "server %d is a member without a vote", j.ID)
	return j.follow(vote)
}

// promote gives a member its vote as soon as the member has caught up.
func (j *job) promote() error {
	_, m, err := j.members()
	if err != nil || m != nil && m.Voter {
		return err
	}
	if m == nil {
		return j.change(change.Promote, "") // not a member: the leader refuses this, with the right error
	}
	return j.follow(true)
}

// replace puts an empty server in the place of a member. But if the server at the new address has the
// member's data, the member has only moved: then replace records its new address.
func (j *job) replace() error {
	all, m, err := j.members()
	addr := j.Addr
	switch {
	case err != nil:
		return err
	case m == nil:
		return status.Errorf(status.NotMember, "server %d is not a member; add it: zlock member add %d HOST:PORT",
			j.ID, j.ID)
	case addr == "":
		addr = m.Peer
	}
	if err := j.vacant(all, addr); err != nil {
		return err
	}
	found, err := j.answers(addr)
	switch {
	case err != nil:
		return err
	case found.Known && addr == m.Peer && !m.Voter:
		return fmt.Errorf("server %d runs at %s with the data directory that the cluster knows, and has no vote. "+
			"If it replaced a voter: zlock member promote %d", j.ID, addr, j.ID)
	case found.Known && addr == m.Peer:
		return fmt.Errorf("server %d runs at %s with the data directory that it always had: there is nothing to "+
			"replace. To give it an empty directory, stop it and start it on one", j.ID, addr)
	case found.Known:
		j.show("moved", "server %d has moved from %s to %s with its data", j.ID, m.Peer, addr)
		if err := j.change(change.Move, addr); err != nil || m.Voter {
			return err
		}
		return j.follow(false)
	}
	if m.Voter {
		voters := 0
		for _, other := range all.Members {
			if other.Voter {
				voters++
			}
		}
		j.show("", "until server %d has caught up there are %d voters instead of %d, and a majority of these "+
			"must run", j.ID, voters-1, voters)
	}
	if err := j.remove(); err != nil {
		return err
	}
	// If this job stops now, the list of members no longer tells the server's address and vote. So tell the
	// caller what is left to do.
	rest := change.Job{Op: change.Add, ID: j.ID, Addr: addr, Wait: true, NoVote: !m.Voter, Patience: j.Patience,
		Again: true}
	j.tell(change.Step{Kind: "removed", Text: fmt.Sprintf("server %d is removed", j.ID), Rest: &rest})
	if err := j.join(addr, m.Voter); err != nil {
		return fmt.Errorf("%w (server %d was removed; to go on: zlock member add %d %s)", err, j.ID, j.ID, addr)
	}
	return nil
}

// lead hands the leadership to the member.
func (j *job) lead() error {
	for {
		all, _, err := j.members()
		switch {
		case err != nil:
			return err
		case all.Leader == j.ID:
			j.show("leads", "server %d leads", j.ID)
			return nil
		}
		if err := j.change(change.Lead, ""); err != nil {
			return err
		}
		if j.expired() {
			return fmt.Errorf("server %d does not lead yet", j.ID)
		}
		if err := j.pause(); err != nil {
			return err
		}
	}
}

// remove removes the member. It first checks itself that the cluster can do without, because a leader of an
// older release does not.
func (j *job) remove() error {
	if err := j.safe(); err != nil {
		return err
	}
	return j.change(change.Remove, "", status.NotMember)
}

// safe() returns an error if the other voters that follow would be no majority without the job's server.
// Before it does, it waits a while for them.
func (j *job) safe() error {
	for end := time.Now().Add(safePatience); ; {
		all, ours, err := j.members()
		if err != nil || ours == nil || !ours.Voter {
			return err
		}
		var voters []uint32
		follow := map[uint32]bool{}
		for id, m := range all.Members {
			if m.Voter {
				voters = append(voters, id)
			}
			follow[id] = m.Follows()
		}
		leaves := change.Change{Op: change.Remove, ID: j.ID}
		if err = change.Safe(leaves.Voters(voters), follow); err == nil || time.Now().After(end) {
			return err
		}
		if err := j.pause(); err != nil {
			return err
		}
	}
}
