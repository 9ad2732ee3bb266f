package raftfsm

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// term is one leadership of this server.
type term struct {
	n       *Node
	number  uint64 // raft's
	ctx     context.Context
	began   time.Time
	tracker *apply.Deadlines
	reader  stream.Reader   // of our own stream
	work    signal.Signal   // sent when the batcher may find work
	acts    actQueue        // what the leader proposes on its own account
	links   followers.Links // streams of the other servers
	news    *followers.News // of commits
	members signal.Signal   // sent when a member has announced itself
	notice  notice          // what is published about the members
	full    atomic.Bool     // requests that need more room are refused
	low     atomic.Bool     // because a disk is low
	layout  oneLayout       // whether contenders of another layout are refused
	working baton           // held by the batcher, except while it waits for raft

	turn     int // which server begins to fill the next entry
	requests int // in the entry being filled, or filled last
}

// baton is a lock that is held while its holder waits for raft to take an entry. It is not a mutex,
// because simulated time passes while a goroutine waits on a channel, but not while it waits for a
// mutex.
type baton chan struct{}

func (b baton) take() { b <- struct{}{} }

func (b baton) give() { <-b }

func (t *term) wake() { t.work.Send() }

// errNotLeading is the answer to a server that wrongly believes this one to lead.
var errNotLeading = status.Errorf(status.NoLeader, "this server does not lead")

// propose queues an act of the leader. Acts are conditional: Apply checks their conditions again.
func (t *term) propose(r state.Request) {
	t.acts.add(r)
	t.wake()
}

// addBarrier adds an entry without effect to the log, if this server leads.
func (n *Node) addBarrier() {
	if t := n.term.Load(); t != nil {
		t.propose(state.Request{Op: state.OpBarrier})
	}
}
