package raftfsm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

const (
	linkQueue     = 2048     // blocks the leader holds for one server
	linkQueueByte = 32 << 20 // and their bytes

	termBegins = time.Millisecond // between looks of an elected server whether its term has begun
)

// inLink is another server's stream as the leader receives it. When the link or the term ends, its blocks are
// dropped, and the other server sends them again.
type inLink struct {
	peer.Greeting // of the other server
	c             net.Conn

	set     *linkSet // its lock guards what follows
	room    sync.Cond
	queue   []state.Block
	bytes   int
	applied uint64 // the log index that the server says it has applied
	heard   time.Time
	full    string // why the server asks to refuse requests that need more room
	fullAt  time.Time
}

// linkSet are the links of one term.
type linkSet struct {
	mu     sync.Mutex
	links  []*inLink
	closed bool
}

func (ls *linkSet) add(l *inLink) bool {
	l.set, l.room.L = ls, &ls.mu
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ls.closed {
		ls.links = append(ls.links, l)
	}
	return !ls.closed
}

func (ls *linkSet) remove(l *inLink) {
	l.c.Close() // without the lock: with TLS it may wait for the other server
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.links = slices.DeleteFunc(ls.links, func(o *inLink) bool { return o == l })
}

func (ls *linkSet) closeAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.links {
		l.room.Broadcast()
		go l.c.Close() // with TLS it may wait for the other server
	}
}

// leastVersion returns the newest version that this server and all linked ones
// understand.
func (ls *linkSet) leastVersion() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	least := peer.Version
	for _, l := range ls.links {
		least = min(least, l.Version)
	}
	return least
}

// far returns the progress of each linked server. known returns a member's incarnation: the process of a
// server that was replaced may still hold its link, and must not speak for the new server.
func (ls *linkSet) far(known func(id uint32) (incarnation string)) map[uint32]status.Progress {
	ls.mu.Lock()
	links := slices.Clone(ls.links)
	ls.mu.Unlock()
	links = slices.DeleteFunc(links, func(l *inLink) bool { return known(l.From) != l.Incarnation })
	ls.mu.Lock()
	defer ls.mu.Unlock()
	m := map[uint32]status.Progress{}
	for _, l := range links {
		if !l.heard.IsZero() {
			m[l.From] = status.Progress{Applied: l.applied, Heard: status.Ago(time.Since(l.heard).Milliseconds()),
				Version: l.Release, Starts: l.Start}
		}
	}
	return m
}

// cut closes the links of a server that is no longer a member, because its process may still run.
func (ls *linkSet) cut(id uint32) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.links {
		if l.From == id {
			go l.c.Close() // with TLS it may wait for the other server
		}
	}
}

// progress returns the index that each linked member has applied, if the member reported it recently.
func (ls *linkSet) progress(known func(id uint32) (incarnation string)) map[uint32]uint64 {
	m := map[uint32]uint64{}
	for id, p := range ls.far(known) {
		if p.Reached() {
			m[id] = p.Applied
		}
	}
	return m
}

// far returns the progress of each linked member.
func (t *term) far() map[uint32]status.Progress { return t.links.far(t.n.incarnationOf) }

func (t *term) progress() map[uint32]uint64 { return t.links.progress(t.n.incarnationOf) }

// fullFor is how long a report of a low disk stays valid.
const fullFor = 2 * time.Second

// full returns why a server asks to refuse requests that need more room, empty if no server does.
func (ls *linkSet) full() string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.links {
		if l.full != "" && time.Since(l.fullAt) < fullFor {
			return fmt.Sprintf("server %d: %s", l.From, l.full)
		}
	}
	return ""
}

// waiting returns the links that hold blocks.
func (ls *linkSet) waiting() (list []*inLink) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.links {
		if len(l.queue) > 0 {
			list = append(list, l)
		}
	}
	return list
}

func (l *inLink) pop() (state.Block, bool) {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	if len(l.queue) == 0 {
		return state.Block{}, false
	}
	bl := l.queue[0]
	l.queue = l.queue[1:]
	l.bytes -= len(bl.Requests)
	l.room.Signal()
	return bl, true
}

// push queues a block, waiting while the queue is full: then the connection is
// not read and the origin waits as well. It reports false when the term is over.
func (l *inLink) push(bl state.Block) bool {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	for !l.set.closed && (len(l.queue) >= linkQueue || l.bytes >= linkQueueByte) {
		l.room.Wait()
	}
	l.queue = append(l.queue, bl)
	l.bytes += len(bl.Requests)
	return !l.set.closed
}

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
	l := &inLink{Greeting: *from, c: c}
	if !t.links.add(l) {
		return
	}
	defer func() {
		t.links.remove(l)
		n.promises.Note(from.Incarnation, peer.Shown{Index: l.applied})
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

func (t *term) receive(l *inLink, w *bufio.Writer, typ byte, payload []byte) error {
	switch typ {
	case peer.LinkBlock:
		bl, rest, err := state.NextBlock(payload)
		if err != nil || len(rest) > 0 || bl.Origin != l.From {
			return errors.New("bad block on a link")
		}
		if err := bl.Check(); err != nil {
			return err
		}
		if !l.push(bl) {
			return net.ErrClosed
		}
		t.wake()
		return nil
	case peer.LinkFull:
		l.set.mu.Lock()
		l.full, l.fullAt = string(payload[:min(len(payload), 200)]), time.Now()
		l.set.mu.Unlock()
		return nil
	case peer.LinkTouches:
		touches, err := peer.ParseTouches(payload)
		if err != nil {
			return err
		}
		l.set.mu.Lock()
		l.applied, l.heard = touches.Applied, time.Now()
		l.set.mu.Unlock()
		t.tracker.touchAll(touches.Heard)
		// Only a leader that holds its lease may acknowledge touches.
		if t.ctx.Err() != nil || !t.n.raft.Leads() {
			return errNotLeading
		}
		ack := peer.Touches{Number: touches.Number, Applied: t.n.fsm.index.Load()}
		if err := peer.WriteMessage(w, peer.LinkAck, ack.Append(nil)); err != nil {
			return err
		}
		return w.Flush()
	}
	return errors.New("unknown message on a link")
}
