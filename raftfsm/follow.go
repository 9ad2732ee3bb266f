package raftfsm

import (
	"bufio"
	"context"
	"errors"
	"net"
	"runtime/trace"
	"sync"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

const (
	linkDialTime = time.Second
	// A server that cannot follow its leader tries again after followAgain. With each failure it waits twice as
	// long, up to followRest. The other servers may not know yet that the leader is gone, the leader may refuse
	// this server, or the network between them may be cut.
	followAgain = time.Millisecond
	followRest  = 20 * time.Millisecond
)

// follow() keeps a link to the leader while another server leads.
func (n *Node) follow() {
	rest := followAgain
	for n.ctx.Err() == nil {
		id, addr := n.raft.Known()
		wait := n.raft.Beat(leaderLook) // look without a signal too, because a signal may be lost
		if id != 0 && id != n.id {
			if n.followLeader(id, addr) {
				rest = followAgain
			}
			if !n.raft.NobodyLeadsBut(id) {
				continue
			}
			wait, rest = rest, min(2*rest, followRest)
		}
		select {
		case <-n.ctx.Done():
		case <-n.known.news:
		case <-time.After(wait):
		}
	}
}

// followLeader runs one link, and finds out why it ended. It reports whether the link lasted for a while. A
// called server that does not lead closes the link at once.
func (n *Node) followLeader(id uint32, addr string) (stood bool) {
	c, err := n.callLeader(id, addr)
	if err == nil {
		began := time.Now()
		n.known.held(id)
		n.linked.Store(id)
		err = n.runLink(c, id)
		n.linked.Store(0)
		c.Close()
		n.log.Debug("link to the leader ended", "peer", id, "err", err)
		stood = time.Since(began) > followRest
	}
	n.known.broken()
	if n.ctx.Err() == nil && n.raft.NobodyLeadsBut(id) {
		n.lookAtLeader(id, addr)
	}
	return stood
}

// lookAtLeader finds out, after a link broke, whether the leader still leads. If the leader's machine refuses
// a new connection, the leader's process is gone. If the connection is not refused, this server starts no
// election, because the leader may be alive. The leader may also answer that it does not lead: perhaps its
// process restarted before any server noticed, or while too few servers were up to elect another leader.
func (n *Node) lookAtLeader(id uint32, says string) {
	term := n.raft.CurrentTerm()
	known, _ := n.raft.Known() // the leader of `term`, or of a later term
	ctx, cancel := context.WithTimeout(n.ctx, linkDialTime)
	defer cancel()
	switch st, err := n.askAt(ctx, id, says, peer.Question{}); {
	case errors.Is(err, syscall.ECONNREFUSED):
		n.elections.Succeed(n.ctx, id)
	case err == nil && st.Leader != id && known == id:
		n.raft.Forget(term)
	}
}

// callLeader dials the leader at each address that leaderAddrs returns until one answers.
func (n *Node) callLeader(id uint32, says string) (net.Conn, error) {
	var c net.Conn
	err := errors.New("the leader's address is not known")
	for _, addr := range n.leaderAddrs(id, says) {
		ctx, cancel := context.WithTimeout(n.ctx, linkDialTime)
		c, err = n.port.Call(ctx, peer.Link, id, addr)
		cancel()
		if err == nil {
			break
		}
	}
	return c, err
}

// runLink sends this server's stream and its touches until the connection or the leader's term ends.
func (n *Node) runLink(c net.Conn, leader uint32) error {
	s := n.fsm.Stream
	reader := s.Rewind()
	if reader == nil {
		return errors.New("this server leads")
	}
	began := time.Now()
	broken := make(chan error, 1)
	ctx, cancel := context.WithCancel(n.ctx)
	var beside sync.WaitGroup
	beside.Go(func() { broken <- n.readAcks(bufio.NewReader(c), began) })
	beside.Go(func() { n.cutLink(ctx, c, leader) })
	defer func() { cancel(); c.Close(); beside.Wait() }()
	w := bufio.NewWriterSize(c, 64<<10)
	tick := time.NewTimer(n.raft.Beat(n.o.touchEvery()))
	defer tick.Stop()
	crowd := stream.NewCrowd(ctx)
	var heard []state.Touch
	var buf []byte
	touch := func(all bool) error {
		if bl, wanted := n.opening(); wanted {
			if err := peer.WriteMessage(w, peer.LinkBlock, bl.Append(nil)); err != nil {
				return err
			}
		}
		heard = n.o.Observer.Heard(heard[:0], all)
		if why := n.upkeep.DiskLow(); why != "" {
			if err := peer.WriteMessage(w, peer.LinkFull, []byte(why)); err != nil {
				return err
			}
		}
		t := peer.Touches{Number: uint64(time.Since(began)), Applied: n.fsm.Index(), Heard: heard}
		buf = t.Append(buf[:0])
		return peer.WriteMessage(w, peer.LinkTouches, buf)
	}
	if err := touch(true); err != nil {
		return err
	}
	for {
		bl := s.Take(reader, n.id, stream.BlockRequests, stream.BlockBytes, buf[:0])
		if bl.Count > 0 {
			crowd.Came(int(bl.Count))
			if err := peer.WriteMessage(w, peer.LinkBlock, bl.Append(nil)); err != nil {
				return err
			}
			buf = bl.Requests
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if trace.IsEnabled() {
			signal.Step("stream", "all blocks that left the queue are sent to the leader, server %d", leader)
		}
		select {
		case <-n.ctx.Done():
			return n.ctx.Err()
		case err := <-broken:
			return err
		case <-reader:
			crowd.Gather(ctx)
		case <-tick.C:
			if err := touch(false); err != nil {
				return err
			}
			tick.Reset(n.raft.Beat(n.o.touchEvery()))
		}
	}
}

// cutLink closes a link when another server leads, or when ctx ends. The goroutine that writes to the link
// may be blocked then: a leader that hangs does not read, and does not close the connection.
func (n *Node) cutLink(ctx context.Context, c net.Conn, leader uint32) {
	for now := leader; now == leader && ctx.Err() == nil; now, _ = n.raft.Known() {
		select {
		case <-ctx.Done():
		case <-n.known.news:
		case <-time.After(n.raft.Beat(n.o.touchEvery())):
		}
	}
	c.Close()
}

// readAcks reads the leader's acknowledgements. An acknowledgement shows that the leader hears this server,
// and how far the leader has applied its log. The number in an acknowledgement is the time from `began` until
// this server sent the acknowledged touches.
func (n *Node) readAcks(r *bufio.Reader, began time.Time) error {
	for {
		typ, payload, err := peer.ReadMessage(r)
		if err != nil {
			return err
		}
		if typ != peer.LinkAck {
			return errors.New("unknown message on a link")
		}
		ack, err := peer.ParseTouches(payload)
		if err != nil {
			return err
		}
		if age := time.Since(began) - time.Duration(ack.Number); age >= 0 {
			n.serving.Acked(time.Now().Add(-age), ack.Applied)
		}
	}
}
