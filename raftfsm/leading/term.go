package leading

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// Term is one leadership of this server.
type Term struct {
	o *Options

	number    uint64 // raft's number of the term
	ctx       context.Context
	began     time.Time
	deadlines *apply.Deadlines
	reader    stream.Reader   // reader of this server's own stream
	work      signal.Signal   // sent when the batcher may find work
	acts      actQueue        // requests that the leader proposes itself
	links     followers.Links // streams of the other servers
	news      *followers.News // tells followers of commits
	members   signal.Signal   // sent when a member has announced itself
	notice    notice          // what is published about the members
	full      atomic.Bool     // whether requests that need more room are refused
	low       atomic.Bool     // whether a server's disk has little free space
	layout    oneLayout       // whether contenders of another layout are refused
	working   baton           // held by the batcher, except while it waits for a commit

	turn     int // which server's requests come first in the next entry
	requests int // how many requests are in the entry being filled, or in the last one
}

// baton is a lock. Its holder keeps it while it waits for raft to take an entry. It is not a mutex, because
// simulated time passes while a goroutine waits on a channel, but not while it waits for a mutex.
type baton chan struct{}

func (b baton) take() { b <- struct{}{} }

func (b baton) give() { <-b }

func (t *Term) wake() { t.work.Send() }

// ErrNotLeading is the answer to a server that wrongly believes this one to lead.
var ErrNotLeading = status.Errorf(status.NoLeader, "this server does not lead")

// propose() queues an act of the leader. Acts are conditional: Apply checks their conditions again.
func (t *Term) propose(r state.Request) {
	t.acts.add(r)
	t.wake()
}

// Number returns raft's number of the term.
func (t *Term) Number() uint64 { return t.number }

// Began returns when the term began.
func (t *Term) Began() time.Time { return t.began }

// Deadlines returns the deadlines of the sessions.
func (t *Term) Deadlines() *apply.Deadlines { return t.deadlines }

// Heard notes that a session was heard from. It returns false if this server does not hold its lease.
func (t *Term) Heard(session int64) bool {
	t.deadlines.Heard([]state.Touch{{Session: session}})
	return t.o.Raft.Leads() && t.ctx.Err() == nil
}

// Announced notes that a member has opened its stream, so that the members are published soon.
func (t *Term) Announced() { t.members.Send() }

// OpenStream proposes a server's request to open its stream.
func (t *Term) OpenStream(bl entries.Block) {
	t.acts.addOpen(bl)
	t.wake()
}

// Barrier proposes an entry without effect.
func (t *Term) Barrier() { t.propose(state.Request{Op: state.OpBarrier}) }

// notice is the leader's record of what it publishes about the members in /zookeeper/config. Raft's
// configuration determines the members. Their descriptions come from the operator's change. If the change
// has none, they come from the leader's own list; if that list has none, from the members themselves.
type notice struct {
	mu     sync.Mutex
	words  string    // the descriptions of the last change in this term; empty: those in the state
	last   string    // the text that was proposed last in this term
	silent time.Time // until this time more changes of the same group may follow
	by     uint32    // id of the server that made the last change
}
