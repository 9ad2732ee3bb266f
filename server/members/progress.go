package members

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// follow() waits until the member has caught up. If `vote` is true, it then gives the member its vote.
func (j *job) follow(vote bool) error {
	j.best, j.sent, j.begun, j.problem = 0, -1, 1, ""
	for {
		_, m, err := j.members()
		switch {
		case err != nil:
			return err
		case m == nil:
			return status.Errorf(status.NotMember, "server %d is not a member any more", j.ID)
		case m.Voter:
			j.show("votes", "server %d votes", j.ID)
			return nil
		}
		j.note(m)
		if m.Follows() {
			if !vote {
				j.show("follows", "server %d follows; it has no vote", j.ID)
				return nil
			}
			err := j.cluster.ChangeMember(j.ctx, change.Change{Op: change.Promote, ID: j.ID})
			switch code := status.Of(err); {
			case code == status.NotReady: // it had caught up, and lags again
				j.problem = err.Error()
			case err != nil && !code.Passes():
				return err
			case err == nil:
				continue
			}
		}
		if j.expired() {
			return status.Errorf(status.NotReady,
				"server %d is not ready, and there was no progress for %v: %s. It stays a member without a vote; "+
					"repeat the command to continue, or remove it by zlock member remove %d",
				j.ID, j.patience, j.problem, j.ID)
		}
		if err := j.pause(); err != nil {
			return err
		}
	}
}

// note records the member's progress, and reports the progress as a step.
func (j *job) note(m *status.Member) {
	switch {
	case m.Applied > j.best:
		j.best, j.begun = m.Applied, 1
		j.progress()
	case m.SnapshotSent < j.sent: // another snapshot is sent, from its beginning
		j.begun++
	case m.SnapshotSent > j.sent && j.begun <= mostSnapshots:
		j.progress()
	}
	j.sent = m.SnapshotSent
	switch {
	case m.SnapshotSize > 0:
		j.problem = fmt.Sprintf("it receives a snapshot, %s of %s", byteCount(m.SnapshotSent),
			byteCount(m.SnapshotSize))
		j.show("snapshot", "server %d receives a snapshot: %s of %s%s", j.ID, byteCount(m.SnapshotSent),
			byteCount(m.SnapshotSize),
			j.rate.of(m.SnapshotSent, m.SnapshotSize-m.SnapshotSent, byteCount))
	case !m.Reached():
		j.problem = m.Waits
		j.show("silent", "server %d does not answer: %s", j.ID, m.Waits)
	case m.Applied == 0 || m.Waits != "" && m.Lag > status.EnoughToVote:
		j.problem = "it waits: " + m.Waits
		j.show("waits", "server %d waits: %s", j.ID, m.Waits)
	default:
		behind := fmt.Sprintf("%d entries", m.Lag)
		if m.LagBytes != nil {
			behind += ", " + byteCount(*m.LagBytes)
		}
		j.problem = behind + " behind"
		entries := func(n int64) string { return fmt.Sprint(n, " entries") }
		j.show("follows", "server %d follows, %s behind%s", j.ID, behind, j.rate.of(int64(m.Applied), int64(m.Lag),
			entries))
	}
	if j.begun > mostSnapshots {
		j.problem = fmt.Sprintf("it was sent %d snapshots and applied none. Its log says why: its disk may be "+
			"full, or its connection to the leader may break", j.begun)
	}
}

// rate measures how fast a count has risen during the last seconds.
type rate struct {
	at    time.Time
	count int64
	per   float64 // units of the count in a second
}

// of() returns the rate as a text. If `left` is not 0, it also says how long that many more will take.
func (r *rate) of(count, left int64, unit func(int64) string) string {
	now := time.Now()
	if r.at.IsZero() || count < r.count {
		*r = rate{at: now, count: count}
		return ""
	}
	if d := now.Sub(r.at); d >= time.Second {
		r.per = float64(count-r.count) / d.Seconds()
		r.at, r.count = now, count
	}
	if r.per < 1 {
		return ""
	}
	text := fmt.Sprintf(" (%s/s", unit(int64(r.per)))
	if left > 0 {
		text += ", " + (time.Duration(float64(left)/r.per) * time.Second).String() + " to go"
	}
	return text + ")"
}

// byteCount formats a number of bytes for people.
func byteCount(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
