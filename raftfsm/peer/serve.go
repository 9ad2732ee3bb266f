package peer

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/hashicorp/raft"
)

// lateHeartbeat is how long a heartbeat may wait for raft's main loop. Raft treats every heartbeat as sent at
// the moment it is handled. If a leader vanishes while it sends a snapshot, its last heartbeat waits until
// raft has given up the snapshot. If raft then handled that heartbeat, this server would believe in that
// leader for another timeout and so hinder an election. A late heartbeat can be dropped, because a living
// leader soon sends the next one.
const lateHeartbeat = 500 * time.Millisecond

// isHeartbeat reports whether req is a heartbeat, which raft sends independently of the log.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && len(req.Entries) == 0
}

var (
	errBusy     = errors.New("this server is busy")
	errTermOver = errors.New("the term of the server that asks is over")
)

// serveRaft passes the requests of another server's raft to this server's raft, until the connection ends.
func (p *Port) serveRaft(c *asked, from uint32) {
	r := bufio.NewReaderSize(c, 64<<10)
	answers := make(chan raft.RPCResponse, 1)
	var out []byte
	for {
		c.between()
		if _, err := r.Peek(4); err != nil {
			return
		}
		c.within = true
		b, err := readFrame(r, maxRequest, nil) // nil: no reused buffer, because raft keeps the entries in b
		if err != nil {
			return
		}
		request, err := parseRequest(b)
		if err != nil {
			p.o.Logger.Warn("a connection between rafts ends", "peer", from, "err", err)
			return
		}
		var behind *io.LimitedReader
		rpc := raft.RPC{Command: request}
		if s, is := request.(*raft.InstallSnapshotRequest); is {
			behind = &io.LimitedReader{R: r, N: s.Size}
			rpc.Reader = behind
		}
		answer, why, ok := p.toRaft(rpc, answers, from)
		if !ok {
			return
		}
		out = appendAnswer(out[:0], answer, why)
		if _, err := c.Write(out); err != nil || behind != nil && behind.N > 0 {
			return
		}
	}
}

// toRaft passes a request to raft's main loop, unless it can answer without raft. It returns false when the
// port closes.
func (p *Port) toRaft(rpc raft.RPC, answers chan raft.RPCResponse,
	from uint32) (answer any, why string, ok bool) {
	rpc.RespChan = answers
	var late <-chan time.Time
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		answer = new(raft.AppendEntriesResponse)
		// Raft applies the message's commit index up to the end of its own log. The log may hold entries of
		// an earlier leader after those of the message, and those entries must not be committed.
		req.LeaderCommitIndex = min(req.LeaderCommitIndex, lastOf(req))
		if isHeartbeat(req) {
			late = time.After(lateHeartbeat)
		}
		// Raft uses the commit index of a message only after the message's entries are on the disk. A client
		// that waits for an earlier entry should not wait for the disk, so the commit index is sent to raft
		// first.
		if to := min(req.LeaderCommitIndex, req.PrevLogEntry); len(req.Entries) > 0 && to > p.committed.Load() {
			first := *req
			first.Entries, first.LeaderCommitIndex = nil, to
			if _, _, ok := p.toRaft(raft.RPC{Command: &first}, answers, from); !ok {
				return nil, "", false
			}
		}
	case *raft.RequestVoteRequest:
		answer = new(raft.RequestVoteResponse)
		req.Addr = candidate(req.Addr, from)
	case *raft.RequestPreVoteRequest:
		answer = new(raft.RequestPreVoteResponse)
	case *timeoutNow:
		answer = new(raft.TimeoutNowResponse)
		if from != p.o.ID && req.Term < p.o.Host.Term() {
			return answer, errTermOver.Error(), true
		}
		rpc.Command = &req.TimeoutNowRequest
	case *raft.InstallSnapshotRequest:
		answer = new(raft.InstallSnapshotResponse)
		if p.o.Host.HasApplied(req.Term, req.LastLogIndex) {
			// The snapshot is older than this server's state, and raft would go back to it. A leader sends such a
			// snapshot if the answer to an earlier snapshot, or to entries, did not reach it.
			_, err := io.Copy(io.Discard, rpc.Reader)
			return &raft.InstallSnapshotResponse{Term: req.Term, Success: err == nil}, "", err == nil
		}
	}
	select {
	case p.rpcs <- rpc:
	case <-late:
		return answer, errBusy.Error(), true
	case <-p.ctx.Done():
		return nil, "", false
	}
	select {
	case r := <-answers:
		if r.Error != nil {
			why = r.Error.Error()
		}
		if r.Response != nil {
			answer = r.Response
		}
		if a, is := answer.(*raft.AppendEntriesResponse); is && a.Success {
			p.committed.Store(rpc.Command.(*raft.AppendEntriesRequest).LeaderCommitIndex)
		}
		return answer, why, true
	case <-p.ctx.Done():
		return nil, "", false
	}
}

// lastOf returns the index of the last entry in a message. If the message has no entries, that is the index
// of the entry before the message.
func lastOf(req *raft.AppendEntriesRequest) uint64 {
	if n := len(req.Entries); n > 0 {
		return req.Entries[n-1].Index
	}
	return req.PrevLogEntry
}

// asked is a connection that another server's raft has opened. It bounds the silence within a message,
// because raft's main loop reads a snapshot without a deadline. If the leader's host vanished while it sends
// a snapshot, the follower could not vote until TCP gave up. Between messages a connection may be idle for
// any time.
type asked struct {
	net.Conn
	alive func() bool // asks the other server for a sign of life, for at most messageProbe
	// whether the connection is within a message; set by the reader, or by raft while the reader waits for raft
	within bool
}

const (
	messageSilence = 700 * time.Millisecond // after this silence, this server asks whether the sender is alive
	messageProbe   = 300 * time.Millisecond
	messageWait    = 5 * time.Second // longest silence of a server that is alive
)

// between() records the end of a message.
func (c *asked) between() {
	if c.within {
		c.within = false
		c.SetReadDeadline(time.Time{})
	}
}

func (c *asked) Read(b []byte) (n int, err error) {
	for began := time.Now(); ; {
		if c.within {
			c.SetReadDeadline(time.Now().Add(messageSilence))
		}
		n, err = c.Conn.Read(b)
		if n > 0 || !c.within || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if time.Since(began) > messageWait || !c.alive() {
			c.Conn.Close() // otherwise raft would read on, to skip the rest of the snapshot
			return n, err
		}
	}
}

// alive() reports whether a server answers. It returns true if the server's address is not known.
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
