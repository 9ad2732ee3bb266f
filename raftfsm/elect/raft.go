package elect

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Raft is this server's raft with what raft knows but does not offer. Servers have
// our ids.
type Raft struct {
	*raft.Raft
	ID    uint32
	Self  raft.ServerAddress // where raft knows this server
	Trans raft.Transport
	Began time.Time
	stuck atomic.Bool // this server's log hangs; see Relief
}

// Known tells which server leads, as far as this one knows; id 0: none does.
func (r *Raft) Known() (id uint32, addr string) {
	a, i := r.LeaderWithID()
	if a == "" {
		return 0, ""
	}
	return peer.ParseID(i), string(a)
}

// Leads reports whether raft takes this server for the leader. It then holds
// its lease, but may not yet have applied all that was ever acknowledged. While
// the log hangs it does not lead: raft's main loop, which looks after the lease,
// may hang with it, and the others may have elected another leader.
func (r *Raft) Leads() bool { return r.State() == raft.Leader && !r.stuck.Load() }

// NobodyLeadsBut reports whether this server knows no leader other than id.
func (r *Raft) NobodyLeadsBut(id uint32) bool {
	now, _ := r.Known()
	return now == 0 || now == id
}

// Servers returns the newest configuration raft knows.
func (r *Raft) Servers() []raft.Server {
	f := r.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return slices.Clone(f.Configuration().Servers) // raft's own list is shared
}

// HeardOfLeader returns when this server last heard of another one that leads, if
// it knows a leader. Raft counts more than that as a contact: a vote that it gave,
// and that it stepped down itself.
func (r *Raft) HeardOfLeader() time.Time {
	at := r.LastContact()
	// Raft forgets the leader before it notes a vote, and this server after.
	if id, _ := r.Known(); id == 0 || id == r.ID {
		return time.Time{}
	}
	return at
}

// Silence is how long this server has heard nothing of a leader; 0 where it leads.
func (r *Raft) Silence() time.Duration {
	if r.Leads() {
		return 0
	}
	last := r.LastContact()
	if last.IsZero() {
		last = r.Began // if there is a leader, all that it has sent yet is a snapshot that is not whole
	}
	return time.Since(last)
}

// Header is that of a message to another server's raft.
func (r *Raft) Header() raft.RPCHeader {
	id := peer.ServerID(r.ID)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: r.Trans.EncodePeer(id, r.Self)}
}

// Stand lets this server stand for election now. It tells itself what a leader
// that hands over tells its successor.
func (r *Raft) Stand() error {
	var resp raft.TimeoutNowResponse
	return r.Trans.TimeoutNow(peer.ServerID(r.ID), r.Self, &raft.TimeoutNowRequest{RPCHeader: r.Header()}, &resp)
}

// moment tells whether anything has happened that bears on who leads.
type moment struct {
	term    uint64
	contact time.Time // with a leader, or a candidate that was given a vote; zero: any
}

func (r *Raft) moment() moment { return moment{r.CurrentTerm(), r.LastContact()} }

func (r *Raft) isStill(m moment) bool {
	return r.CurrentTerm() == m.term && (m.contact.IsZero() || r.LastContact().Equal(m.contact))
}

// drained waits until raft's main loop has done what others have asked of it so
// far, and reports whether it has in time. It is asked for a vote in a term that is
// long over, which changes nothing, and comes behind the requests of others.
func (r *Raft) drained(ctx context.Context, limit time.Duration) bool {
	done := make(chan error, 1)
	go func() { // for the transport's patience at most
		var resp raft.RequestVoteResponse
		req := &raft.RequestVoteRequest{RPCHeader: r.Header(), LeadershipTransfer: true}
		done <- r.Trans.RequestVote(peer.ServerID(r.ID), r.Self, req, &resp)
	}()
	select {
	case err := <-done:
		return err == nil
	case <-time.After(limit):
	case <-ctx.Done():
	}
	return false
}

// withdraw ends a candidacy that came to nothing, which raft would only do when
// its timer runs out. A candidate that is asked for a vote in a newer term must
// become a follower, so this server asks itself for one, with an empty log, which
// gets no vote. It reports whether nothing else has happened since m: if raft
// knows a leader by then, or a newer term, it takes no notice.
func (r *Raft) withdraw(m moment) bool {
	h := r.Header()
	h.Addr = nil // raft would take it for its own leader, if it leads by then
	var resp raft.RequestVoteResponse
	err := r.Trans.RequestVote(peer.ServerID(r.ID), r.Self, &raft.RequestVoteRequest{RPCHeader: h, Term: m.term + 1}, &resp)
	m.term++
	return err == nil && r.isStill(m)
}
