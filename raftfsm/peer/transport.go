package peer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotPiece is the number of bytes of a snapshot that may take up to rpcTimeout.
const snapshotPiece = 256 << 10

// transport is raft's transport on the port. It ignores raft's heartbeat handler, which runs beside raft's
// main loop. With that handler, a leader could adopt a newer term from a heartbeat when it wakes from a
// pause, and then append a client's write in that term, although it does not lead in it. Then two entries
// would have the same index and term but different content, and no server would notice. The transport also
// does not pipeline, because pipelining can block replication to a follower forever.
type transport struct {
	port    *Port
	conns   raftConns
	host    Host
	durable func() uint64
	pace    pace
}

// Transport returns raft's transport on the port. durable() returns an index up to which every entry of this
// server's log is on its disk.
func (p *Port) Transport(durable func() uint64) raft.Transport {
	t := &transport{port: p, host: p.o.Host, durable: durable, pace: pace{bytes: map[raft.ServerID]int{}},
		conns: raftConns{p: p, idle: map[uint32]conns{}, busy: map[*raftConn]uint64{}}}
	// raft closes its transport only when no request is under way, so the end of ctx must end the requests.
	context.AfterFunc(p.ctx, t.conns.close)
	return t
}

// Consumer returns the requests from all connections, for raft's main loop.
func (t *transport) Consumer() <-chan raft.RPC { return t.port.rpcs }

// SetHeartbeatHandler does nothing, on purpose; see transport.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline refuses, on purpose; see transport.
func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// LocalAddr returns the address at which raft knows this server.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.port.o.SelfAddr) }

// EncodePeer implements raft.Transport.
func (t *transport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

// DecodePeer implements raft.Transport. It also reads the form that candidate() writes.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress {
	addr, _, _ := bytes.Cut(b, candidateMark)
	return raft.ServerAddress(addr)
}

var candidateMark = []byte{0}

// candidate returns the form in which raft stores the server that it voted for: address and id. If the same
// candidate asks again in the same term, raft grants the vote again without comparing the logs. By then the
// address may belong to another server. So raft does not repeat a vote that was stored without an id.
func candidate(addr []byte, id uint32) []byte {
	if len(addr) == 0 {
		return addr // the request has no address, so it must not get a vote
	}
	return append(slices.Concat(addr, candidateMark), ServerID(id)...)
}

// Close ends the requests under way.
func (t *transport) Close() error {
	t.conns.close()
	return nil
}

// call() sends a request to a server, at the address in raft's configuration, or at its new address if the
// server has moved. A request to this server itself does not leave the process.
func (t *transport) call(id raft.ServerID, target raft.ServerAddress, limit time.Duration, request,
	answer any, behind io.Reader) (used bool, err error) {
	to := ParseID(id)
	if to == t.port.o.ID {
		return false, t.self(limit, request, answer)
	}
	return t.conns.call(to, t.host.Instead(to, string(target)), limit, request, answer, behind)
}

// self() passes a request to this server's own raft.
func (t *transport) self(limit time.Duration, request, answer any) error {
	rpc := raft.RPC{Command: request}
	got := make(chan error, 1)
	go func() {
		said, why, ok := t.port.toRaft(rpc, make(chan raft.RPCResponse, 1), t.port.o.ID)
		switch v, is := said.(*raft.RequestVoteResponse); {
		case !ok:
			got <- raft.ErrTransportShutdown
		case why != "":
			got <- fmt.Errorf("this server's raft: %s", why)
		case is:
			*answer.(*raft.RequestVoteResponse) = *v
			got <- nil
		default:
			got <- nil
		}
	}()
	select {
	case err := <-got:
		return err
	case <-time.After(limit):
		return errBusy
	}
}

