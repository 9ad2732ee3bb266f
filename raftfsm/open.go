package raftfsm

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// opener gets this server's stream its birth, which Apply gives. The request
// for it may be repeated, and be applied late: its nonce tells which it was.
type opener struct {
	stream *stream
	rand   io.Reader
	again  func()        // asks for another birth; it must not block
	opened chan struct{} // holds a token when the stream was opened

	mu    sync.Mutex
	nonce int64 // of the current request; 0: none yet
}

// request is the current request, as the block that carries it.
func (o *opener) request(m state.Member) state.Block {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.nonce == 0 {
		o.nonce = randomInt(o.rand)
	}
	r := state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), o.nonce)}
	return state.Block{Origin: m.ID, Count: 1, Requests: r.Append(nil)}
}

// told is called when a stream of this server was opened or, by its removal,
// taken away, and after a snapshot, in which either may be hidden.
func (o *opener) told(nonce int64, birth uint32) {
	o.mu.Lock()
	ours := birth != 0 && nonce == o.nonce
	if !ours && o.stream.birthNow() != 0 {
		// An earlier life of this server opened its stream late and took ours
		// away, or the server was removed. Nothing under the old birth can be
		// applied any more: begin anew. But not while a request of ours is still
		// on its way: with a new nonce that one would be taken for another life's
		// when it is applied, and where requests are repeated faster than they
		// are applied, so would the next, for ever.
		o.nonce = 0
	}
	o.mu.Unlock()
	switch {
	case ours && o.stream.birthNow() != birth:
		o.stream.open(birth)
		select {
		case o.opened <- struct{}{}:
		default:
		}
	case !ours && o.stream.birthNow() != 0:
		o.stream.open(0)
		o.again()
	}
}

// whoami is what this server says of itself when it opens its stream.
func (n *Node) whoami() state.Member {
	return state.Member{ID: n.id, Incarnation: n.disk.Identity().Incarnation, PeerAddr: n.o.Peers[n.id], ClientAddr: n.o.ClientAddr}
}

// openOwnStream lets a leader ask itself for its stream, if it has none. A
// follower asks over its link.
func (n *Node) openOwnStream() {
	if n.fsm.stream.birthNow() != 0 {
		return
	}
	if t := n.term.Load(); t != nil {
		t.acts.addOpen(n.opener.request(n.whoami()))
		t.wake()
	}
}

func randomInt(rand io.Reader) int64 {
	var b [8]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		panic("no randomness: " + err.Error())
	}
	return int64(binary.BigEndian.Uint64(b[:]) >> 1)
}
