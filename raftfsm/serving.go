package raftfsm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// serving decides whether clients may be served. A server that has lost its leader, or lags far behind,
// disconnects its clients early enough for them to find another server before their sessions end.
type serving struct {
	n *Node

	mu       sync.Mutex // guards what follows
	on       bool
	readOnly bool          // clients that ask for it may read
	final    bool          // never again
	reason   string        // why on is false
	lastGood time.Time     // when this server last heard from a leader, or as leader from a majority
	lastAck  time.Time     // sending time of the newest acknowledged touch message
	ackIndex uint64        // how far the leader was when it acknowledged that; 0: this server led
	ackNews  chan struct{} // closed when lastAck changes; nil: no goroutine waits for that
	started  bool          // it has caught up once since it started
	behind   uint64        // an index of the leader that this server has not reached yet; 0: none
	since    time.Time     // since when
	removed  time.Time     // since when its log says that it is no member; zero: it does not
	offSince time.Time     // when it was started, or last turned off
	advised  string        // what an operator can do about a leader that stays away; empty: wait
}

const (
	servingLook = 20 * time.Millisecond  // while clients are not served
	servingRest = 250 * time.Millisecond // at most, while they are
	// servingGrace is how much longer than the heartbeat timeout a server serves without a leader. An
	// election is over by then, and clients can still find another server in time.
	servingGrace = 1500 * time.Millisecond
	// removedGrace is the time for the reply to reach a client of this server that asked for the removal.
	removedGrace = 200 * time.Millisecond
	servingLag   = 10 * time.Second // of applying less than the leader has
	// adviceAfter is how long there must be no leader before this server advises the operator. An election
	// takes far less.
	adviceAfter = 30 * time.Second
)

// contact notes that this server leads and holds its lease: it has heard from a majority within the last
// heartbeat timeout.
func (g *serving) contact() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.lastGood, g.lastAck, g.started, g.behind = now.Add(-g.n.o.HeartbeatTimeout), now, true, 0
	g.ackIndex = 0
	g.tellAck()
}

// acked notes that the leader acknowledged a touch message sent at that time,
// and how far the leader was.
func (g *serving) acked(sent time.Time, leaderIndex uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastAck, g.ackIndex = sent, leaderIndex
	g.tellAck()
	applied := g.n.fsm.index.Load()
	switch {
	case applied >= leaderIndex:
		g.started, g.behind = true, 0
	case g.behind == 0 || applied >= g.behind:
		g.behind, g.since = leaderIndex, time.Now()
	}
}

// watch admits clients and disconnects them, until ctx ends or raft says that this server was removed. It
// looks at once when opened holds a token, so that a starting server does not lose a tick.
func (g *serving) watch(ctx context.Context, opened <-chan struct{}) (removed bool) {
	for {
		wait := g.look()
		if g.n.raft.State() == raft.Shutdown && ctx.Err() == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		case <-opened:
		}
	}
}

// look decides whether clients may be served, and tells the stream and the observer when that changes. It
// returns when to look again.
func (g *serving) look() (again time.Duration) {
	n := g.n
	contact := n.raft.HeardOfLeader()
	lacks, gone := n.raft.Lacks(n.id), n.gone()
	leading := n.term.Load() != nil && n.raft.Leads()
	birth := n.fsm.stream.Birth()
	applied := n.fsm.index.Load()
	outlasts := n.o.HeartbeatTimeout + servingGrace
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if leading {
		g.lastGood = now.Add(-n.o.HeartbeatTimeout) // as in contact
	}
	if contact.After(g.lastGood) {
		g.lastGood = contact
	}
	if applied >= g.behind {
		if g.behind > 0 {
			g.started = true
		}
		g.behind = 0
	}
	switch {
	case !lacks:
		g.removed = time.Time{}
	case g.removed.IsZero():
		g.removed = now
	}
	reason, alone := "", false
	switch {
	case g.final:
		reason = "this server is stopping"
	case lacks && now.Sub(g.removed) > removedGrace:
		reason = "this server was removed from the cluster"
	case g.lastGood.IsZero():
		reason = "no leader yet"
		alone = now.Sub(g.offSince) > outlasts
	case now.Sub(g.lastGood) > outlasts:
		reason = "no contact with a leader"
		alone = true
	case !g.started:
		reason = "catching up with the leader"
	case birth == 0:
		reason = "opening the request stream"
	case n.port != nil && !n.fsm.config.Load():
		reason = "publishing the members"
	case g.behind > 0 && now.Sub(g.since) > servingLag:
		reason = "far behind the leader"
	}
	g.setReadOnly(alone && n.o.ReadOnly)
	g.advised = ""
	switch {
	case alone && gone:
		g.advised = "; this server was removed from the cluster: stop it"
	case alone && now.Sub(g.offSince) >= adviceAfter:
		g.advised = n.adviceAlone()
	}
	reason += g.advised
	g.set(reason)
	if !g.on {
		return servingLook
	}
	return min(max(outlasts-now.Sub(g.lastGood), servingLook), n.raft.Beat(servingRest))
}

