package leading

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// termBegins is how often an elected server checks whether its term has begun.
const termBegins = time.Millisecond

// ServeLink is the leader's end of a link. It returns when the link or the term ends.
func (l *Leader) ServeLink(ctx context.Context, c net.Conn, from *peer.Greeting) {
	t := l.term.Load()
	for ; t == nil && l.o.Raft.Leads(); t = l.term.Load() { // the term is about to begin
		if !signal.Pause(ctx, termBegins) {
			return
		}
	}
	if t == nil {
		return
	}
	in := &followers.Link{Greeting: *from, Conn: c}
	if !t.links.Add(in) {
		return
	}
	defer func() {
		t.links.Remove(in)
		l.o.Promises.Note(from.Incarnation, peer.Shown{Index: in.Applied()})
		l.o.Promises.Save()
	}()
	r := bufio.NewReaderSize(c, 64<<10)
	w := bufio.NewWriter(c)
	for {
		typ, payload, err := peer.ReadMessage(r)
		if err == nil {
			err = t.receive(in, w, typ, payload)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				l.o.Log.Debug("link ended", "peer", from.From, "err", err)
			}
			return
		}
	}
}

func (t *Term) receive(l *followers.Link, w *bufio.Writer, typ byte, payload []byte) error {
	switch typ {
	case peer.LinkBlock:
		bl, rest, err := entries.NextBlock(payload)
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
		t.deadlines.Heard(touches.Heard)
		// Only a leader that holds its lease may acknowledge touches.
		if t.ctx.Err() != nil || !t.o.Raft.Leads() {
			return ErrNotLeading
		}
		ack := peer.Touches{Number: touches.Number, Applied: t.o.State.Index()}
		if err := peer.WriteMessage(w, peer.LinkAck, ack.Append(nil)); err != nil {
			return err
		}
		return w.Flush()
	}
	return errors.New("unknown message on a link")
}

// Far returns the progress of each linked member.
func (t *Term) Far() map[uint32]status.Progress { return t.links.Far(t.o.Incarnation) }

// Progress returns the index that each linked member has applied, if the member reported it recently.
func (t *Term) Progress() map[uint32]uint64 { return t.links.Progress(t.o.Incarnation) }
