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

const (
	// rpcTimeout bounds a request between rafts; a snapshot gets as many times that as it has pieces.
	rpcTimeout    = 10 * time.Second
	snapshotPiece = 256 << 10
)

// transport is raft's transport on the port. It never installs a heartbeat handler:
// handled beside the main loop, a heartbeat lets a leader that wakes from a pause
// take the new term and then append a client's write with a term it does not lead:
// same index, same term, other content, and no server notices. It does not pipeline
// either, which can wedge replication to a follower for good.
type transport struct {
	port    *Port
	conns   raftConns
	host    Host
	durable func() uint64
	pace    pace
}

// Transport returns raft's transport on the port. durable returns an index up to
// which everything in this server's log is on its disk.
func (p *Port) Transport(durable func() uint64) raft.Transport {
	t := &transport{port: p, host: p.o.Host, durable: durable, pace: pace{bytes: map[raft.ServerID]int{}},
		conns: raftConns{p: p, idle: map[uint32]conns{}, busy: map[*raftConn]uint64{}}}
	// raft closes its transport only when no request is under way any more.
	context.AfterFunc(p.ctx, t.conns.close)
	return t
}

// Consumer returns the requests from all connections, for raft's main loop.
func (t *transport) Consumer() <-chan raft.RPC { return t.port.rpcs }

// SetHeartbeatHandler does nothing, on purpose.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline refuses, on purpose.
func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// LocalAddr returns the address at which raft knows this server.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.port.o.SelfAddr) }

// EncodePeer implements raft.Transport.
func (t *transport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

// DecodePeer implements raft.Transport. It also reads what candidate wrote.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress {
	addr, _, _ := bytes.Cut(b, candidateMark)
	return raft.ServerAddress(addr)
}

var candidateMark = []byte{0}

// candidate is how raft keeps on its disk the server that it gave its vote: by its address and its id. raft
// takes another request in the same term from the same candidate for a repetition, and grants it without a
// look at the logs. An address alone may be another server's by then. A vote that was stored without an id
// is given to no server a second time.
func candidate(addr []byte, id uint32) []byte {
	if len(addr) == 0 {
		return addr // of a request that must not get a vote
	}
	return append(slices.Concat(addr, candidateMark), ServerID(id)...)
}

// Close ends the requests under way.
func (t *transport) Close() error {
	t.conns.close()
	return nil
}

// call sends a server a request, to the address in raft's configuration unless the server is known
// to have moved. A request to this server itself does not leave the process.
func (t *transport) call(id raft.ServerID, target raft.ServerAddress, limit time.Duration, request,
	answer any, behind io.Reader) (used bool, err error) {
	to := ParseID(id)
	if to == t.port.o.ID {
		return false, t.self(limit, request, answer)
	}
	return t.conns.call(to, t.host.Instead(to, string(target)), limit, request, answer, behind)
}

// self lets this server's own raft answer.
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

// AppendEntries sends no commit index beyond the entries that are durable here. The leader's own
// write goes on beside those of the followers, and raft counts it from the start. If a follower
// applied an entry that its leader then lost in a crash, the next leader could put another in its
// place.
//
// Nor does it send a commit index beyond the entries of the message. The follower's raft bounds
// that index by the end of its own log, which may hold more: entries of an earlier leader that are
// not replaced yet. The follower would apply those.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for _, l := range args.Entries {
		if l.Type > raft.LogConfiguration {
			// A stand-in (disk.StandIn), read after this server has ceased to lead.
			return fmt.Errorf("entry %d is not in this server's log", l.Index)
		}
	}
	size := cut(args, t.pace.limit(id)) // in raft's own message: see cut
	end := lastOf(args)
	// durable is called after raft has read its commit index: it knows by now of every entry up to
	// there that is stored but not durable yet.
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
		t.port.reach.note(ParseID(id), nil) // perhaps on a connection from before
	case !isHeartbeat(args): // heartbeats find a server again
		t.awaitReach(id, target, args.Term)
	}
	return err
}

