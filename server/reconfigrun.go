package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
)

const (
	reachTime     = time.Second            // a peer port that takes longer is not there
	joinTime      = 10 * time.Second       // the longest a server that joins is waited for
	joinPoll      = 50 * time.Millisecond  // how often it is asked whether it has caught up
	publishedTime = 5 * time.Second        // the longest wait for a change to show here
	publishedPoll = 5 * time.Millisecond   //
	leastPatience = 500 * time.Millisecond // with servers that join
)

// ChangeMember implements admin.Source.
func (i *Instance) ChangeMember(ctx context.Context, c admin.MemberChange) error {
	node := i.node.Load()
	if node == nil {
		return errors.New("this server has not joined its cluster yet")
	}
	switch c.Op {
	case "add":
		if host, port, err := net.SplitHostPort(c.Addr); err != nil || host == "" || !isPort(port) {
			return fmt.Errorf("peer address %q is not HOST:PORT, such as 10.0.0.4:2888", c.Addr)
		}
	case "remove":
		if err := i.mayLeave(ctx, node, c.ID); err != nil {
			return err
		}
	}
	return node.ChangeMember(ctx, raftfsm.MemberChange(c))
}

// mayLeave refuses to remove a voter whom the others could not do without: the
// change itself would stop the cluster.
func (i *Instance) mayLeave(ctx context.Context, node *raftfsm.Node, id uint32) error {
	to := members{}
	voter := false
	for _, m := range node.Status().Members {
		if m.ID == id {
			voter = m.Voter
		} else {
			to[m.ID] = member{id: m.ID, peer: m.PeerAddr, voter: m.Voter}
		}
	}
	if !voter {
		return nil
	}
	if to.voters() == 0 {
		return fmt.Errorf("server %d is the last one that votes", id)
	}
	if up := i.reachable(ctx, to); up <= to.voters()/2 {
		return fmt.Errorf("without server %d only %d of the %d voters can be reached, which is no majority: the cluster would stop", id, up, to.voters())
	}
	return nil
}

// reachable counts the voters whose peer port answers.
func (i *Instance) reachable(ctx context.Context, m members) (up int) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, s := range m {
		if !s.voter {
			continue
		}
		wg.Go(func() {
			if s.id != i.o.ID && !i.reaches(ctx, s.peer) {
				return
			}
			mu.Lock()
			up++
			mu.Unlock()
		})
	}
	wg.Wait()
	return up
}

