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

// lateHeartbeat is how long a heartbeat waits for raft's main loop. Raft takes any heartbeat for
// one sent this very moment. A server whose leader vanished while it sent a snapshot would believe
// in that leader for as long again, and keep the others from electing. A leader that lives sends
// the next heartbeat at once.
const lateHeartbeat = 500 * time.Millisecond

// isHeartbeat reports whether req is a message that raft sends beside its log, whatever happens to
// the log.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && len(req.Entries) == 0
}

var (
	errBusy     = errors.New("this server is busy")
	errTermOver = errors.New("the term of the server that asks is over")
)

// serveRaft hands raft what another server's raft asks, until the connection ends.
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
		b, err := readFrame(r, maxRequest, nil) // the log keeps the entries
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

// toRaft lets raft's main loop answer a request, unless the answer is plain without raft. It
// reports false when the port closes.
func (p *Port) toRaft(rpc raft.RPC, answers chan raft.RPCResponse,
	from uint32) (answer any, why string, ok bool) {
	rpc.RespChan = answers
	var late <-chan time.Time
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		answer = new(raft.AppendEntriesResponse)
		// Raft commits what it is told, up to the end of its own log, which may hold
		// entries of an earlier leader after those of the message.
		req.LeaderCommitIndex = min(req.LeaderCommitIndex, lastOf(req))
		if isHeartbeat(req) {
			late = time.After(lateHeartbeat)
		}
		// Raft looks at the commit index of a message when the entries of the message are on the disk. The
		// clients that wait for an entry before them need not wait for that.
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
			// Raft would go back to it. A leader sends such a snapshot if it did not hear of the first, or
			// of entries that it sent before.
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

// lastOf returns the index of the last entry that a message speaks of.
func lastOf(req *raft.AppendEntriesRequest) uint64 {
	if n := len(req.Entries); n > 0 {
		return req.Entries[n-1].Index
	}
	return req.PrevLogEntry
}

// asked is a connection that another server's raft has made. It bounds the silence in the middle of
// a message: raft reads a snapshot on its main loop without a deadline. If the leader's host
// vanished during that, the follower could not vote until TCP gave up. Between messages a
// connection may idle as long as it likes.
type asked struct {
	net.Conn
	alive  func() bool // asks the other server for a sign of life, for messageProbe at most
	within bool        // a message; the reader sets it, or raft while the reader waits for raft
}

const (
	messageSilence = 700 * time.Millisecond // then this server asks whether the other lives
	messageProbe   = 300 * time.Millisecond
	messageWait    = 5 * time.Second // for a server that lives
)

// between says that a message is over.
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
			c.Conn.Close() // raft goes on reading, to skip the rest of the snapshot
			return n, err
		}
	}
}

// alive reports whether a server answers; true if its address is not known.
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
