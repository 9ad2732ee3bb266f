// Package serving decides whether the clients of a server are served: they are served while the server hears
// from a leader and does not lag far behind.
//
// The lock of the [Service] guards all fields that change. [Clients] are told of changes under this lock, in
// order. A goroutine may take the stream's lock while it holds this lock, but never the other way round.
package serving

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// Clients learns whether the clients are served.
type Clients interface {
	// The Service calls Serving when it begins or stops to serve clients. When the argument is false, every
	// client connection must be closed.
	Serving(bool)
	// The argument of ReadOnly says whether clients that asked for it may read this server's state, although
	// the server knows no leader. It is never true while clients are served.
	ReadOnly(bool)
}

// Raft has the calls of raft that the Service needs.
type Raft interface {
	HeardOfLeader() time.Time
	Lacks(id uint32) bool // whether server id is not among the members
	Leads() bool
	State() raft.RaftState
	Beat(d time.Duration) time.Duration
}

// Options are the arguments of New.
type Options struct {
	ID          uint32
	Heartbeat   time.Duration // the heartbeat timeout
	ReadOnly    bool          // whether clients that ask for it may read while this server knows no leader
	DataDir     string        // empty: this server keeps its data in memory
	Clients     Clients
	Unavailable signal.Measure
	Leads       func() bool  // whether a term of this server has begun and is not over
	Gone        func() bool  // whether the other servers removed this server while it was away
	Closed      *atomic.Bool // set when this server is told to stop
	Log         *slog.Logger
}

// Service decides whether clients may be served. A server that has lost its leader, or lags far behind,
// disconnects its clients early enough for them to find another server before their sessions end.
type Service struct {
	o     Options
	raft  Raft
	state *apply.FSM
	port  *peer.Port // nil in a cluster of one server

	mu       sync.Mutex // guards the fields below
	on       bool
	readOnly bool          // whether clients that ask for it may read without a leader
	final    bool          // whether clients will never be served again
	reason   string        // why clients are not served
	lastGood time.Time     // when this server last heard from a leader or, as the leader, from a majority
	lastAck  time.Time     // when this server sent the newest touch message that was acknowledged
	ackIndex uint64        // the leader's log index in the newest acknowledgement; 0: this server was the leader
	ackNews  chan struct{} // closed when lastAck changes; nil: no goroutine waits for that
	started  bool          // whether this server has caught up once since it started
	behind   uint64        // a log index of the leader that this server has not applied yet; 0: none known
	since    time.Time     // when `behind` was set
	// when this server's log began to say that the server is not a member; zero: it does not say so
	removed  time.Time
	offSince time.Time // when this server started, or last stopped serving
	advised  string    // advice to the operator about a leader that stays away; empty: there is none
}

// New returns the Service of a server that starts.
func New(o Options) *Service { return &Service{o: o, offSince: time.Now()} }

// Use sets the parts that Watch asks; `port` is nil in a cluster of one.
func (g *Service) Use(r Raft, f *apply.FSM, port *peer.Port) { g.raft, g.state, g.port = r, f, port }

const (
	lookOff = 20 * time.Millisecond  // the time between calls of look() while clients are not served
	lookOn  = 250 * time.Millisecond // the longest time between calls of look() while clients are served
	// A server without a leader serves clients for the heartbeat timeout and `grace`. An election is over in
	// this time, and clients can still find another server before their sessions end.
	grace = 1500 * time.Millisecond
	// removedGrace is how long a removed server still serves clients: one of them may have asked for the
	// removal, and must get the reply.
	removedGrace = 200 * time.Millisecond
	mostLag      = 10 * time.Second // how long a server that serves clients may lag behind the leader's log
	// If there is no leader for adviceAfter, this server advises the operator. An election takes far less
	// time.
	adviceAfter = 30 * time.Second
)

// Contact notes that this server leads and holds its lease: it heard from a majority within the last
// heartbeat timeout.
func (g *Service) Contact() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.lastGood, g.lastAck, g.started, g.behind = now.Add(-g.o.Heartbeat), now, true, 0
	g.ackIndex = 0
	g.tellAck()
}

// Acked notes that the leader acknowledged a touch message. `sent` is when this server sent the message;
// `leaderIndex` is the index of the last log entry that the leader had applied.
func (g *Service) Acked(sent time.Time, leaderIndex uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastAck, g.ackIndex = sent, leaderIndex
	g.tellAck()
	applied := g.state.Index()
	switch {
	case applied >= leaderIndex:
		g.started, g.behind = true, 0
	case g.behind == 0 || applied >= g.behind:
		g.behind, g.since = leaderIndex, time.Now()
	}
}

