package elect

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Raft is this server's raft, with methods for facts that raft does not export. Raft knows each server by its
// zlockd id.
type Raft struct {
	*raft.Raft
	ID    uint32
	Self  raft.ServerAddress // this server's address in raft
	Trans raft.Transport
	Began time.Time
	stuck atomic.Bool // set while this server's log hangs; see Relief
}

// Beat returns the time until the next multiple of d since raft began. Goroutines that check something
// periodically wait for the same beat, so that an idle processor wakes once for all of them.
func (r *Raft) Beat(d time.Duration) time.Duration { return d - time.Since(r.Began)%d }

// Known returns the leader that this server knows, or id 0 if it knows none.
func (r *Raft) Known() (id uint32, addr string) {
	a, i := r.LeaderWithID()
	if a == "" {
		return 0, ""
	}
	return peer.ParseID(i), string(a)
}

// Leads reports whether raft considers this server the leader. The server then holds its lease, but may not
// have applied everything that was ever acknowledged. While the log hangs, Leads returns false: raft's main
// loop, which checks the lease, may hang too, and the other servers may have elected another leader.
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
	return slices.Clone(f.Configuration().Servers) // a copy, because raft shares its list
}

// HeardOfLeader returns when this server last heard from another server that leads, or the zero time if it
// knows no other leader. Raft's time of last contact also changes when this server gives a vote or steps
// down; HeardOfLeader ignores these contacts.
func (r *Raft) HeardOfLeader() time.Time {
	at := r.LastContact()
	// Read the contact first: raft forgets its leader before it notes a vote, so if the contact was a vote,
	// Known finds no leader.
	if id, _ := r.Known(); id == 0 || id == r.ID {
		return time.Time{}
	}
	return at
}

// Silence returns how long this server has not heard from a leader. It returns 0 if this server leads.
func (r *Raft) Silence() time.Duration {
	if r.Leads() {
		return 0
	}
	last := r.LastContact()
	if last.IsZero() {
		last = r.Began // no contact yet, perhaps because the leader's first message, a snapshot, is still arriving
	}
	return time.Since(last)
}

// Header returns the header of a message to another server's raft.
func (r *Raft) Header() raft.RPCHeader {
	id := peer.ServerID(r.ID)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id),
		Addr: r.Trans.EncodePeer(id, r.Self)}
}

// Stand makes this server stand for election now. The server sends itself the message with which a leader
// hands over to its successor.
func (r *Raft) Stand() error {
	var resp raft.TimeoutNowResponse
	return r.Trans.TimeoutNow(peer.ServerID(r.ID), r.Self, &raft.TimeoutNowRequest{RPCHeader: r.Header()}, &resp)
}

// moment is a term and a time of contact. While both stay the same, nothing has happened that affects
// leadership.
type moment struct {
	term    uint64
	contact time.Time // last contact with a leader, or with a candidate that got a vote; zero: not compared
}

func (r *Raft) moment() moment { return moment{r.CurrentTerm(), r.LastContact()} }

func (r *Raft) isStill(m moment) bool {
	return r.CurrentTerm() == m.term && (m.contact.IsZero() || r.LastContact().Equal(m.contact))
}

// drained() waits until raft's main loop has handled all earlier requests of other servers, and reports
// whether that happened within `limit`. It queues a request of its own after them. Its request asks for a
// vote in an old term, which changes nothing.
func (r *Raft) drained(ctx context.Context, limit time.Duration) bool {
	done := make(chan error, 1)
	go func() { // this goroutine ends within the transport's timeout
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

// withdraw() ends a candidacy that failed; raft itself would end it only when its timer runs out. withdraw()
// asks raft for a vote in a newer term, which makes a candidate a follower. Raft ignores the request if it
// knows a leader or a newer term. withdraw() returns true if nothing else has happened since the moment `m`.
func (r *Raft) withdraw(m moment) bool {
	err := r.followIn(m.term+1, false)
	m.term++
	return err == nil && r.isStill(m)
}

// Forget makes raft drop the leader of a term, after that server has stopped leading. It does nothing if raft
// already knows a newer term.
func (r *Raft) Forget(term uint64) {
	if _, votes := r.voters(); votes { // followIn needs a log that is not empty; a voter has one
		_ = r.followIn(term+1, true)
	}
}

// followIn makes this server a follower in a newer term, in which it gives no vote. The server asks itself to
// vote for a candidate whose log is empty: raft adopts the term, and refuses the vote, because this server's
// log is longer. While raft knows a leader, it ignores the request unless `forget` is true.
func (r *Raft) followIn(term uint64, forget bool) error {
	h := r.Header()
	h.Addr = nil // no address: raft obeys any request from the leader's address, and this server may lead now
	var resp raft.RequestVoteResponse
	return r.Trans.RequestVote(peer.ServerID(r.ID), r.Self,
		&raft.RequestVoteRequest{RPCHeader: h, Term: term, LeadershipTransfer: forget}, &resp)
}

// voters lists the other voters, and reports whether this server is a voter.
func (r *Raft) voters() (others []peer.Place, own bool) {
	for _, srv := range r.Servers() {
		switch id := peer.ParseID(srv.ID); {
		case srv.Suffrage != raft.Voter:
		case id == r.ID:
			own = true
		default:
			others = append(others, peer.Place{ID: id, Addr: string(srv.Address)})
		}
	}
	return others, own
}

// pause() waits for d or until ctx ends. It returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
