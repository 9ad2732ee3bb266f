package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
)

const (
	joinTime      = 10 * time.Second       // the longest wait for a server that joins
	joinPoll      = 50 * time.Millisecond  // the time between two attempts to promote a server
	publishedTime = 5 * time.Second        // the longest wait until this server shows a change
	publishedPoll = 5 * time.Millisecond   // the time between two checks of what this server shows
	leastPatience = 500 * time.Millisecond // servers that join get at least this much time
	reachTime     = time.Second            // a server that needs longer to answer counts as not running
)

// Node is this server's part in the cluster, as far as a wish needs it.
type Node interface {
	ID() uint32
	// Config returns the list of members that clients read at this server.
	Config() string
	// Servers lists raft's members.
	Servers() []status.Member
	// Standing asks the server at an address whether it is the server `id`, and whether it follows the leader.
	Standing(ctx context.Context, id uint32, addr string) (there, follows bool)
	ChangeMember(context.Context, change.Change) error
}

// ErrUnknown says that the result of a wish is unknown.
var ErrUnknown = errors.New("the outcome is not known")

// Carry carries out a wish. Raft changes one server at a time, so a wish about several servers takes several
// changes. Clients see only the last configuration. It must have at least `least` voters.
func Carry(ctx context.Context, n Node, w Wish, least int, log *slog.Logger) error {
	asks, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	for {
		err := once(ctx, asks, n, &w, least, log)
		switch {
		case status.Of(err) != status.Stale || errors.Is(err, ErrUnknown):
			return err
		case w.Version != -1:
			return fmt.Errorf("%w: %w", ErrVersion, err)
		}
		select { // then try again: this server's list was old, and it catches up now
		case <-asks.Done():
			return status.With(status.Changing, err)
		case <-time.After(publishedPoll):
		}
	}
}

// once() checks a wish, and carries it out. As in ZooKeeper, the first checks are those that need no other
// server. Then it checks the client's rights, and last what other servers must answer.
func once(ctx, asks context.Context, n Node, w *Wish, least int, log *slog.Logger) (err error) {
	t := transition{plan: plan{own: n.ID()}, ctx: ctx, node: n, log: log, added: map[uint32]bool{}}
	if t.from, t.to, t.since, err = goal(n.Config(), w, least); err != nil {
		return err
	}
	if !w.May {
		return status.Errorf(status.NotAllowed, "the client may not write %s", config.Path)
	}
	t.ask(asks)
	if err := t.safe(); err != nil {
		return err
	}
	if err := t.possible(); err != nil {
		return fmt.Errorf("%w: %w", ErrArgument, err)
	}
	return t.carryOut(asks, max(w.Patience, leastPatience))
}

// transition carries out a plan.
type transition struct {
	plan
	ctx   context.Context // for all changes after the servers have joined; those have a time limit
	node  Node
	log   *slog.Logger
	since int64           // the version of the old configuration
	begun bool            // raft has made at least one change
	added map[uint32]bool // servers that this transition adds; false: the outcome is not known
}

// ask asks all servers of both configurations how they are. As in ZooKeeper, a majority of the new voters
// must run, and servers without a vote need not.
func (t *transition) ask(ctx context.Context) {
	t.ready, t.runs = map[uint32]bool{}, map[uint32]bool{}
	list := t.from.list(false)
	for id, s := range t.to {
		if t.from[id].Peer != s.Peer {
			list = append(list, s)
		}
	}
	for n, found := range standings(ctx, t.node, list) {
		id := list[n].ID
		_, was := t.from[id]
		if n < len(t.from) {
			t.runs[id] = found.follows
		}
		if t.to[id].Voter && (found.follows || !was && found.there) {
			t.ready[id] = true
		}
	}
}