// gone reports whether the other servers removed this one while it was away, which its own log does not show.
func (n *Node) gone() bool {
	at := n.removed.Load()
	if at == 0 {
		return false
	}
	_, config := n.raft.Configuration()
	return at > config
}

// adviceAlone returns advice for an operator when this server has had no leader for long. Recovery abandons
// the data of the other servers, so it is not advised while one of them runs and merely refuses this one.
func (n *Node) adviceAlone() string {
	if n.port == nil || n.o.DataDir == "" {
		return ""
	}
	if err := n.port.Refusal(); err != nil {
		return fmt.Sprintf("; %v", err)
	}
	return "; start the servers that are down. If a majority of them is gone for good, stop this one and run: " +
		"zlockd recover --data-dir " + n.o.DataDir
}

// noLeader returns the error for the time without a leader. After adviceAfter it contains advice, because an
// operator must act.
func (g *serving) noLeader() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.advised != "" {
		return status.Errorf(status.NoMajority, "there is no leader%s", g.advised)
	}
	return errNoLeader
}

// errNoLeader is the answer while a leader may soon be elected.
var errNoLeader = status.Errorf(status.NoLeader, "there is no leader at the moment; try again")

// setReadOnly sets whether clients that ask for it may read without a leader. Reading is turned off, which
// closes the readers' connections, before clients are served again.
func (g *serving) setReadOnly(on bool) {
	if on == g.readOnly {
		return
	}
	g.readOnly = on
	g.n.log.Info("read-only mode", "on", on)
	g.n.o.Observer.ReadOnly(on)
}

// set lets clients in, if there is no reason not to. The observer is told under
// the lock, so that it hears of every change in order.
func (g *serving) set(reason string) {
	g.reason = reason
	serve := reason == ""
	if serve == g.on {
		return
	}
	g.on = serve
	g.n.fsm.stream.SetClosed(!serve)
	if serve {
		g.n.o.Measures.Unavailable.Took(time.Since(g.offSince))
	} else {
		g.offSince = time.Now()
	}
	switch {
	case serve:
		g.n.log.Info("serving clients")
	case g.final || g.n.closed.Load(): // on an operator's order; the other servers may be stopping too
		g.n.log.Info("not serving clients", "reason", reason)
	default:
		g.n.log.Warn("not serving clients", "reason", reason)
	}
	g.n.o.Observer.Serving(serve)
}

// end disconnects all clients, and admits none again.
func (g *serving) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.final = true
	g.setReadOnly(false)
	g.set("this server is stopping")
}

func (g *serving) reads() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.readOnly
}

// Serving reports whether clients may be served, and if not, why.
func (n *Node) Serving() (bool, string) {
	n.serving.mu.Lock()
	defer n.serving.mu.Unlock()
	return n.serving.on, n.serving.reason
}

// PingOK reports whether a ping of a session with this timeout may be answered: the leader must have
// acknowledged this server's touches recently. A server that is cut off must not answer its clients while
// their sessions expire and their locks pass on.
func (n *Node) PingOK(timeout time.Duration) bool {
	n.serving.mu.Lock()
	defer n.serving.mu.Unlock()
	return time.Since(n.serving.lastAck) < timeout/3
}

// confirmed receives whether a request of this server's own was applied.
type confirmed chan bool

// Done implements state.Waiter.
func (c confirmed) Done(o *state.Outcome, _ *state.State) { c <- !o.Unknown }

// Current waits until this server has applied all that any server of the cluster answered before the call,
// as a majority confirms: an entry goes through the log. It returns an error if ctx ends before that, or
// this server does not serve, because it has no leader or was removed.
func (n *Node) Current(ctx context.Context) error {
	done := make(confirmed, 1)
	failed := make(chan error, 1)
	go func() { // Propose may block until the stream has room or closes
		if err := n.Propose(state.Request{Op: state.OpBarrier}, done); err != nil {
			failed <- err
		}
	}()
	why := func(err error) error {
		if serving, reason := n.Serving(); !serving {
			return status.Errorf(status.NoLeader, "this server is not current: %s", reason)
		}
		return status.With(status.Interrupted,
			fmt.Errorf("no leader has confirmed that this server is current: %w", err))
	}
	select {
	case <-ctx.Done():
		return why(ctx.Err())
	case err := <-failed:
		return why(err)
	case ok := <-done:
		if !ok {
			return why(ErrClosed)
		}
		return nil
	}
}

// tellAck wakes the goroutines in Acknowledged. The caller holds g.mu.
func (g *serving) tellAck() {
	if g.ackNews != nil {
		close(g.ackNews)
		g.ackNews = nil
	}
}