func (i *Instance) reaches(ctx context.Context, addr string) bool {
	dial := i.o.Raft.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	c, err := dial(ctx, addr)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// reconfigure is the operation reconfig. Raft changes one server at a time, so
// that a request for several becomes several configurations, each of them seen
// by clients: first those who join, so that there are never fewer voters than
// before and after, then those who leave.
func (i *Instance) reconfigure(r ReconfigRequest) (code jute.ErrCode, known bool) {
	node := i.node.Load()
	switch {
	case node == nil:
		return 0, false
	case node.PeerAddr() == "":
		return jute.Unimplemented, true // alone, there is nothing to change
	case !i.reconfiguring.TryLock():
		return jute.ReconfigInProgress, true
	}
	defer i.reconfiguring.Unlock()
	from, to, code, why := plan(i.configText(), &r)
	if code != jute.OK {
		i.o.Logger.Info("reconfig refused", "code", code, "err", why)
		return code, true
	}
	ctx, cancel := context.WithTimeout(i.Server.ctx, joinTime)
	defer cancel()
	if err := i.joinable(ctx, from, to); err != nil {
		i.o.Logger.Info("reconfig refused", "code", jute.NewConfigNoQuorum, "err", err)
		return jute.NewConfigNoQuorum, true
	}
	if err := i.join(ctx, node, from, to, r.Patience); err != nil {
		i.o.Logger.Warn("reconfig given up", "err", err)
		return jute.NewConfigNoQuorum, i.rollBack(node, from, to)
	}
	for _, id := range from.ids(i.o.ID) {
		if _, stays := to[id]; stays {
			continue
		}
		if err := i.ChangeMember(i.Server.ctx, admin.MemberChange{Op: "remove", ID: id}); err != nil {
			i.o.Logger.Warn("reconfig: what has come of it is not known", "err", err)
			return 0, false
		}
		i.o.Logger.Info("members changed", "op", "remove", "peer", id)
	}
	return jute.OK, i.published(to)
}

// joinable looks whether the new configuration could work: those who would
// join are there, and with them a majority.
func (i *Instance) joinable(ctx context.Context, from, to members) error {
	for id, s := range to {
		if _, is := from[id]; !is && s.voter && !i.reaches(ctx, s.peer) {
			return fmt.Errorf("server %d does not answer at %s", id, s.peer)
		}
	}
	if up := i.reachable(ctx, to); up <= to.voters()/2 {
		return fmt.Errorf("only %d of the %d voters can be reached", up, to.voters())
	}
	return nil
}

// join adds and promotes. A server that is far behind is not waited for: the
// client has to keep its session. It can join as an observer first.
func (i *Instance) join(ctx context.Context, node *raftfsm.Node, from, to members, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, max(patience, leastPatience))
	defer cancel()
	for _, id := range to.ids(i.o.ID) {
		is, known := from[id]
		s := to[id]
		if !known {
			if err := node.ChangeMember(ctx, raftfsm.MemberChange{Op: "add", ID: id, Addr: s.peer}); err != nil {
				return fmt.Errorf("add server %d: %w", id, err)
			}
			i.o.Logger.Info("members changed", "op", "add", "peer", id)
		}
		if !s.voter || is.voter {
			continue
		}
		if err := promote(ctx, node, id); err != nil {
			return fmt.Errorf("promote server %d: %w", id, err)
		}
		i.o.Logger.Info("members changed", "op", "promote", "peer", id)
	}
	return nil
}

// promote gives a server its vote once it has caught up.
func promote(ctx context.Context, node *raftfsm.Node, id uint32) error {
	for {
		err := node.ChangeMember(ctx, raftfsm.MemberChange{Op: "promote", ID: id})
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

// rollBack removes those who were to join, and reports whether all is as before.
func (i *Instance) rollBack(node *raftfsm.Node, from, to members) bool {
	for id := range to {
		if _, was := from[id]; !was {
			// An error may mean that it was never added.
			_ = node.ChangeMember(i.Server.ctx, raftfsm.MemberChange{Op: "remove", ID: id})
		}
	}
	now := members{}
	for _, m := range node.Status().Members {
		now[m.ID] = member{id: m.ID, peer: m.PeerAddr, voter: m.Voter}
	}
	if !now.same(from) {
		i.o.Logger.Warn("reconfig: what was begun cannot be taken back")
		return false
	}
	return true
}

// published waits until the configuration shows here, as it must before the
// client is told. It does not where this server itself has left.
func (i *Instance) published(to members) bool {
	if _, stays := to[i.o.ID]; !stays {
		return false
	}
	end := time.NewTimer(publishedTime)
	defer end.Stop()
	for {
		if now, _ := parseConfig(i.configText()); now.same(to) {
			return true
		}
		select {
		case <-i.Server.ctx.Done():
			return false
		case <-end.C:
			return false
		case <-time.After(publishedPoll):
		}
	}
}

// configText is what clients read of the membership.
func (i *Instance) configText() (text string) {
	i.node.Load().View(func(st *raftfsm.State) {
		if info, ok := st.Tree().Get(configPath); ok {
			text = string(info.Data)
		}
	})
	return text
}

// removed reports whether the cluster has members, and this server is none.
func removed(n *raftfsm.Status) bool {
	is := func(m raftfsm.MemberStatus) bool { return m.ID == n.ID }
	return len(n.Members) > 0 && !slices.ContainsFunc(n.Members, is)
}
