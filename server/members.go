package server

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/members"
)

// Members implements admin.Source.
func (i *Instance) Members(ctx context.Context) (*status.Members, error) {
	node := i.node.Load()
	if node == nil {
		return &status.Members{ID: i.o.ID}, errNotJoined
	}
	return node.Members(ctx)
}

// Probe implements admin.Source.
func (i *Instance) Probe(ctx context.Context, id uint32, addr string) (*status.Found, error) {
	node := i.node.Load()
	if node == nil {
		return nil, errNotJoined
	}
	if err := checkPeerAddr(addr); err != nil {
		return nil, err
	}
	return node.Probe(ctx, id, addr)
}

func checkPeerAddr(addr string) error {
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || !config.IsPort(port) {
		return fmt.Errorf("peer address %q is not HOST:PORT, such as 10.0.0.4:2888", addr)
	}
	return nil
}

var errNotJoined = status.Errorf(status.NotJoined, "this server has not joined its cluster yet")

// ChangeMember implements admin.Source.
func (i *Instance) ChangeMember(ctx context.Context, c change.Change) error {
	node := i.node.Load()
	if node == nil {
		return errNotJoined
	}
	c = change.Change{Op: c.Op, ID: c.ID, Addr: c.Addr} // the other fields are for reconfig
	switch c.Op {
	case change.Vote, change.Demote, change.Describe:
		return fmt.Errorf("unknown change %q; use add, promote or remove, or a client's reconfig", c.Op)
	case change.Add, change.Move:
		if err := checkPeerAddr(c.Addr); err != nil {
			return err
		}
	}
	err := node.ChangeMember(ctx, c)
	if err == nil {
		i.o.Logger.Info("members changed", "op", c.Op, "peer", c.ID)
	}
	return err
}

// wishes gives package members access to the node.
type wishes struct{ *raftfsm.Node }

// Config implements members.Node.
func (n wishes) Config() (text string) {
	n.View(func(st *state.State) { text = st.ConfigData() })
	return text
}

// Servers implements members.Node.
func (n wishes) Servers() []status.Member { return n.Status().Members }

// reconfigure carries out the operation reconfig.
func (i *Instance) reconfigure(r options.ReconfigRequest) (code jute.ErrCode, known bool) {
	node := i.node.Load()
	switch {
	case node == nil:
		return 0, false
	case node.PeerAddr() == "":
		return jute.Unimplemented, true // without a peer port the server has no members to change
	case r.May && !i.reconfiguring.TryLock(): // only for clients that may: others must not keep them waiting
		return jute.ReconfigInProgress, true
	case r.May:
		defer i.reconfiguring.Unlock()
	}
	least := 2
	if i.o.LoneVoter {
		least = 1
	}
	err := members.Carry(i.ctx, wishes{node}, members.Wish(r), least, i.o.Logger)
	code, known = wishCode(err)
	if err != nil {
		i.o.Logger.Info("reconfig refused", "code", code, "err", err)
	}
	return code, known
}

// wishCode returns the code that ZooKeeper would give for an error. If it has no such code, `known` is false.
// Then the client can learn the outcome only from the list of members.
func wishCode(err error) (code jute.ErrCode, known bool) {
	switch {
	case err == nil:
		return jute.OK, true
	case errors.Is(err, members.ErrUnknown):
		return 0, false
	case errors.Is(err, members.ErrVersion):
		return jute.BadVersion, true
	case errors.Is(err, config.ErrNumber):
		return jute.MarshallingError, true
	case errors.Is(err, members.ErrArgument):
		return jute.BadArguments, true
	}
	switch status.Of(err) {
	case status.NotAllowed:
		return jute.NoAuth, true
	case status.Unsafe:
		return jute.NewConfigNoQuorum, true
	case status.Changing:
		return jute.ReconfigInProgress, true
	}
	return 0, false
}
