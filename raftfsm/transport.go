package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// rpcTimeout bounds raft's RPCs; a snapshot gets as many times more as it has
// quarters of a megabyte.
const rpcTimeout = 10 * time.Second

// mainLoop keeps heartbeats on raft's own goroutine by never installing the
// heartbeat handler. Handled beside the main loop, a heartbeat lets a leader
// that wakes from a pause take the new term and then append a client's write
// with a term it does not lead: same index, same term, other content, and
// nobody notices.
type mainLoop struct{ *raft.NetworkTransport }

// SetHeartbeatHandler does nothing, on purpose.
func (mainLoop) SetHeartbeatHandler(func(raft.RPC)) {}

// staleConns is how many connections raft keeps to each server. After that
// server's restart all of them are dead, which shows only when they are used.
const staleConns = 2

// RequestVote asks again when the connection turns out to be an old one: raft
// does not, and the term would be lost. Asked twice, a voter gives the same
// answer.
func (m mainLoop) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return onFreshConn(func() error { return m.NetworkTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote is like RequestVote.
func (m mainLoop) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return onFreshConn(func() error { return m.NetworkTransport.RequestPreVote(id, target, args, resp) })
}

func onFreshConn(call func() error) error {
	err := call()
	for i := 0; i < staleConns && connEnded(err); i++ {
		err = call()
	}
	return err
}

// connEnded tells the end of a connection from everything else, as far as the
// decoder lets it through.
func connEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		err != nil && (strings.Contains(err.Error(), io.EOF.Error()) || strings.Contains(err.Error(), syscall.ECONNRESET.Error()))
}

// newTransport builds raft's transport on the peer port.
func (n *Node) newTransport() raft.Transport {
	if n.port == nil {
		_, t := raft.NewInmemTransport(n.selfAddr())
		t.Connect(n.selfAddr(), t) // for the one message it sends itself; see stand
		return t
	}
	return mainLoop{raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:                raftStreams{n},
		MaxPool:               staleConns,
		MaxRPCsInFlight:       1, // pipelining can wedge replication to a follower for good
		Timeout:               rpcTimeout,
		ServerAddressProvider: addressBook{n},
		Logger:                n.hclog,
	})}
}

// addressBook resolves server ids by this server's own list first: an address
// given on the command line is newer than the one in the log.
type addressBook struct{ n *Node }

func (b addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if addr := b.n.o.Peers[parseID(id)]; addr != "" {
		return raft.ServerAddress(addr), nil
	}
	return "", fmt.Errorf("address of server %s is not on the list", id)
}

func serverID(id uint32) raft.ServerID { return raft.ServerID(strconv.FormatUint(uint64(id), 10)) }

func parseID(id raft.ServerID) uint32 {
	v, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(v)
}

// raftStreams lets raft talk through the peer port.
type raftStreams struct{ n *Node }

// Accept implements net.Listener.
func (s raftStreams) Accept() (net.Conn, error) {
	select {
	case c := <-s.n.port.raftConns:
		return &snapshotDeadline{Conn: c}, nil
	case <-s.n.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener; the port belongs to the Node.
func (s raftStreams) Close() error { return nil }

// Addr implements net.Listener.
func (s raftStreams) Addr() net.Addr { return peerAddr(s.n.o.Peers[s.n.id]) }

type peerAddr string

func (a peerAddr) Network() string { return "tcp" }
func (a peerAddr) String() string  { return string(a) }

// Dial implements raft.StreamLayer.
func (s raftStreams) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.n.ctx, timeout)
	defer cancel()
	return s.n.call(ctx, peerRaft, s.n.idOf(addr), string(addr))
}

// idOf finds who lives at an address, to say so in the greeting.
func (n *Node) idOf(addr raft.ServerAddress) uint32 {
	for id, a := range n.o.Peers {
		if a == string(addr) {
			return id
		}
	}
	for _, srv := range n.servers() {
		if srv.Address == addr {
			return parseID(srv.ID)
		}
	}
	return 0
}

// snapshotDeadline bounds the silence in the middle of a message. raft reads a
// snapshot on its main loop without a deadline; if the leader's host vanishes
// meanwhile the follower could not vote until TCP gives up. Between messages a
// connection may idle as long as it likes.
type snapshotDeadline struct {
	net.Conn
	mu    sync.Mutex
	burst int // bytes read since the last write: an answer ends a message
}

const snapshotSilence = 5 * time.Second

func (c *snapshotDeadline) Read(b []byte) (int, error) {
	c.mu.Lock()
	if c.burst > 0 {
		c.Conn.SetReadDeadline(time.Now().Add(snapshotSilence))
	}
	c.mu.Unlock()
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	c.burst += n
	c.mu.Unlock()
	return n, err
}

func (c *snapshotDeadline) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.burst > 0 {
		c.Conn.SetReadDeadline(time.Time{})
	}
	c.burst = 0
	c.mu.Unlock()
	return c.Conn.Write(b)
}