// awaitReach delays the failure of a message that could not be sent until its server is reached
// again. After each failure raft waits twice as long as after the last one, up to ten seconds: a
// server that came back after a minute would be sent nothing for most of those ten. So each outage
// of a server causes one failure.
func (t *transport) awaitReach(id raft.ServerID, target raft.ServerAddress, term uint64) {
	again := t.port.reach.again(ParseID(id))
	if again == nil {
		return
	}
	tick := time.NewTicker(reachLook)
	defer tick.Stop()
	for t.host.Replicates(term, ParseID(id), string(target)) {
		select {
		case <-again:
			return
		case <-t.port.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reachLook is how often awaitReach checks whether to send to the server at all: the term may be
// over, and the server removed.
const reachLook = 100 * time.Millisecond

// callAgain is call, but asks again if the request fails on an old connection: raft does not, and the
// term would be lost, or leadership not handed over. Asked twice, a voter gives the same answer, and a
// successor, which is in another term by then, refuses.
func (t *transport) callAgain(id raft.ServerID, target raft.ServerAddress, request, answer any) error {
	used, err := t.call(id, target, rpcTimeout, request, answer, nil)
	if used && connEnded(err) { // all idle connections are closed by now
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

// TimeoutNow asks a server to stand for election, in the term that this server
// takes for the present one.
func (t *transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	return t.callAgain(id, target, &timeoutNow{*args, t.host.Term()}, resp)
}

// InstallSnapshot tells the host when it has succeeded.
func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress,
	args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	data, done := t.port.sent.begin(ParseID(id), args.Size, data)
	defer done()
	limit := rpcTimeout * time.Duration(max(1, args.Size/snapshotPiece))
	_, err := t.call(id, target, limit, args, resp, data) // to its end, where it is found whole or damaged
	if err == nil && resp.Success {
		t.host.SnapshotSent()
	}
	if err != nil {
		t.awaitReach(id, target, args.Term)
	}
	return err
}

// ServerID is how raft names server id.
func ServerID(id uint32) raft.ServerID { return raft.ServerID(strconv.FormatUint(uint64(id), 10)) }

// ParseID returns the id of the server that raft names so; 0: zlockd gives no such name.
func ParseID(id raft.ServerID) uint32 {
	v, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(v)
}

// sendings are the snapshots that are on their way to other servers.
type sendings struct{ to sync.Map } // of *sending, by server id

// sending is one such snapshot; raft's transport reads it.
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

// begin notes a snapshot until done is called; what is read of it counts as sent.
func (s *sendings) begin(to uint32, size int64, r io.Reader) (_ io.Reader, done func()) {
	snap := &sending{Reader: r, size: size}
	s.to.Store(to, snap)
	return snap, func() { s.to.CompareAndDelete(to, snap) }
}

// Sending tells how much of a snapshot has been sent to a server, and how large
// it is; 0: none is on its way.
func (p *Port) Sending(to uint32) (sent, size int64) {
	if s, is := p.sent.to.Load(to); is {
		return s.(*sending).sent.Load(), s.(*sending).size
	}
	return 0, 0
}

// Bounds of a message with log entries, in bytes. raft bounds their number
// alone, and a message that takes longer than rpcTimeout is sent again and
// again: over a slow link a server that is behind would never catch up.
const (
	paceMost  = 8 << 20
	paceLeast = 64 << 10 // but at least one entry
	paceTime  = time.Second
)

// pace is what the links to the other servers have shown they can do.
type pace struct {
	mu    sync.Mutex
	bytes map[raft.ServerID]int // that a message may have
}

// limit returns how many bytes the next message to a server may have.
func (p *pace) limit(id raft.ServerID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.bytes[id]; ok {
		return n
	}
	return paceMost
}

// note takes how long a message took. The next one may have as many bytes as
// went in paceTime; after a failure a quarter.
func (p *pace) note(id raft.ServerID, bytes int, took time.Duration, err error) {
	// The link did not limit a message below half of the limit.
	if bytes < min(paceLeast, p.limit(id)/2) && err == nil {
		return // the time was not that of the link
	}
	next := paceMost
	switch {
	case err != nil:
		next = p.limit(id) / 4
	case took > paceTime/8:
		next = int(float64(bytes) * float64(paceTime) / float64(took))
		next = min(next, 2*p.limit(id)) // carefully upwards
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes[id] = min(max(next, paceLeast), paceMost)
}

// cut keeps the first entries of a message that fit into a limit, at least one,
// and returns their bytes. raft counts those it finds in the message as sent.
func cut(args *raft.AppendEntriesRequest, limit int) (bytes int) {
	for i, e := range args.Entries {
		size := len(e.Data) + len(e.Extensions)
		if i > 0 && bytes+size > limit {
			args.Entries = args.Entries[:i]
			break
		}
		bytes += size
	}
	return bytes
}
