package raftfsm

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// selfAddr is the address raft knows this server by.
func (n *Node) selfAddr() raft.ServerAddress {
	if addr := n.o.Peers[n.id]; addr != "" {
		return raft.ServerAddress(addr)
	}
	return "local"
}

// stand lets this server stand for election now. It tells itself what a leader
// that hands over tells its successor.
func (n *Node) stand() {
	var resp raft.TimeoutNowResponse
	if err := n.trans.TimeoutNow(serverID(n.id), n.selfAddr(), &raft.TimeoutNowRequest{RPCHeader: n.rpcHeader()}, &resp); err != nil {
		n.log.Debug("could not stand for election", "err", err)
	}
}

// standFirst spares a starting cluster the heartbeat timeout: nobody leads yet,
// so nobody need be waited for. The voter with the lowest id stands as soon as
// all have started; a lone one at once. If anything is different, the timeout
// decides as usual.
func (n *Node) standFirst() {
	for end := time.Now().Add(n.o.HeartbeatTimeout); time.Now().Before(end) && n.ctx.Err() == nil; {
		if n.raft.State() != raft.Follower {
			return
		}
		rank, voter := n.rankWithout(0)
		if rank > 0 || !voter {
			return
		}
		switch all, leader := n.othersUp(); {
		case leader:
			return
		case all:
			n.stand()
			return
		}
		select {
		case <-n.ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// othersUp reports whether all other members run, and whether any of them
// knows a leader.
func (n *Node) othersUp() (all, leader bool) {
	all = true
	for _, s := range n.servers() {
		id := parseID(s.ID)
		if id == n.id {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, 200*time.Millisecond)
		st, err := n.ask(ctx, id, string(s.Address), question{})
		cancel()
		if err != nil || !st.Up {
			return false, leader
		}
		leader = leader || st.Leader != 0
	}
	return all, leader
}
