package leading

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
)

// Port asks other servers.
type Port interface {
	Ask(ctx context.Context, id uint32, addr string, q peer.Question) (peer.Status, error)
	AskAll(ctx context.Context, servers []peer.Place, q peer.Question) <-chan peer.Answer
}

// Options hold what a term needs of this server, and its settings.
type Options struct {
	ID       uint32
	Raft     *consensus.Raft
	State    *apply.FSM
	Disk     *disk.Disk
	Port     Port // nil in a cluster of one server
	Promises *form.Promises
	Serving  *serving.Service
	Upkeep   *upkeep.Upkeep
	Relief   *elect.Relief

	Leadership *consensus.Leadership
	Go         func(func()) // starts a goroutine

	Instead     func(id uint32, addr string) string    // address at which a member is called
	Incarnation func(id uint32) string                 // returns the incarnation of a member's directory
	Opening     func() (bl entries.Block, wanted bool) // request to open this server's own stream
	AskLeader   func(context.Context, peer.Question) (peer.Status, error)
	// Heard appends the sessions that this server heard from since the last call.
	Heard func(list []state.Touch, all bool) []state.Touch

	Heartbeat         time.Duration // heartbeat timeout
	MinSessionTimeout time.Duration
	TouchEvery        time.Duration // time between reports of sessions
	SweepInterval     time.Duration
	EnforceQuota      bool
	NoTTL             bool
	OneLayout         bool
	Words             map[uint32]config.Server // the operator's descriptions of the servers

	Measures signal.Set
	Now      func() time.Time // wall clock
	Rand     io.Reader
	Log      *slog.Logger
}
