package leading

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// latePort asks a server that is down until the test sets the field `up`.
type latePort struct {
	port
	up atomic.Bool
}

func (p *latePort) AskAll(ctx context.Context, at []peer.Place, q peer.Question) <-chan peer.Answer {
	if p.up.Load() {
		return port{says: peer.Status{Version: TicketsVersion}}.AskAll(ctx, at, q)
	}
	return port{err: errors.New("it is down")}.AskAll(ctx, at, q)
}

// Until each server has said that it can refuse contenders of another layout, the cluster accepts them. The
// leader says which server it waits for. The next leader does not ask again.
func TestOneLayoutWaitsForAServer(t *testing.T) {
	t.Parallel()
	a := applied.New()
	tm := termOf(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := new(latePort)
	tm.o.Raft, tm.o.Port, tm.ctx = raftOf(t, a.FSM), other, ctx
	must.OK(t, tm.o.Raft.AddNonvoter("2", "there", 0, 0).Error())
	tm.layout.begin(tm)
	expect.Equal(t, tm.LayoutWaits(), "", "it is not asked for")
	tm.o.OneLayout = true
	tm.layout.begin(tm)
	must.Await(t, "it says what it waits for", time.Minute, func() bool { return tm.LayoutWaits() != "" })
	expect.Has(t, tm.LayoutWaits(), "all servers must be up")
	expect.That(t, !tm.layout.on.Load(), "it is on without the word of a server")
	other.up.Store(true)
	must.Await(t, "it is on", time.Minute, tm.layout.on.Load)
	expect.Equal(t, tm.LayoutWaits(), "")
	next := termOf(t, a)
	next.o.OneLayout = true
	next.layout.begin(next) // a later leader asks no server
	expect.That(t, next.layout.on.Load(), "the next leader waits")
	expect.OK(t, next.AllowTickets(t.Context()), "they are allowed")
}

// A cluster has no tickets while a server's release does not know them.
func TestTicketsNeedEveryServer(t *testing.T) {
	t.Parallel()
	a := applied.New()
	tm := termOf(t, a)
	tm.o.Raft, tm.o.Port = raftOf(t, a.FSM), port{says: peer.Status{Version: TicketsVersion - 1}}
	must.OK(t, tm.o.Raft.AddNonvoter("2", "there", 0, 0).Error())
	err := tm.AllowTickets(t.Context())
	must.Fails(t, err, "a server of an older release")
	expect.Equal(t, err.Error(), ErrOlder(2).Error())
	expect.That(t, !tm.o.State.HasTickets(), "tickets are allowed")
}

// The leader asks the members for their versions at their present addresses, before a cluster begins and
// later. A voter that does not answer counts as a voter of an older release. Before the cluster begins,
// observers need not answer.
func TestMembersAreAskedWhereTheyAre(t *testing.T) {
	t.Parallel()
	a := applied.New()
	tm := termOf(t, a)
	moved := movedPort{at: "new", says: port{says: peer.Status{Version: TicketsVersion}}}
	tm.o.Raft, tm.o.Port = raftOf(t, a.FSM), moved
	tm.o.Instead = func(uint32, string) string { return "new" }
	must.OK(t, tm.o.Raft.AddNonvoter("2", "old", 0, 0).Error())
	expect.OK(t, tm.o.allUnderstand(t.Context(), TicketsVersion))
	moved.silent = true
	tm.o.Port = moved
	expect.Fails(t, tm.o.allUnderstand(t.Context(), TicketsVersion), "an observer is silent")
	expect.That(t, tm.o.understand(t.Context(), foundingVersion), "a silent observer keeps a cluster back")
	moved.silent, moved.says.says.Version = false, foundingVersion-1
	tm.o.Port = moved
	expect.That(t, !tm.o.understand(t.Context(), foundingVersion), "an older observer is passed over")
}

// movedPort answers at one address only.
type movedPort struct {
	at     string
	silent bool
	says   port
}

func (p movedPort) Ask(ctx context.Context, id uint32, at string, q peer.Question) (peer.Status, error) {
	if p.silent || at != p.at {
		return peer.Status{}, errors.New("nothing is there")
	}
	return p.says.Ask(ctx, id, at, q)
}

func (p movedPort) AskAll(ctx context.Context, places []peer.Place, q peer.Question) <-chan peer.Answer {
	answers := make(chan peer.Answer, len(places))
	defer close(answers)
	for _, at := range places {
		st, err := p.Ask(ctx, at.ID, at.Addr, q)
		answers <- peer.Answer{Place: at, Status: st, Err: err}
	}
	return answers
}
