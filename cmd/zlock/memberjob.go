package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	memberPoll    = 200 * time.Millisecond
	memberRequest = 20 * time.Second // for one answer
	memberCaught  = 1000             // log entries behind, with which a server gets its vote
	memberAbsent  = 5 * time.Second  // in which the server that is asked hears of a new member
)

// memberJob is a change of one member until it is done. It goes on while
// leaders change: what was asked is looked at again, not taken for done.
type memberJob struct {
	*call
	ctx      context.Context
	admin    adminClient
	id       int
	patience time.Duration // without progress
	line     *statusLine

	answered bool      // a server has
	since    time.Time // of the last progress
	best     int64     // entries that it has applied at most
	sent     int64     // bytes of its snapshot
	problem  string    // why nothing goes on
	rate     rate
}

func newMemberJob(ctx context.Context, c *call, admin adminClient, id int, patience time.Duration) *memberJob {
	return &memberJob{call: c, ctx: ctx, admin: admin, id: id, patience: patience, line: newStatusLine(c.app), since: time.Now()}
}

// members reads the list; the member of the job is nil if there is none.
func (j *memberJob) members() (all []memberInfo, ours *memberInfo, err error) {
	err = j.again(func(ctx context.Context) (err error) {
		all, err = j.admin.members(ctx)
		return err
	})
	for i := range all {
		if all[i].ID == j.id {
			ours = &all[i]
		}
	}
	return all, ours, err
}

// again repeats a request while it may yet succeed: leaders change, and servers
// are restarted.
func (j *memberJob) again(request func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(j.ctx, memberRequest)
		err := request(ctx)
		cancel()
		if err == nil {
			j.answered = true
			return nil
		}
		// An address at which nobody ever answered is more likely wrong.
		if !passing(err) || !j.answered && codeOf(err) == exitNoSession {
			return err
		}
		if j.expired() {
			return err
		}
		if err := j.pause(); err != nil {
			return err
		}
	}
}

// passing reports whether an error is of a cluster between two leaders.
func passing(err error) bool {
	if codeOf(err) == exitNoSession {
		return true
	}
	var no *refusal
	if !errors.As(err, &no) {
		return false
	}
	for _, text := range []string{"there is no leader at the moment", "does not lead", "configuration changed since", "leadership", "node is not the leader",
		"deadline exceeded", "has not joined its cluster yet", "connection re", "EOF", "timed out", "timeout", "i/o", "broken pipe", "raft is already shutdown"} {
		if strings.Contains(no.text, text) {
			return true
		}
	}
	return false
}

func (j *memberJob) pause() error {
	select {
	case <-j.ctx.Done():
		return j.admin.unreachable(j.ctx, context.Cause(j.ctx))
	case <-time.After(memberPoll):
		return nil
	}
}

func (j *memberJob) progress()     { j.since = time.Now() }
func (j *memberJob) expired() bool { return time.Since(j.since) > j.patience }

// add makes a server a member, and waits until it follows or votes.
func (j *memberJob) add(addr string, vote bool) error {
	all, m, err := j.members()
	switch {
	case err != nil:
		return err
	case m != nil && m.Peer != addr:
		return exitf(exitNo, "server %d is a member already, at %s; if it is to be at %s: zlock member replace %d %s", j.id, m.Peer, addr, j.id, addr)
	case m != nil && m.votes():
		return exitf(exitNo, "server %d is a member already, at %s", j.id, m.Peer)
	case m != nil:
		j.line.show("server %d is a member without a vote", j.id)
		return j.follow(vote)
	}
	if err := j.vacant(all, addr); err != nil {
		return err
	}
	if _, err := j.answers(addr); err != nil {
		return err
	}
	return j.join(addr, vote)
}

// vacant refuses an address that another member has.
func (j *memberJob) vacant(all []memberInfo, addr string) error {
	for _, m := range all {
		if m.Peer == addr && m.ID != j.id {
			return exitf(exitNo, "server %d is at %s; two members cannot have one address", m.ID, addr)
		}
	}
	return nil
}

