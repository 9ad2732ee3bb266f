package leading

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

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

// foundingVersion is the version that understands state.Founding.
const foundingVersion = 2

// understand() reports whether all voters say that they understand a version. A voter that does not answer
// may run an older release. Unlike allUnderstand it does not wait for observers: a cluster begins without
// them, and an observer of an older release then stops at the first entry.
func (o *Options) understand(ctx context.Context, version int) bool {
	ctx, cancel := context.WithTimeout(ctx, foundingWait)
	defer cancel()
	var others []peer.Place
	voters := map[uint32]bool{}
	for _, s := range o.Raft.Servers() {
		if id := peer.ParseID(s.ID); id != o.ID {
			others = append(others, peer.Place{ID: id, Addr: o.Instead(id, string(s.Address))})
			voters[id] = s.Suffrage == raft.Voter
		}
	}
	all := true
	for a := range o.Port.AskAll(ctx, others, peer.Question{}) {
		if a.Err != nil {
			all = all && !voters[a.ID] // an observer does not count: it may start later, with this release
		} else {
			all = all && a.Status.Version >= version
		}
	}
	return all
}

// TooOld returns an error if a server runs a release too old for a member: the log may hold any entry that
// all members understand, and a server stops at the first entry that it does not understand.
func (t *Term) TooOld(id uint32, st *peer.Status) error {
	if st.Version >= t.links.LeastVersion() {
		return nil
	}
	return fmt.Errorf(
		"server %d runs an older release, which does not understand what is in this cluster's log: "+
			"it would stop. Start it with the release that the members run", id)
}
