package clients

import (
	"sync"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// readRounds make reads linearizable, for servers with LinearizableReads. A read waits for a
// round: an empty request that goes through the log after the read has arrived. The read then
// sees everything acknowledged to any client before. Reads that arrive while a round is under way
// share the next.
type readRounds struct {
	s *Server

	mu   sync.Mutex
	next *readRound // reads join it; nil: no read waits
	busy bool       // a round is under way
}

// readRound is one trip through the log.
type readRound struct {
	r    *readRounds
	done chan struct{}
	ok   bool // written before done is closed
}

// wait waits for a round that begins after now. It reports false when this server no longer
// serves.
func (r *readRounds) wait() bool {
	r.mu.Lock()
	if r.next == nil {
		r.next = &readRound{r: r, done: make(chan struct{})}
	}
	round := r.next
	start := !r.busy
	if start {
		r.busy, r.next = true, nil
	}
	r.mu.Unlock()
	if start {
		round.begin()
	}
	<-round.done
	return round.ok
}

// catchUp waits, with LinearizableReads, for the round that a read of this connection needs.
func (c *conn) catchUp() bool {
	if !c.srv.o.LinearizableReads || c.readOnly {
		return true
	}
	if !c.awaitReplies(0, 0) {
		return false
	}
	c.flush() // what is answered need not wait for the round
	if !c.srv.rounds.wait() {
		c.close(endServing)
		return false
	}
	return true
}

// begin sends the round on its way.
func (d *readRound) begin() {
	if (*d.r.s.replica.Load()).Propose(state.Request{Op: state.OpBarrier}, d) != nil {
		d.finish(false)
	}
}

// Done implements state.Waiter.
func (d *readRound) Done(o *state.Outcome, _ *state.State) { d.finish(!o.Unknown) }

// finish lets the reads of this round go on, and begins the next round if a read waits for it.
// The caller may hold the state lock, so another goroutine begins it.
func (d *readRound) finish(ok bool) {
	d.ok = ok
	close(d.done)
	r := d.r
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next
	r.next, r.busy = nil, next != nil
	if next != nil {
		r.s.wg.Go(next.begin)
	}
}
