package leading

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// termOf returns term 5 of server 1, which has a state and no other servers.
func termOf(t *testing.T, a *applied.State) *Term {
	t.Helper()
	o := &Options{ID: 1, State: a.FSM, Incarnation: incarnations(a), Instead: func(_ uint32,
		addr string) string {
		return addr
	},
		Disk: memoryDisk(t), Upkeep: upkeep.New(upkeep.Options{View: a.View}),
		Go:                func(do func()) { go do() },
		MinSessionTimeout: 4 * time.Second, TouchEvery: 250 * time.Millisecond, Now: time.Now,
		Rand: rand.Reader,
		Log:  slog.New(slog.DiscardHandler)}
	return &Term{o: o, number: 5, ctx: t.Context(), deadlines: a.Lead(), work: signal.New(),
		members: signal.New()}
}

// incarnations returns what a state knows of the servers' directories.
func incarnations(a *applied.State) func(uint32) string {
	return func(id uint32) (incarnation string) {
		a.View(func(s *state.State) {
			m, _ := s.Member(id)
			incarnation = m.Incarnation
		})
		return incarnation
	}
}

func memoryDisk(t *testing.T) *disk.Disk {
	t.Helper()
	d := must.Get(disk.Open(disk.Options{Server: 1, Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) { t.Error(err) }}))(t)
	t.Cleanup(func() { expect.OK(t, d.Close()) })
	return d
}

// raftOf starts the raft of server 1, which leads a cluster of one and applies its log to f.
func raftOf(t *testing.T, f *apply.FSM) *consensus.Raft {
	t.Helper()
	self := raft.Server{ID: "1", Address: "127.0.0.1:1", Suffrage: raft.Voter}
	ctx, cancel := context.WithCancel(context.Background())
	leads := consensus.NewLeadership()
	go leads.Listen(ctx)
	r := must.Get(consensus.Start(consensus.Options{ID: 1, Self: self.Address,
		HeartbeatTimeout: 30 * time.Millisecond,
		TrailingLogs:     100, Disk: memoryDisk(t), Leadership: leads, Log: slog.New(slog.DiscardHandler),
		Closed: new(atomic.Bool)}, f, &raft.Configuration{Servers: []raft.Server{self}}))(t)
	t.Cleanup(func() { expect.OK(t, r.Shutdown().Error()); cancel() })
	must.Await(t, "it leads", time.Minute, r.Leads)
	return r
}

// port asks other servers. All of them give the same answer.
type port struct {
	says peer.Status
	err  error
}

func (p port) Ask(context.Context, uint32, string, peer.Question) (peer.Status, error) {
	return p.says, p.err
}

func (p port) AskAll(_ context.Context, places []peer.Place, _ peer.Question) <-chan peer.Answer {
	answers := make(chan peer.Answer, len(places))
	defer close(answers)
	for _, at := range places {
		answers <- peer.Answer{Place: at, Status: p.says, Err: p.err}
	}
	return answers
}
