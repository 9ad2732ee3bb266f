package raftfsm

import (
	"cmp"
	"encoding/binary"
	"time"

	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/state"
)

const (
	expiryBatch  = 1000
	reapPerSweep = 10_000
	sweepBytes   = 4 << 20 // of paths that a sweep may leave waiting to be proposed
	actsInEntry  = 100     // the state is locked while all of an entry is applied
	endsInEntry  = 1000    // sessions that end, and their nodes
	endBytes     = 64      // the encoded end of a session is not longer
	digestGap    = 1000
	membersEvery = 250 * time.Millisecond
)

// duties runs a leader's work besides proposing: it notes which of its own clients were heard from, expires
// sessions, sweeps, compares digests and publishes the members.
func (t *term) duties() {
	n := t.n
	every := n.o.touchEvery()
	tick := time.NewTimer(n.raft.Beat(every))
	defer tick.Stop()
	expiry := time.NewTimer(every) // of the next deadline, if it comes before the next tick
	defer expiry.Stop()
	sweep := time.NewTicker(n.o.SweepInterval)
	defer sweep.Stop()
	t.publishMembers()
	t.lookAtRoom()
	// If this loop wakes late, the whole process may have stood still, with touches unread in its sockets. It
	// must not act on deadlines before every session has had time to be heard again.
	late := min(time.Second, n.o.MinSessionTimeout/4)
	last, looked := time.Now(), time.Now()
	var digested int64
	var restores restore.Watch
	var heard []state.Touch
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.members:
			t.publishMembers()
			continue
		case <-sweep.C:
			t.sweep()
			continue
		case <-expiry.C:
		case <-tick.C:
			tick.Reset(n.raft.Beat(every))
			if n.raft.Leads() {
				n.serving.Contact()
			}
			heard = n.o.Observer.Heard(heard[:0], false)
			t.tracker.Heard(heard)
			if time.Since(looked) >= membersEvery-every/2 {
				looked = time.Now()
				t.publishMembers()
				digested = t.compareDigests(digested)
				t.endTickets()
				t.lookAtRoom()
				t.giveUpRestore(&restores)
			}
		}
		now := time.Now()
		if stall := now.Sub(last); stall > late {
			n.log.Warn("this server was stalled; all sessions get more time", "stall", stall.Round(time.Millisecond))
			t.tracker.Stalled(stall)
		}
		last = now
		t.expire(now)
		expiry.Reset(t.tracker.Next(t.grace(), every))
	}
}

// grace is how long a session outlives its timeout: a touch that another server heard just before the end may
// still be on its way.
func (t *term) grace() time.Duration { return 2 * t.n.o.touchEvery() }

// expire proposes the end of the sessions whose time is over. Apply ends a session only if no client has
// attached to it since. now is the last time at which this server was known not to be stalled.
func (t *term) expire(now time.Time) {
	due := t.tracker.Due(now.Add(-t.grace()), expiryBatch)
	if len(due) == 0 {
		return
	}
	t.n.View(func(s *state.State) {
		for _, id := range due {
			if sess, ok := s.Sessions().Get(id); ok {
				t.acts.end(id, ending{sess.Gen, 1 + s.Tree().EphemeralsIn(id)})
			} else {
				t.tracker.Remove(id)
			}
		}
	})
	t.wake()
}

// sweep proposes the removal of empty containers and overdue TTL nodes, up to reapPerSweep of them and
// sweepBytes of paths: the next sweep finds the rest.
func (t *term) sweep() {
	for from, left := 0, reapPerSweep; left > 0; {
		var paths []string
		t.n.View(func(s *state.State) {
			paths, from = s.Tree().Reapable(t.n.o.Now().UnixMilli(), from, left, nil)
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
// compare its own.
func (t *term) compareDigests(done int64) int64 {
	if t.n.port == nil {
		return done
	}
	t.n.View(func(s *state.State) {
		if d, ok := s.LastDigest(); ok && d.Zxid >= done+digestGap {
			done = d.Zxid
			body := binary.BigEndian.AppendUint64(nil, uint64(d.Zxid))
			t.propose(state.Request{Op: state.OpDigest, Body: binary.BigEndian.AppendUint64(body, d.Sum)})
		}
	})
	return done
}

// lookAtRoom decides whether requests that need more room are refused from now
// on. The decision travels with the entries, so that all servers agree; a log
// that can still be written keeps sessions, deletions and the cluster alive.
func (t *term) lookAtRoom() {
	low := t.lowest()
	why := cmp.Or(low, t.n.upkeep.Full())
	if full := why != ""; full != t.full.Swap(full) {
		if full {
			t.n.log.Warn("requests that need more room are refused", "reason", why)
		} else {
			t.n.log.Info("requests that need more room are accepted again")
		}
	}
	if (low != "") != t.low.Swap(low != "") {
		t.n.addBarrier() // all servers must know before a client asks
	}
}

// lowest names a server whose disk is low, empty if there is none. One is enough: a server that cannot store
// an entry ends.
func (t *term) lowest() string {
	if why := t.n.upkeep.DiskLow(); why != "" {
		return why
	}
	return t.links.Full()
}

// giveUpRestore ends a restore whose server sends no more data.
func (t *term) giveUpRestore(w *restore.Watch) {
	if g, abandoned := w.Look(t.n.View); abandoned {
		t.n.log.Warn("a restore is abandoned: no data came for a minute", "server", g.Origin)
		t.propose(g.GiveUp())
	}
}