// answers waits until the server runs at the address.
func (j *memberJob) answers(addr string) (found memberFound, err error) {
	for {
		err = j.again(func(ctx context.Context) (err error) {
			found, err = j.admin.check(ctx, j.id, addr)
			return err
		})
		switch {
		case err != nil && strings.Contains(err.Error(), `unknown change "check"`):
			return found, nil // a release that cannot look: what is wrong shows later
		case err != nil:
			return found, err
		case found.Heard != nil:
			if found.At != "" && found.At != addr {
				j.line.end()
				j.say("server %d says that it is at %s; that is what the members will be told once it is reached there", j.id, found.At)
			}
			j.progress()
			return found, nil
		case j.expired():
			return found, exitf(exitNo, "server %d does not answer at %s: %s; start it there with --peers that list the members and itself, or correct the address: every member must reach it", j.id, addr, found.Waits)
		}
		j.problem = found.Waits
		j.line.show("waiting for server %d to answer at %s: %s", j.id, addr, found.Waits)
		if err := j.pause(); err != nil {
			return found, err
		}
	}
}

// join adds the server, which runs, and sees it through.
func (j *memberJob) join(addr string, vote bool) error {
	tried := false
	err := j.again(func(ctx context.Context) error {
		err := j.admin.change(ctx, memberChange{Op: "add", ID: uint32(j.id), Addr: addr})
		if tried && err != nil && strings.Contains(err.Error(), "is a member already, at "+addr) {
			return nil // by the try before, whose answer was lost
		}
		tried = true
		return err
	})
	if err != nil {
		return err
	}
	j.progress()
	j.line.show("server %d is a member without a vote", j.id)
	return j.follow(vote)
}

// promote sees a member through that has no vote yet.
func (j *memberJob) promote() error {
	_, m, err := j.members()
	switch {
	case err != nil:
		return err
	case m == nil: // the leader knows better
		if err := j.giveVote(); err != nil {
			return err
		}
	case m.votes():
		return nil
	}
	return j.follow(true)
}

// follow waits until the member has caught up, and gives it its vote.
func (j *memberJob) follow(vote bool) error {
	j.best, j.sent, j.problem = -1, -1, ""
	seen := time.Now()
	for {
		_, m, err := j.members()
		switch {
		case err != nil:
			return err
		case m == nil && time.Since(seen) > memberAbsent:
			return exitf(exitNo, "server %d is not a member any more", j.id)
		case m == nil: // the leader knows of it before the server that is asked
			if err := j.pause(); err != nil {
				return err
			}
			continue
		case m.votes():
			j.line.show("server %d votes", j.id)
			return nil
		}
		seen = time.Now()
		j.note(m)
		if m.untold() || m.Heard != nil && m.Applied > 0 && m.Lag <= memberCaught {
			if !vote {
				j.line.show("server %d follows; it has no vote", j.id)
				return nil
			}
			if err := j.giveVote(); err != nil {
				return err
			}
		}
		if j.expired() {
			return exitf(exitNo, "server %d is not ready, and there was no progress for %v: %s. It stays a member without a vote; the same command goes on, and zlock member remove %d takes it out",
				j.id, j.patience, j.problem, j.id)
		}
		if err := j.pause(); err != nil {
			return err
		}
	}
}

// giveVote asks for the vote; a server that falls behind again is waited for.
func (j *memberJob) giveVote() error {
	ctx, cancel := context.WithTimeout(j.ctx, memberRequest)
	defer cancel()
	err := j.admin.change(ctx, memberChange{Op: "promote", ID: uint32(j.id)})
	var no *refusal
	if err == nil || passing(err) {
		return nil // the list will tell
	}
	if errors.As(err, &no) && strings.Contains(no.text, "is not ready") {
		j.problem = no.text
		return nil
	}
	return err
}

