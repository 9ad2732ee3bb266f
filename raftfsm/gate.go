package raftfsm

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// gate decides whether clients may be served. A server that has lost its
// leader, or fallen far behind, lets its clients go in time, so that they find
// a better one before their sessions end.
type gate struct {
	mu       sync.Mutex
	serving  bool
	final    bool   // never again
	reason   string // why not serving
	lastGood time.Time
	lastAck  time.Time // sending time of the newest acknowledged touch message
	started  bool      // has once applied all that was acknowledged when it began
	behind   uint64    // index of the leader we have not reached yet
	since    time.Time // since when
}

const (
	gateEvery = 20 * time.Millisecond
	// gateGrace is beyond the heartbeat timeout: an election without a word from
	// the old leader is over by then, and clients can still find another server.
	gateGrace    = 1500 * time.Millisecond
	gateLagLimit = 10 * time.Second // of applying less than the leader has
)

// contact notes that this server leads, and holds its lease. What it last heard
// of a majority may be as old as that.
func (g *gate) contact(lease time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.lastGood, g.lastAck, g.started, g.behind = now.Add(-lease), now, true, 0
}

// acked notes that the leader acknowledged a touch message sent at that time,
// and how far the leader was.
func (g *gate) acked(n *Node, sent time.Time, leaderIndex uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastAck = sent
	applied := n.fsm.index.Load()
	switch {
	case applied >= leaderIndex:
		g.started, g.behind = true, 0
	case g.behind == 0 || applied >= g.behind:
		g.behind, g.since = leaderIndex, time.Now()
	}
}

// watchGate opens and shuts the gate.
func (n *Node) watchGate() {
	tick := time.NewTicker(gateEvery)
	defer tick.Stop()
	for {
		n.gate.look(n)
		if n.raft.State() == raft.Shutdown && n.ctx.Err() == nil {
			n.die(errors.New("this server was removed from the cluster"))
			return
		}
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		case <-n.gateNews():
		}
	}
}

// gateNews is ready while the gate waits for the stream to open, so that a
// starting server does not lose a tick.
func (n *Node) gateNews() <-chan struct{} {
	if n.gate.isServing() {
		return nil
	}
	return n.opened
}

func (g *gate) isServing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.serving
}

// look decides, and tells the stream and the observer when that changes.
func (g *gate) look(n *Node) {
	contact := n.raft.LastContact()
	leading := n.term.Load() != nil && n.raft.State() == raft.Leader
	birth := n.fsm.stream.birthNow()
	applied := n.fsm.index.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if leading {
		g.lastGood = now.Add(-n.o.HeartbeatTimeout) // the lease
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
	reason := ""
	switch {
	case g.final:
		reason = "this server is stopping"
	case g.lastGood.IsZero():
		reason = "no leader yet"
	case now.Sub(g.lastGood) > n.o.HeartbeatTimeout+gateGrace:
		reason = "no contact with a leader"
	case !g.started:
		reason = "catching up with the leader"
	case birth == 0:
		reason = "opening the request stream"
	case n.port != nil && !n.fsm.config.Load():
		reason = "publishing the members"
	case g.behind > 0 && now.Sub(g.since) > gateLagLimit:
		reason = "far behind the leader"
	}
	g.set(n, reason)
}

// set changes the gate's position. The observer is told under the gate's lock,
// so that it hears of every change in order.
func (g *gate) set(n *Node, reason string) {
	g.reason = reason
	if serve := reason == ""; serve != g.serving {
		g.serving = serve
		n.fsm.stream.setClosed(!serve)
		if serve {
			n.log.Info("serving clients")
		} else {
			n.log.Warn("not serving clients", "reason", reason)
		}
		if n.o.Observer != nil {
			n.o.Observer.Serving(serve)
		}
	}
}

// shut closes the gate for good.
func (g *gate) shut(n *Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.final = true
	g.set(n, "this server is stopping")
}

// Serving reports whether clients may be served, and if not, why.
func (n *Node) Serving() (bool, string) {
	n.gate.mu.Lock()
	defer n.gate.mu.Unlock()
	return n.gate.serving, n.gate.reason
}

// PingOK reports whether the leader knows of this server's clients recently
// enough to answer a ping of a session with this timeout. A server cut off
// from the leader must not keep its clients calm while their locks are given
// away.
func (n *Node) PingOK(timeout time.Duration) bool {
	n.gate.mu.Lock()
	defer n.gate.mu.Unlock()
	return time.Since(n.gate.lastAck) < timeout/3
}
