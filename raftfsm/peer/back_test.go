package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// What cannot be sent fails when its server is reached again, so that raft, which
// waits ever longer after each failure, has one to count and tries at once.
func TestMessageFailsWhenItsServerIsBack(t *testing.T) {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	away := raft.ServerAddress(ln.Addr().String())
	ln.Close()
	h := &host{}
	p := open(t, 1, h)
	m := startTransport(t, p, new(atomic.Bool))
	append := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			var resp raft.AppendEntriesResponse
			req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
				Term: 3, PrevLogEntry: 7, PrevLogTerm: 2}
			done <- m.AppendEntries(ServerID(2), away, &req, &resp)
		}()
		return done
	}
	for name, end := range map[string]func(){
		"the server is back":     func() { p.reach.note(2, nil) },
		"this one leads no more": func() { h.replicates.Store(false) },
	} {
		h.replicates.Store(true)
		failed := append()
		for p.reach.again(2) == nil {
			time.Sleep(time.Millisecond)
		}
		select {
		case err := <-failed:
			t.Errorf("before %s it failed: %v", name, err)
		case <-time.After(50 * time.Millisecond):
		}
		end()
		expect.Fails(t, <-failed, "when %s: no error", name)
		p.reach.note(2, nil)
	}
}

// A heartbeat that raft is too busy for is not handed to it later: raft would take it
// for a word of that moment, from a leader that may be gone. Entries wait.
func TestLateHeartbeatsAreNotHeard(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// nobody takes them
	p := &Port{o: Options{Logger: slog.New(slog.DiscardHandler)}, ctx: ctx, rpcs: make(chan raft.RPC)}
	here, there := net.Pipe()
	defer here.Close()
	go p.serveRaft(&asked{Conn: there}, 1)
	c := &raftConn{Conn: here, r: bufio.NewReader(here)}
	var resp raft.AppendEntriesResponse
	if why, err := c.exchange(rpcTimeout, &raft.AppendEntriesRequest{Term: 3}, &resp, nil); err != nil ||
		why != errBusy.Error() {
		t.Fatalf("answered %q, %v", why, err)
	}
	answered := make(chan string, 1)
	go func() {
		why, _ := c.exchange(rpcTimeout, &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 2,
			LeaderCommitIndex: 7}, &resp, nil)
		answered <- why
	}()
	time.Sleep(lateHeartbeat + lateHeartbeat/2)
	rpc := <-p.rpcs
	expect.Equal(t, rpc.Command.(*raft.AppendEntriesRequest).PrevLogEntry, 7, "raft is handed")
	rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
	if why := <-answered; why != "" || !resp.Success {
		t.Errorf("answered %q, %+v", why, resp)
	}
}

// A server that lets this one in no longer is told apart from one that is down.
func TestRefusalIsRemembered(t *testing.T) {
	p := &Port{reach: reach{log: slog.New(slog.DiscardHandler)}}
	down := errors.New("connection refused")
	p.reach.note(2, down)
	expect.OK(t, p.Refusal(), "of a server that is down")
	p.reach.note(2, fmt.Errorf("server 2: %w: for a reason", ErrRefused))
	expect.Is(t, p.Refusal(), ErrRefused, "of a server that refuses")
	p.reach.note(2, nil)
	expect.OK(t, p.Refusal(), "of a server that is reached")
}