// note looks whether the member has come any further, and says how far it is.
func (j *memberJob) note(m *memberInfo) {
	if m.Applied > j.best || m.SnapshotSent > j.sent {
		j.progress()
	}
	j.best = max(j.best, m.Applied)
	j.sent = m.SnapshotSent // a snapshot may be sent again
	switch {
	case m.SnapshotSize > 0:
		j.problem = fmt.Sprintf("it receives a snapshot, %s of %s", byteCount(m.SnapshotSent), byteCount(m.SnapshotSize))
		j.line.show("server %d receives a snapshot: %s of %s%s", j.id, byteCount(m.SnapshotSent), byteCount(m.SnapshotSize),
			j.rate.of(m.SnapshotSent, m.SnapshotSize-m.SnapshotSent, func(n int64) string { return byteCount(n) }))
	case m.Heard == nil:
		j.problem = m.Waits
		j.line.show("server %d does not answer: %s", j.id, m.Waits)
	case m.Applied == 0 || m.Waits != "" && m.Lag > memberCaught:
		j.problem = "it waits: " + m.Waits
		j.line.show("server %d waits: %s", j.id, m.Waits)
	default:
		behind := fmt.Sprintf("%d entries", m.Lag)
		if m.LagBytes != nil {
			behind += ", " + byteCount(*m.LagBytes)
		}
		j.problem = behind + " behind"
		j.line.show("server %d follows, %s behind%s", j.id, behind, j.rate.of(m.Applied, m.Lag, func(n int64) string { return fmt.Sprint(n, " entries") }))
	}
}

// replace gives a member's place to an empty server, or takes note that it has
// moved with its data.
func (j *memberJob) replace(addr string) error {
	all, m, err := j.members()
	switch {
	case err != nil:
		return err
	case m == nil:
		return exitf(exitNo, "server %d is not a member; add it: zlock member add %d HOST:PORT", j.id, j.id)
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
	case found.Known && addr == m.Peer:
		return exitf(exitNo, "server %d runs at %s with the data directory that it always had: there is nothing to replace. To give it an empty one, stop it and start it on that", j.id, addr)
	case found.Known:
		j.line.show("server %d has moved from %s to %s with its data", j.id, m.Peer, addr)
		err := j.again(func(ctx context.Context) error {
			return j.admin.change(ctx, memberChange{Op: "move", ID: uint32(j.id), Addr: addr})
		})
		if err != nil || m.votes() {
			return err
		}
		return j.follow(false)
	}
	if m.votes() {
		voters := 0
		for i := range all {
			if all[i].votes() {
				voters++
			}
		}
		j.line.end()
		j.say("until server %d has caught up there are %d voters instead of %d, and a majority of these must run", j.id, voters-1, voters)
	}
	vote := m.votes()
	if err := j.remove(); err != nil {
		return err
	}
	// The server that is asked may still show the former member, with its vote.
	for gone := m; gone != nil && !j.expired(); {
		if _, gone, err = j.members(); err == nil && gone != nil {
			err = j.pause()
		}
		if err != nil {
			return err
		}
	}
	if err := j.join(addr, vote); err != nil {
		return fmt.Errorf("%w (server %d was taken out; to go on: zlock member add %d %s)", err, j.id, j.id, addr)
	}
	return nil
}

// lead hands the leadership to the member.
func (j *memberJob) lead() error {
	for {
		_, m, err := j.members()
		switch {
		case err != nil:
			return err
		case m != nil && m.Role == "leader":
			j.line.show("server %d leads", j.id)
			return nil
		}
		if err := j.again(func(ctx context.Context) error {
			return j.admin.change(ctx, memberChange{Op: "lead", ID: uint32(j.id)})
		}); err != nil {
			return err
		}
		if j.expired() {
			return exitf(exitNo, "server %d does not lead yet", j.id)
		}
		if err := j.pause(); err != nil {
			return err
		}
	}
}

// remove takes the member out.
func (j *memberJob) remove() error {
	tried := false
	return j.again(func(ctx context.Context) error {
		err := j.admin.change(ctx, memberChange{Op: "remove", ID: uint32(j.id)})
		if tried && err != nil && strings.Contains(err.Error(), "is not a member") {
			return nil // by the try before, whose answer was lost
		}
		tried = true
		return err
	})
}
