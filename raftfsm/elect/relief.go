package elect

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Relief replaces a leader whose disk hangs, long before the watchdog ends its process. Raft would never
// replace it, because such a leader still sends heartbeats, although it completes no request.
//
// A leader with a merely slow disk must keep its leadership, so the limit depends on how slow this disk was
// lately.
type Relief struct {
	Raft    *Raft
	Port    *peer.Port    // nil in a cluster of one server
	Writing func() uint64 // returns the number of the running write to the log; 0: none runs
	Log     *slog.Logger

	call   uint64        // number of the write that ran when look() was last called; 0: none ran
	stuck  time.Duration // how long, at least, the write with the number `call` has been running
	worst  time.Duration // the longest write that ended in the present span; see reliefSpan
	before time.Duration // the longest write that ended in the previous span
	span   int           // age of the present span, in units of reliefLook
	tried  int           // how many voters were asked to lead since the log or raft got stuck
	rest   int           // calls of look() until another voter is asked

	barred time.Time // since when raft accepts no entries; zero: raft accepts them
}

const (
	reliefLook  = 100 * time.Millisecond
	reliefSpan  = 300 // length of a span, in units of reliefLook
	reliefLeast = 1500 * time.Millisecond
	reliefMost  = 5 * time.Second // the longest limit; a leader with a slower disk is useless
	reliefAsk   = 200 * time.Millisecond
	reliefIdle  = 250 * time.Millisecond // replaces reliefLook while no write runs
	reliefRest  = 5                      // calls of look() to wait after a voter was asked to stand
)

// Watch checks the disk until ctx ends. It counts its checks instead of asking the clock: a process that was
// stopped for a while counts only one check, so it does not suspect its disk.
func (r *Relief) Watch(ctx context.Context) {
	for {
		wait := reliefLook
		if r.call == 0 {
			wait = r.Raft.Beat(reliefIdle)
			r.span += int((wait - 1) / reliefLook)
		}
		if !pause(ctx, wait) {
			return
		}
		due := r.look(r.Writing())
		r.Raft.stuck.Store(r.stuck > r.limit())
		if due && r.Raft.State() == raft.Leader {
			r.giveAway(ctx, "storage hangs", r.stuck)
		}
	}
}

// look() records the running write, and reports whether another server should lead.
func (r *Relief) look(call uint64) bool {
	if r.span++; r.span >= reliefSpan {
		r.span, r.before, r.worst = 0, r.worst, 0
	}
	if call == 0 || call != r.call {
		r.worst = max(r.worst, r.stuck)
		r.call, r.stuck, r.tried, r.rest = call, 0, 0, 0
		return false
	}
	r.stuck += reliefLook
	if r.rest > 0 {
		r.rest--
		return false
	}
	return r.stuck > r.limit()
}

// limit returns how long a write may take.
func (r *Relief) limit() time.Duration {
	lately := max(r.worst, r.before)
	return min(max(reliefLeast, lately+lately/2), reliefMost)
}

// Began records whether the barrier at the start of a term succeeded. While raft hands the leadership over,
// it accepts no entries. If the successor hangs and this server loses the leadership, raft never notices that
// the hand-over is over. When this server is elected again, it then leads, but completes no request. So Began
// asks another server to lead if the barrier has failed for longer than `limit`, which is more time than any
// election takes.
func (r *Relief) Began(ctx context.Context, err error, limit time.Duration) {
	now := time.Now()
	switch {
	case !errors.Is(err, raft.ErrLeadershipTransferInProgress):
		r.barred, r.tried = time.Time{}, 0
	case r.barred.IsZero():
		r.barred = now
	case now.Sub(r.barred) > limit && r.Port != nil:
		r.giveAway(ctx, "raft does not complete the hand-over of leadership", now.Sub(r.barred))
		r.barred = now
	}
}

// giveAway asks the voter with the longest log to stand for election. Each later call in the same stall asks
// the next voter. giveAway bypasses raft's main loop, which may be waiting for the disk. It first asks the
// other servers whether one of them already leads.
func (r *Relief) giveAway(ctx context.Context, why string, since time.Duration) {
	list := r.successors(ctx)
	if len(list) == 0 || slices.ContainsFunc(list, func(a peer.Answer) bool { return a.Status.Leader == a.ID }) {
		return
	}
	to := list[r.tried%len(list)]
	r.tried++
	r.rest = reliefRest
	r.Log.Warn(why+"; another server is asked to lead", "for", since, "server", to.ID)
	go func() {
		var resp raft.TimeoutNowResponse
		err := r.Raft.Trans.TimeoutNow(peer.ServerID(to.ID), raft.ServerAddress(to.Addr), &raft.TimeoutNowRequest{
			RPCHeader: r.Raft.Header()}, &resp)
		if err != nil {
			r.Log.Debug("a successor could not be reached", "server", to.ID, "err", err)
		}
	}()
}

// successors returns the other voters that answer. The voters with the best chance of being elected come
// first.
func (r *Relief) successors(ctx context.Context) (list []peer.Answer) {
	ctx, cancel := context.WithTimeout(ctx, reliefAsk)
	defer cancel()
	voters, _ := r.Raft.voters()
	for a := range r.Port.AskAll(ctx, voters, peer.Question{}) {
		if a.Err == nil && a.Status.Up {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b peer.Answer) int {
		if StandsBefore(&a.Status, &b.Status) {
			return -1
		}
		return 1
	})
	return list
}
