package leading

import (
	"context"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// begin asks the members whether they understand OneLayout, unless the state already has their answer. The
// term has applied all earlier entries by now.
func (l *oneLayout) begin(t *Term) {
	if !t.o.OneLayout {
		return
	}
	if t.o.State.HasTickets() {
		l.on.Store(true)
		return
	}
	t.o.Go(func() {
		for more := true; more; more = signal.Pause(t.ctx, time.Second) {
			err := t.AllowTickets(t.ctx)
			if err == nil {
				l.why.Store(nil)
				l.on.Store(true)
				return
			}
			why := err.Error()
			if old := l.why.Swap(&why); t.ctx.Err() == nil && (old == nil || *old != why) {
				t.o.Log.Warn("--one-layout has no effect yet: several layouts are still accepted", "reason", why)
			}
		}
	})
}

// waits() returns why Options.OneLayout has no effect yet. It returns "" if the option has its effect.
func (l *oneLayout) waits() string {
	if why := l.why.Load(); why != nil {
		return *why
	}
	return ""
}

// LayoutWaits returns why Options.OneLayout has no effect yet. It returns "" if the option has its effect.
func (t *Term) LayoutWaits() string { return t.layout.waits() }

// TicketsVersion is the version that understands state.Ticketing.
const TicketsVersion = 3

// AllowTickets allows tickets in the cluster, once every member says that it understands them. It returns
// when this server has applied the entry that allows them.
func (t *Term) AllowTickets(ctx context.Context) error {
	if t.o.State.HasTickets() {
		return nil
	}
	if err := t.o.allUnderstand(ctx, TicketsVersion); err != nil {
		return err
	}
	entry := state.Ticketing(t.options(), t.o.Now().UnixMilli())
	if err := consensus.Await(ctx, t.o.Raft.Apply(entry, time.Second)); err != nil {
		return err
	}
	if !t.o.State.Wait(ctx.Done(), t.o.State.HasTickets) {
		return status.With(status.Interrupted, ctx.Err())
	}
	return nil
}

// ErrOlder is the error of a server whose release does not know tickets.
func ErrOlder(id uint32) error {
	return fmt.Errorf("server %d runs a release that knows neither tickets nor --one-layout: upgrade it first",
		id)
}

// allUnderstand returns an error unless every member says that it understands a version. A member that does
// not understand the version would stop at an entry of that version.
func (o *Options) allUnderstand(ctx context.Context, version int) error {
	if o.Port == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, foundingWait)
	defer cancel()
	var others []peer.Place
	for _, s := range o.Raft.Servers() {
		if id := peer.ParseID(s.ID); id != o.ID {
			others = append(others, peer.Place{ID: id, Addr: o.Instead(id, string(s.Address))})
		}
	}
	var err error
	for a := range o.Port.AskAll(ctx, others, peer.Question{}) {
		switch {
		case a.Err != nil:
			err = fmt.Errorf("server %d does not say which release it runs, and all servers must be up for "+
				"the first "+
				"ticket and for --one-layout: %w", a.ID, a.Err)
		case a.Status.Version < version:
			err = ErrOlder(a.ID)
		}
	}
	return err
}
