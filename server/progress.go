package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
)

// Progress implements admin.Source.
func (i *Instance) Progress(ctx context.Context) map[int64]admin.Progress {
	node := i.node.Load()
	if node == nil {
		return nil
	}
	all := map[int64]admin.Progress{}
	for id, p := range node.Progress(ctx) {
		all[int64(id)] = shownProgress(&p)
	}
	return all
}

// Probe implements admin.Source.
func (i *Instance) Probe(ctx context.Context, id uint32, addr string) (admin.Progress, error) {
	node := i.node.Load()
	if node == nil {
		return admin.Progress{}, errNotJoined
	}
	if err := checkPeerAddr(addr); err != nil {
		return admin.Progress{}, err
	}
	p, err := node.Probe(ctx, id, addr)
	return shownProgress(&p), err
}

func checkPeerAddr(addr string) error {
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || !state.IsPort(port) {
		return fmt.Errorf("peer address %q is not HOST:PORT, such as 10.0.0.4:2888", addr)
	}
	return nil
}

var errNotJoined = errors.New("this server has not joined its cluster yet")

func shownProgress(p *raftfsm.Progress) admin.Progress {
	return admin.Progress{Applied: p.Applied, Lag: p.Lag, Bytes: p.Bytes, Heard: time.Duration(p.Heard) * time.Millisecond, Release: p.Release,
		Starts: p.Start, SnapshotSent: p.SnapshotSent, SnapshotSize: p.SnapshotSize, Waits: p.Waits, At: p.At, Known: p.Known}
}
