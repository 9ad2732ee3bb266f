package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
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
//
// What servers say to each other without end, entries and heartbeats, goes on
// connections of its own: raft's transport codes each message by reflection,
// which was a sixth of what a lone write costs three servers. The rest is left to it.
type mainLoop struct {
	*raft.NetworkTransport
	port    *Port
	appends *appends
	host    Host
	durable func() uint64
	pace    *pace
	sent    *sendings
}

// SetHeartbeatHandler does nothing, on purpose.
func (mainLoop) SetHeartbeatHandler(func(raft.RPC)) {}

// to names a server to raftStreams: by its id, and where it is now. That is the
// address in raft's configuration, unless the server is known to have moved.
func (m mainLoop) to(id raft.ServerID, target raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + m.host.Instead(ParseID(id), string(target)))
}

// AppendEntries tells no commit index beyond what is durable here. The leader's
// own write goes on beside those of the followers, and raft counts it from the
// start; a follower that applied an entry which its leader then loses in a
// crash could see the next leader put another in its place.
//
// Nor does it tell one beyond the entries of the message. raft's follower bounds
// what it is told by the end of its own log, which may hold more: entries of an
// earlier leader, that are yet to be replaced. It would apply those.
func (m mainLoop) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for _, l := range args.Entries {
		if l.Type > raft.LogConfiguration {
			// A stand-in (disk.StandIn), read after this server has ceased to lead.
			return fmt.Errorf("entry %d is not in this server's log", l.Index)
		}
	}
	size := cut(args, m.pace.limit(id)) // in raft's own message: see cut
	end := args.PrevLogEntry
	if n := len(args.Entries); n > 0 {
		end = args.Entries[n-1].Index
	}
	// What is durable is asked for after raft has read its commit index: what was
	// stored up to there and is not durable yet is known by now.
	if sure := min(end, m.durable()); args.LeaderCommitIndex > sure {
		bounded := *args
		bounded.LeaderCommitIndex = sure
		args = &bounded
	}
	began := time.Now()
	err := m.append(id, target, size, args, resp)
	if size > 0 {
		m.pace.note(id, size, time.Since(began), err)
	}
	if n := len(args.Entries); n > 0 && err == nil && resp.Success {
		m.host.Stored(ParseID(id), args.Term, args.Entries[n-1].Index)
	}
	switch {
	case err == nil:
		m.port.reach.note(ParseID(id), nil) // perhaps on a connection from before
	case !isHeartbeat(args): // it is by these that a server is found again
		m.awaitReach(id, target, args.Term)
	}
	return err
}

// awaitReach keeps a message that could not be sent from failing until its server
// is reached again. raft waits after each failure, twice as long as after the last
// one, up to ten seconds: a server that came back after a minute would be sent
// nothing for most of them. So there is one failure for each time it is away.
func (m mainLoop) awaitReach(id raft.ServerID, target raft.ServerAddress, term uint64) {
	again := m.port.reach.again(ParseID(id))
	if again == nil {
		return
	}
	tick := time.NewTicker(reachLook)
	defer tick.Stop()
	for m.host.Replicates(term, ParseID(id), string(target)) {
		select {
		case <-again:
			return
		case <-m.port.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reachLook is how often it is looked whether a server that is not reached is one
// to send to at all: the term may be over, and the server removed.
const reachLook = 100 * time.Millisecond

// append sends what AppendEntries has bounded to size bytes of data. raft's own transport takes the longest messages.
func (m mainLoop) append(id raft.ServerID, target raft.ServerAddress, size int, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	to := ParseID(id)
	if size > maxEntries-1<<20 {
		return m.NetworkTransport.AppendEntries(id, m.to(id, target), args, resp)
	}
	return m.appends.call(to, m.host.Instead(to, string(target)), args, resp)
}

// Consumer returns what comes from all connections, for raft's main loop.
func (m mainLoop) Consumer() <-chan raft.RPC { return m.port.rpcs }

// Close ends what is under way.
func (m mainLoop) Close() error {
	m.appends.close()
	return m.NetworkTransport.Close()
}

// staleConns is how many connections raft keeps to each server. After that
// server's restart all of them are dead, which shows only when they are used.
const staleConns = 2

// RequestVote asks again when the connection turns out to be an old one: raft
// does not, and the term would be lost. Asked twice, a voter gives the same
// answer.
func (m mainLoop) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return onFreshConn(func() error { return m.NetworkTransport.RequestVote(id, m.to(id, target), args, resp) })
}

// RequestPreVote is like RequestVote.
func (m mainLoop) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return onFreshConn(func() error {
		return m.NetworkTransport.RequestPreVote(id, m.to(id, target), args, resp)
	})
}

// InstallSnapshot tells the host when it has succeeded.
func (m mainLoop) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	data, done := m.sent.begin(ParseID(id), args.Size, data)
	defer done()
	err := m.NetworkTransport.InstallSnapshot(id, m.to(id, target), args, resp, data)
	if err == nil && resp.Success {
		m.host.SnapshotSent()
	}
	if err != nil {
		m.awaitReach(id, target, args.Term)
	}
	return err
}

