package raftfsm

import (
	"bufio"
	"errors"
	"io"
	"net"
	"time"

	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// termBegins is the time between looks of an elected server whether its term has begun.
const termBegins = time.Millisecond

// ServeLink implements peer.Host. It is the leader's end of a link.
func (h host) ServeLink(c net.Conn, from *peer.Greeting) {
	n := h.n
	t := n.term.Load()
	for ; t == nil && n.raft.Leads(); t = n.term.Load() { // its term is about to begin
		if !signal.Pause(n.ctx, termBegins) {
			return
		}
	}
	if t == nil {
		return
	}
	l := &followers.Link{Greeting: *from, Conn: c}
	if !t.links.Add(l) {
		return
	}
	defer func() {
		t.links.Remove(l)
		n.promises.Note(from.Incarnation, peer.Shown{Index: l.Applied()})
		n.promises.Save()
	}()
	r := bufio.NewReaderSize(c, 64<<10)
	w := bufio.NewWriter(c)
	for {
		typ, payload, err := peer.ReadMessage(r)
		if err == nil {
			err = t.receive(l, w, typ, payload)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				n.log.Debug("link ended", "peer", from.From, "err", err)
			}
			return
		}
	}
}

func (t *term) receive(l *followers.Link, w *bufio.Writer, typ byte, payload []byte) error {
	switch typ {
	case peer.LinkBlock:
		bl, rest, err := state.NextBlock(payload)
		if err != nil || len(rest) > 0 || bl.Origin != l.From {
			return errors.New("bad block on a link")
		}
		if err := bl.Check(); err != nil {
			return err
		}
		if !l.Push(bl) {
			return net.ErrClosed
		}
		t.wake()
		return nil
	case peer.LinkFull:
		l.SetFull(string(payload[:min(len(payload), 200)]))
		return nil
	case peer.LinkTouches:
		touches, err := peer.ParseTouches(payload)
		if err != nil {
			return err
		}
		l.SetApplied(touches.Applied)
		t.tracker.Heard(touches.Heard)
		// Only a leader that holds its lease may acknowledge touches.
		if t.ctx.Err() != nil || !t.n.raft.Leads() {
			return errNotLeading
		}
		ack := peer.Touches{Number: touches.Number, Applied: t.n.fsm.Index()}
		if err := peer.WriteMessage(w, peer.LinkAck, ack.Append(nil)); err != nil {
			return err
		}
		return w.Flush()
	}
	return errors.New("unknown message on a link")
}

// far returns the progress of each linked member.
func (t *term) far() map[uint32]status.Progress { return t.links.Far(t.n.incarnationOf) }

func (t *term) progress() map[uint32]uint64 { return t.links.Progress(t.n.incarnationOf) }