// carryOut makes the changes. If one fails and the changes before it cannot be undone, the outcome is
// unknown: clients must then read the configuration.
func (t *transition) carryOut(ctx context.Context, patience time.Duration) error {
	if err := t.join(ctx, patience); err != nil {
		switch code := status.Of(err); {
		case (code == status.Changing || code == status.Stale) && !t.begun:
			return err
		case code == status.IsMember && !t.begun: // another operator has added it just before
			return status.With(status.Stale, err)
		case !t.rollBack():
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		case code == status.IsMember:
			return status.With(status.Changing, err)
		}
		return status.With(status.Unsafe, err)
	}
	rest := t.rest()
	if len(rest) == 0 {
		rest = []change.Change{{Op: change.Describe, ID: t.own}}
	}
	for n, m := range rest {
		m.More = n < len(rest)-1
		if err := t.step(t.ctx, m); err != nil {
			switch status.Of(err) {
			case status.Changing, status.Stale, status.Unsafe: // refused by the leader, so nothing has changed
				if !t.begun {
					return err
				}
			}
			return fmt.Errorf("%s server %d: %w: %w", m.Op, m.ID, ErrUnknown, err)
		}
	}
	if !t.published() {
		return fmt.Errorf("%w: this server does not show the new members yet", ErrUnknown)
	}
	return nil
}

// step makes one change of raft's configuration.
func (t *transition) step(ctx context.Context, m change.Change) error {
	m.By, m.Since, m.Words = t.own, t.since, t.to.text()
	err := t.node.ChangeMember(ctx, m)
	code := status.Of(err)
	if m.Op == change.Add && (code == "" || code == status.Interrupted) {
		t.added[m.ID] = err == nil
	}
	if err == nil {
		t.begun = true
		t.log.Info("members changed", "op", m.Op, "peer", m.ID)
	}
	return err
}

// join() makes the changes that take no server and no vote away. It does without a server that cannot be
// promoted in time. If the servers that run are then no majority, it returns an error.
func (t *transition) join(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, m := range t.joins() {
		m.More = true
		if m.Op != change.Promote {
			if err := t.step(ctx, m); err != nil {
				return err
			}
		} else if err := t.promote(ctx, m); err != nil {
			if delete(t.ready, m.ID); t.safe() != nil {
				return fmt.Errorf("promote server %d: %w", m.ID, err)
			}
		}
	}
	return nil
}

// promote gives a server its vote as soon as the server has caught up.
func (t *transition) promote(ctx context.Context, m change.Change) error {
	for {
		err := t.step(ctx, m)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(joinPoll):
		}
	}
}

// rollBack removes the servers that joined, and reports whether the old configuration is in force again. It
// leaves a server that another operator has added.
func (t *transition) rollBack() bool {
	now := configOf(t.node.Servers())
	for _, id := range t.to.ids(0) {
		if t.added[id] && now[id].Peer == t.to[id].Peer {
			// Ignore the error: the list that is read below shows whether the server is gone.
			_ = t.node.ChangeMember(t.ctx, change.Change{Op: change.Remove, ID: id})
		}
	}
	now = configOf(t.node.Servers())
	maps.DeleteFunc(now, func(id uint32, s config.Server) bool {
		_, was := t.from[id]
		_, ours := t.added[id]
		return !was && (!ours || s.Peer != t.to[id].Peer)
	})
	if !now.same(t.from) {
		t.log.Warn("reconfig: the change that was begun could not be undone")
		return false
	}
	return true
}

// published waits until this server shows the new configuration: when the client gets its answer, it may read
// it here. A server that leaves does not wait, because it hears of no configuration after its removal.
func (t *transition) published() bool {
	end := time.NewTimer(publishedTime)
	defer end.Stop()
	for {
		if now, version := ParseConfig(t.node.Config()); version != t.since && now.same(t.to) {
			return true
		}
		if _, stays := t.to[t.own]; !stays {
			return false
		}
		select {
		case <-t.ctx.Done():
			return false
		case <-end.C:
			return false
		case <-time.After(publishedPoll):
		}
	}
}

// standing is what Node.Standing answers about a server.
type standing struct{ there, follows bool }

// standings asks several servers for their standing, all at the same time. A server that takes longer than
// reachTime counts as not running.
func standings(ctx context.Context, node Node, servers []config.Server) []standing {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	found := make([]standing, len(servers))
	var wg sync.WaitGroup
	for n, s := range servers {
		wg.Go(func() { found[n].there, found[n].follows = node.Standing(ctx, s.ID, s.Peer) })
	}
	wg.Wait()
	return found
}