// AppendEntries sends no commit index above the entries that are durable at this server. A leader writes an
// entry while its followers write it, and raft counts the leader's write as done from the start. If a
// follower applied an entry that its leader then lost in a crash, the next leader could put another entry in
// its place.
//
// It also sends no commit index above the entries of the message. The follower's raft bounds the index only
// by the end of its own log. That log may still hold later entries of an earlier leader, and the follower
// would apply them.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for _, l := range args.Entries {
		if l.Type > raft.LogConfiguration {
			// raft has read a stand-in (disk.StandIn) after this server stopped leading
			return fmt.Errorf("entry %d is not in this server's log", l.Index)
		}
	}
	size := cut(args, t.pace.limit(id)) // shortens the message in place, so raft sees what was sent; see cut()
	end := lastOf(args)
	// Raft read its commit index before this call. So all entries up to that index are in the log by now. If one
	// of them is not on the disk yet, durable() returns a lower index than the index of that entry.
	if sure := min(end, t.durable()); args.LeaderCommitIndex > sure {
		bounded := *args
		bounded.LeaderCommitIndex = sure
		args = &bounded
	}
	began := time.Now()
	_, err := t.call(id, target, rpcTimeout, args, resp, nil)
	if size > 0 {
		t.pace.note(id, size, time.Since(began), err)
	}
	if len(args.Entries) > 0 && err == nil && resp.Success {
		t.host.Stored(ParseID(id), args.Term, end)
	}
	switch {
	case err == nil:
		// Without this note, an answer on a connection that is older than the outage would not end the outage.
		t.port.reach.note(ParseID(id), nil)
	case !isHeartbeat(args): // do not delay a heartbeat, because it must detect that a server is back
		t.awaitReach(id, target, args.Term)
	}
	return err
}

// callAgain repeats a request that fails on an old connection. Raft itself would not repeat it, and an
// election or a hand-over would fail. A repetition is harmless: a voter gives the same answer, and a
// successor refuses, because it is already in another term.
func (t *transport) callAgain(id raft.ServerID, target raft.ServerAddress, request, answer any) error {
	used, err := t.call(id, target, rpcTimeout, request, answer, nil)
	if used && connEnded(err) { // call() has closed all idle connections, so it opens a new one now
		_, err = t.call(id, target, rpcTimeout, request, answer, nil)
	}
	return err
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	return t.callAgain(id, target, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress,
	args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return t.callAgain(id, target, args, resp)
}

// TimeoutNow asks a server to stand for election. The request has the term in which this server believes that
// it leads.
func (t *transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	return t.callAgain(id, target, &timeoutNow{*args, t.host.Term()}, resp)
}

// InstallSnapshot calls Host.SnapshotSent after a success.
func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress,
	args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	data, done := t.port.sent.begin(ParseID(id), args.Size, data)
	defer done()
	limit := rpcTimeout * time.Duration(max(1, args.Size/snapshotPiece))
	// call reads data to its end, so it detects damage in the snapshot
	_, err := t.call(id, target, limit, args, resp, data)
	if err == nil && resp.Success {
		t.host.SnapshotSent()
	}
	if err != nil {
		t.awaitReach(id, target, args.Term)
	}
	return err
}

// ServerID returns raft's name of server id.
func ServerID(id uint32) raft.ServerID { return raft.ServerID(strconv.FormatUint(uint64(id), 10)) }

// ParseID returns the id for raft's name of a server. It returns 0 for a name that ServerID cannot have made.
func ParseID(id raft.ServerID) uint32 {
	v, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(v)
}

// sendings records the snapshots that are on their way to other servers.
type sendings struct{ to sync.Map } // *sending, by server id

// sending is one snapshot on its way to another server; raft's transport reads it.
type sending struct {
	io.Reader
	size int64
	sent atomic.Int64
}

func (s *sending) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.sent.Add(int64(n))
	return n, err
}

// begin() records a snapshot until done() is called. The bytes read from the returned reader count as sent.
func (s *sendings) begin(to uint32, size int64, r io.Reader) (_ io.Reader, done func()) {
	snap := &sending{Reader: r, size: size}
	s.to.Store(to, snap)
	return snap, func() { s.to.CompareAndDelete(to, snap) }
}

// Sending returns the size of the snapshot that is on its way to a server, and how many of its bytes are
// sent. Both are 0 if no snapshot is on its way.
func (p *Port) Sending(to uint32) (sent, size int64) {
	if s, is := p.sent.to.Load(to); is {
		return s.(*sending).sent.Load(), s.(*sending).size
	}
	return 0, 0
}
