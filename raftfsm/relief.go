package raftfsm

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
)

// relief has a leader whose disk hangs replaced long before the watchdog ends
// its process. raft would never do it: such a leader goes on telling everybody
// that it leads, and nothing that it is asked for is ever done.
//
// A disk that is merely slow must not cost a leader its leadership, so what
// counts as hanging depends on how slow this disk was lately.
type relief struct {
	raft *consensus
	disk *disk.Disk
	port *peer.Port
	log  *slog.Logger
	ctx  context.Context // ends when the Node closes

	call   uint64        // the write that was under way at the last look; 0: none
	stuck  time.Duration // how long, at least, it has been
	worst  time.Duration // of the writes that ended in this span, and in the one before
	before time.Duration
	span   int // looks since this span began
	tried  int // to give leadership away, in this stall
	rest   int // looks until the next try

	barred time.Time // since when raft takes nothing from this leader; zero: it does
}

func (n *Node) newRelief() *relief {
	return &relief{raft: n.raft, disk: n.disk, port: n.port, log: n.log, ctx: n.ctx}
}

const (
	reliefLook  = 100 * time.Millisecond
	reliefSpan  = 300 // looks
	reliefLeast = 1500 * time.Millisecond
	reliefMost  = 5 * time.Second // a disk that is as slow as that is no use to a leader
	reliefAsk   = 200 * time.Millisecond
	reliefRest  = 5 // looks after a try: by then there is a new leader, or no hope for this try
)

// watch looks at the disk until the Node closes. It counts looks instead of
// asking the clock: when the whole process stood still for a while, that is one
// look, not a hanging disk.
func (r *relief) watch() {
	tick := time.NewTicker(reliefLook)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		due := r.look(r.disk.Writing())
		r.raft.stuck.Store(r.stuck > r.limit())
		if due && r.raft.State() == raft.Leader {
			r.giveAway("storage hangs", r.stuck)
		}
	}
}

// look is told which write is under way, and reports whether it is time to let
// somebody else lead.
func (r *relief) look(call uint64) bool {
	if r.span++; r.span == reliefSpan {
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

// limit is how long a write may take.
func (r *relief) limit() time.Duration {
	lately := max(r.worst, r.before)
	return min(max(reliefLeast, lately+lately/2), reliefMost)
}

// began is told how the barrier went with which a term begins. While raft hands
// leadership over it takes nothing, and it may never learn that this has ended: it
// waits for a replicator to a server that hangs, and when leadership is lost
// meanwhile that one ends without a word. Elected again, such a server would lead
// and do nothing for as long as it runs. In limit any election is over.
func (r *relief) began(err error, limit time.Duration) {
	now := time.Now()
	switch {
	case !errors.Is(err, raft.ErrLeadershipTransferInProgress):
		r.barred, r.tried = time.Time{}, 0
	case r.barred.IsZero():
		r.barred = now
	case now.Sub(r.barred) > limit && r.port != nil:
		r.giveAway("raft goes on handing leadership over", now.Sub(r.barred))
		r.barred = now
	}
}

// giveAway asks the voter with the longest log to stand for election; if it
// has been asked before in this stall and this server still leads, the next
// one. It does not need raft's main loop, which may be waiting for the disk, and
// so does not know that another server leads: the others tell.
func (r *relief) giveAway(why string, since time.Duration) {
	list := r.successors()
	if len(list) == 0 || slices.ContainsFunc(list, func(s successor) bool { return s.Leader == s.ID }) {
		return
	}
	to := list[r.tried%len(list)]
	r.tried++
	r.rest = reliefRest
	r.log.Warn(why+"; another server is asked to lead", "for", since, "server", to.ID)
	go func() {
		var resp raft.TimeoutNowResponse
		err := r.raft.trans.TimeoutNow(peer.ServerID(to.ID), raft.ServerAddress(to.addr), &raft.TimeoutNowRequest{RPCHeader: r.raft.header()}, &resp)
		if err != nil {
			r.log.Debug("a successor was not reached", "server", to.ID, "err", err)
		}
	}()
}

type successor struct {
	peer.Status
	addr string
}

// successors are the other voters that answer, in the order in which they can
// win an election.
func (r *relief) successors() (list []successor) {
	ctx, cancel := context.WithTimeout(r.ctx, reliefAsk)
	defer cancel()
	answers := make(chan *successor)
	asked := 0
	for _, srv := range r.raft.servers() {
		id := peer.ParseID(srv.ID)
		if srv.Suffrage != raft.Voter || id == r.raft.id {
			continue
		}
		asked++
		go func() {
			st, err := r.port.Ask(ctx, id, string(srv.Address), peer.Question{})
			if err != nil || !st.Up {
				answers <- nil
				return
			}
			st.ID = id
			answers <- &successor{st, string(srv.Address)}
		}()
	}
	for range asked {
		if s := <-answers; s != nil {
			list = append(list, *s)
		}
	}
	slices.SortFunc(list, func(a, b successor) int {
		if standsBefore(&a.Status, &b.Status) {
			return -1
		}
		return 1
	})
	return list
}