// TimeoutNow asks a server to stand for election.
func (m mainLoop) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return m.NetworkTransport.TimeoutNow(id, m.to(id, target), args, resp)
}

func onFreshConn(call func() error) error {
	err := call()
	for i := 0; i < staleConns && ConnEnded(err); i++ {
		err = call()
	}
	return err
}

// ConnEnded tells the end of a connection from everything else, as far as raft's
// decoder lets it through. Whether the other server has done what it was asked for
// is not known then.
func ConnEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		err != nil && (strings.Contains(err.Error(), io.EOF.Error()) || strings.Contains(err.Error(), syscall.ECONNRESET.Error()))
}

// Transport is raft's transport on the port. durable returns an index up to
// which everything in this server's log is on its disk.
func (p *Port) Transport(log hclog.Logger, durable func() uint64) raft.Transport {
	m := mainLoop{port: p, appends: &appends{p: p, idle: map[uint32][]*appendConn{}, busy: map[*appendConn]struct{}{}},
		host: p.o.Host, durable: durable, pace: new(pace), sent: &p.sent}
	m.NetworkTransport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:          raftStreams{p},
		MaxPool:         staleConns,
		MaxRPCsInFlight: 1, // pipelining can wedge replication to a follower for good
		Timeout:         rpcTimeout,
		Logger:          log,
	})
	p.wg.Go(func() { p.relay(m.NetworkTransport.Consumer()) })
	return m
}

// relay hands raft what its own transport has read, but no snapshot of what this
// server has applied already: raft would go back to it. A leader sends one that
// did not hear of the first, or of entries that it sent before.
func (p *Port) relay(from <-chan raft.RPC) {
	for {
		select {
		case rpc := <-from:
			s, ok := rpc.Command.(*raft.InstallSnapshotRequest)
			if ok && p.o.Host.HasApplied(s.Term, s.LastLogIndex) {
				p.wg.Go(func() {
					_, err := io.Copy(io.Discard, rpc.Reader)
					rpc.Respond(&raft.InstallSnapshotResponse{Term: s.Term, Success: err == nil}, err)
				})
				continue
			}
			select {
			case p.rpcs <- rpc:
			case <-p.ctx.Done():
				return
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// ServerID is how raft names server id.
func ServerID(id uint32) raft.ServerID { return raft.ServerID(strconv.FormatUint(uint64(id), 10)) }

// ParseID is the id of the server that raft names so; 0: it is none of ours.
func ParseID(id raft.ServerID) uint32 {
	v, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(v)
}

// raftStreams lets raft talk through the peer port.
type raftStreams struct{ p *Port }

// Accept implements net.Listener.
func (s raftStreams) Accept() (net.Conn, error) {
	select {
	case c := <-s.p.raftConns:
		return c, nil
	case <-s.p.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener; the port belongs to the server.
func (s raftStreams) Close() error { return nil }

// Addr implements net.Listener.
func (s raftStreams) Addr() net.Addr { return addr(s.p.o.SelfAddr) }

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

// Dial implements raft.StreamLayer, for addresses that mainLoop has made.
func (s raftStreams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, addr, ok := strings.Cut(string(to), "@")
	if !ok {
		return nil, fmt.Errorf("%q does not name a server", to)
	}
	ctx, cancel := context.WithTimeout(s.p.ctx, timeout)
	defer cancel()
	return s.p.Call(ctx, Raft, ParseID(raft.ServerID(id)), addr)
}

// raftConn is a connection that another server's raft has made. It bounds the
// silence in the middle of a message: raft reads a snapshot on its main loop
// without a deadline, and if the leader's host vanishes meanwhile the follower
// could not vote until TCP gives up. Between messages a connection may idle as
// long as it likes.
type raftConn struct {
	net.Conn
	alive func() bool // asks the other server for a sign of life, for messageProbe at most

	mu    sync.Mutex
	burst int // bytes read since the last write: an answer ends a message
}

const (
	messageSilence = 700 * time.Millisecond // then the other server is asked whether it lives
	messageProbe   = 300 * time.Millisecond
	messageWait    = 5 * time.Second // for one that lives
)

func (c *raftConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	within := c.burst > 0
	c.mu.Unlock()
	var n int
	var err error
	for began := time.Now(); ; {
		if within {
			c.Conn.SetReadDeadline(time.Now().Add(messageSilence))
		}
		n, err = c.Conn.Read(b)
		if n > 0 || !within || !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if time.Since(began) > messageWait || !c.alive() {
			c.Conn.Close() // raft goes on reading, to skip the rest of the snapshot
			break
		}
	}
	c.mu.Lock()
	c.burst += n
	c.mu.Unlock()
	return n, err
}

func (c *raftConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.burst > 0 {
		c.Conn.SetReadDeadline(time.Time{})
	}
	c.burst = 0
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// alive reports whether a server answers. One whose address is not known is
// taken to.
func (p *Port) alive(id uint32) bool {
	addr := p.o.Host.AddrOf(id)
	if addr == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(p.ctx, messageProbe)
	defer cancel()
	_, err := p.Ask(ctx, id, addr, Question{})
	return err == nil
}
