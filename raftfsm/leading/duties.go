package leading

import (
	"cmp"
	"encoding/binary"
	"time"

	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

const (
	expiryBatch  = 1000
	reapPerSweep = 10_000
	sweepBytes   = 4 << 20 // how many bytes of paths may wait to be proposed after a sweep
	digestGap    = 1000
	membersEvery = 250 * time.Millisecond
)

// duties runs a leader's work besides proposing: it notes which of its own clients were heard from, expires
// sessions, sweeps, compares digests and publishes the members.
func (t *Term) duties() {
	o := t.o
	every := o.TouchEvery
	tick := time.NewTimer(o.Raft.Beat(every))
	defer tick.Stop()
	expiry := time.NewTimer(every) // fires at the next deadline, if that comes before the next tick
	defer expiry.Stop()
	sweep := time.NewTicker(o.SweepInterval)
	defer sweep.Stop()
	t.PublishMembers()
	t.lookAtRoom()
	// If this loop wakes late, the whole process may have stood still, with touches unread in its sockets.
	// The loop must not act on deadlines before every session has had time to be heard again.
	late := min(time.Second, o.MinSessionTimeout/4)
	last, looked := time.Now(), time.Now()
	var digested int64
	var restores restore.Watch
	var heard []state.Touch
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.members:
			t.PublishMembers()
			continue
		case <-sweep.C:
			t.sweep()
			continue
		case <-expiry.C:
		case <-tick.C:
			tick.Reset(o.Raft.Beat(every))
			if o.Raft.Leads() {
				o.Serving.Contact()
			}
			heard = o.Heard(heard[:0], false)
			t.deadlines.Heard(heard)
			if time.Since(looked) >= membersEvery-every/2 {
				looked = time.Now()
				t.PublishMembers()
				digested = t.compareDigests(digested)
				t.endTickets()
				t.lookAtRoom()
				t.giveUpRestore(&restores)
			}
		}
		now := time.Now()
		if stall := now.Sub(last); stall > late {
			o.Log.Warn("this server was stalled; all sessions get more time", "stall",
				stall.Round(time.Millisecond))
			t.deadlines.Stalled(stall)
		}
		last = now
		t.expire(now)
		expiry.Reset(t.deadlines.Next(t.grace(), every))
	}
}

// grace is how long a session outlives its timeout: a touch that another server heard just before the end may
// still be on its way.
func (t *Term) grace() time.Duration { return 2 * t.o.TouchEvery }

// expire() proposes the end of the sessions whose time is over. Apply ends a session only if no client has
// attached to it since. `now` is the last time at which this server is known to have run without a stall.
func (t *Term) expire(now time.Time) {
	due := t.deadlines.Due(now.Add(-t.grace()), expiryBatch)
	if len(due) == 0 {
		return
	}
	t.o.State.View(func(s *state.State) {
		for _, id := range due {
			if sess, ok := s.Sessions().Get(id); ok {
				t.acts.end(id, ending{sess.Gen, 1 + s.Tree().EphemeralsIn(id)})
			} else {
				t.deadlines.Remove(id)
			}
		}
	})
	t.wake()
}

// sweep() proposes the removal of empty containers and overdue TTL nodes, up to reapPerSweep of them and
// sweepBytes of paths: the next sweep finds the rest.
func (t *Term) sweep() {
	for from, left := 0, reapPerSweep; left > 0; {
		var paths []string
		t.o.State.View(func(s *state.State) {
			paths, from = s.Tree().Reapable(t.o.Now().UnixMilli(), from, left, nil)
		})
		for _, p := range paths {
			if t.acts.reaping() > sweepBytes {
				return
			}
			t.propose(state.Request{Op: state.OpReap, Body: []byte(p)})
		}
		if left -= len(paths); from == 0 {
			return
		}
	}
}

// compareDigests proposes the digest of this server's state every digestGap zxids, so that every server can
// compare it with the digest of its own state.
func (t *Term) compareDigests(done int64) int64 {
	if t.o.Port == nil {
		return done
	}
	t.o.State.View(func(s *state.State) {
		if d, ok := s.LastDigest(); ok && d.Zxid >= done+digestGap {
			done = d.Zxid
			body := binary.BigEndian.AppendUint64(nil, uint64(d.Zxid))
			t.propose(state.Request{Op: state.OpDigest, Body: binary.BigEndian.AppendUint64(body, d.Sum)})
		}
	})
	return done
}

// lookAtRoom decides whether the leader refuses requests that need more room. All servers agree, because the
// decision travels with the entries. The room that is left serves deletions, and the requests that keep
// sessions and the cluster alive.
func (t *Term) lookAtRoom() {
	low := t.Lowest()
	why := cmp.Or(low, t.o.Upkeep.Full())
	if full := why != ""; full != t.full.Swap(full) {
		if full {
			t.o.Log.Warn("requests that need more room are refused", "reason", why)
		} else {
			t.o.Log.Info("requests that need more room are accepted again")
		}
	}
	if (low != "") != t.low.Swap(low != "") {
		t.Barrier() // this entry tells all servers at once, even if no client sends a request
	}
}

// Lowest names a server whose disk has little free space, or returns "" if all disks have enough. One such
// server is reason enough to refuse requests, because a server that cannot store an entry ends.
func (t *Term) Lowest() string {
	if why := t.o.Upkeep.DiskLow(); why != "" {
		return why
	}
	return t.links.Full()
}

// giveUpRestore ends a restore whose server sends no more data.
func (t *Term) giveUpRestore(w *restore.Watch) {
	if g, abandoned := w.Look(t.o.State.View); abandoned {
		t.o.Log.Warn("a restore is abandoned: no data came for a minute", "server", g.Origin)
		t.propose(g.GiveUp())
	}
}

// endTickets proposes the end of the tickets that are overdue, unless earlier acts still wait.
func (t *Term) endTickets() {
	if t.acts.waits() {
		return
	}
	var due []int64
	t.o.State.View(func(s *state.State) {
		due = s.Sessions().TicketsDue(t.o.Now().UnixMilli(), expiryBatch, nil)
	})
	for _, id := range due {
		t.propose(state.EndTicket(id, session.TicketExpired))
	}
}