// Watch admits clients and disconnects them, until ctx ends or raft says that this server was removed. A
// token in `opened` makes it call look() at once, so that a starting server does not wait for the next tick.
func (g *Service) Watch(ctx context.Context, opened <-chan struct{}) (removed bool) {
	for {
		wait := g.look()
		if g.raft.State() == raft.Shutdown && ctx.Err() == nil {
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

// look() decides whether clients may be served, and tells the stream and o.Clients when that changes. It
// returns the time until look() must be called again.
func (g *Service) look() (again time.Duration) {
	contact := g.raft.HeardOfLeader()
	lacks, gone := g.raft.Lacks(g.o.ID), g.o.Gone()
	leading := g.o.Leads() && g.raft.Leads()
	birth := g.state.Stream.Birth()
	applied := g.state.Index()
	outlasts := g.o.Heartbeat + grace
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if leading {
		g.lastGood = now.Add(-g.o.Heartbeat) // the lease may have been confirmed this long ago, as in Contact
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
	case g.port != nil && !g.state.Published():
		reason = "publishing the members"
	case g.behind > 0 && now.Sub(g.since) > mostLag:
		reason = "far behind the leader"
	}
	g.setReadOnly(alone && g.o.ReadOnly)
	g.advised = ""
	switch {
	case alone && gone:
		g.advised = "; this server was removed from the cluster: stop it"
	case alone && now.Sub(g.offSince) >= adviceAfter:
		g.advised = g.adviceAlone()
	}
	reason += g.advised
	g.set(reason)
	if !g.on {
		return lookOff
	}
	return min(max(outlasts-now.Sub(g.lastGood), lookOff), g.raft.Beat(lookOn))
}

// adviceAlone returns advice for an operator when this server has had no leader for long. The command `zlockd
// recover` abandons the data of the other servers. So adviceAlone does not advise this command while another
// server runs and only refuses this server.
func (g *Service) adviceAlone() string {
	if g.port == nil || g.o.DataDir == "" {
		return ""
	}
	if err := g.port.Refusal(); err != nil {
		return fmt.Sprintf("; %v", err)
	}
	return "; start the servers that are down. If a majority of them is gone for good, stop this one and run: " +
		"zlockd recover --data-dir " + g.o.DataDir
}

// NoLeader returns the error for requests while there is no leader. After adviceAfter the error contains
// advice, because an operator must act.
func (g *Service) NoLeader() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.advised != "" {
		return status.Errorf(status.NoMajority, "there is no leader%s", g.advised)
	}
	return errNoLeader
}

// errNoLeader is the answer while a leader may soon be elected.
var errNoLeader = status.Errorf(status.NoLeader, "there is no leader at the moment; try again")

// setReadOnly sets whether clients that ask for it may read without a leader. Turning it off closes the
// readers' connections, so look() calls setReadOnly before it serves clients again.
func (g *Service) setReadOnly(on bool) {
	if on == g.readOnly {
		return
	}
	g.readOnly = on
	g.o.Log.Info("read-only mode", "on", on)
	g.o.Clients.ReadOnly(on)
}

// set() begins to serve clients if `reason` is empty, and otherwise stops. It tells o.Clients while the lock
// is held, so that o.Clients hears of every change in order.
func (g *Service) set(reason string) {
	g.reason = reason
	serve := reason == ""
	if serve == g.on {
		return
	}
	g.on = serve
	g.state.Stream.SetClosed(!serve)
	if serve {
		g.o.Unavailable.Took(time.Since(g.offSince))
	} else {
		g.offSince = time.Now()
	}
	switch {
	case serve:
		g.o.Log.Info("serving clients")
	// No warning: an operator ordered the stop, and the other servers may be stopping, too.
	case g.final || g.o.Closed.Load():
		g.o.Log.Info("not serving clients", "reason", reason)
	default:
		g.o.Log.Warn("not serving clients", "reason", reason)
	}
	g.o.Clients.Serving(serve)
}

// End disconnects all clients for good.
func (g *Service) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.final = true
	g.setReadOnly(false)
	g.set("this server is stopping")
}

// Reads reports whether clients that ask for it may read without a leader.
func (g *Service) Reads() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.readOnly
}

// On reports whether clients may be served and, if not, the reason.
func (g *Service) On() (bool, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.on, g.reason
}

// PingOK reports whether this server may answer a ping of a session with this timeout: the leader must have
// acknowledged this server's touches recently. A server that is cut off from the leader must not answer its
// clients, because their sessions expire and other clients get their locks.
func (g *Service) PingOK(timeout time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.lastAck) < timeout/3
}

// tellAck wakes the goroutines in Acknowledged. The caller holds g.mu.
func (g *Service) tellAck() {
	if g.ackNews != nil {
		close(g.ackNews)
		g.ackNews = nil
	}
}

// Acknowledged waits until enough() returns true. It calls enough() with the time at which this server sent
// the newest touches that the leader has acknowledged. The leader knows of every session that this server had
// heard from by that time. When Acknowledged returns, this server has also applied everything that the leader
// had applied at that acknowledgement. So if a ticket was given back at another server, this server does not
// treat it as still held.
func (g *Service) Acknowledged(ctx context.Context, enough func(sent time.Time) bool) error {
	for {
		g.mu.Lock()
		sent, upTo := g.lastAck, g.ackIndex
		if g.ackNews == nil {
			g.ackNews = make(chan struct{})
		}
		news := g.ackNews
		g.mu.Unlock()
		if enough(sent) {
			if g.state.Wait(ctx.Done(), func() bool { return g.state.Index() >= upTo }) {
				return nil
			}
			return ctx.Err()
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
