package server

import (
	"context"
	"fmt"
	"net"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
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
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || !state.IsPort(port) {
		return fmt.Errorf("peer address %q is not HOST:PORT, such as 10.0.0.4:2888", addr)
	}
	return nil
}

var errNotJoined = status.Errorf(status.NotJoined, "this server has not joined its cluster yet")
