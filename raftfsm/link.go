package raftfsm

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// Messages on a link. A server sends the leader its stream and whom it heard
// from; nothing comes back but how far the leader is. Outcomes are learnt by
// applying the log, as everywhere.
const (
	linkBlock byte = 1 // to the leader: a block of the stream
	linkTouch byte = 2 // to the leader: number u64, applied index u64, (session i64, age u32)*
	linkAck   byte = 3 // from the leader: number u64 of the touch message, applied index u64
)

const (
	linkDialTime  = time.Second
	linkQueue     = 2048     // blocks the leader holds for one server
	linkQueueByte = 32 << 20 // and their bytes
)

// follow keeps a link to whoever leads, while it is not this server.
func (n *Node) follow() {
	news := make(chan raft.Observation, 8)
	obs := raft.NewObserver(news, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(obs)
	defer n.raft.DeregisterObserver(obs)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for n.ctx.Err() == nil {
		addr, id := n.raft.LeaderWithID()
		if addr == "" || parseID(id) == n.id {
			select {
			case <-n.ctx.Done():
			case <-news:
			case <-poll.C:
			}
			continue
		}
		n.followLeader(parseID(id), string(addr), news)
	}
}

// followLeader runs one link, and looks what its end means.
func (n *Node) followLeader(id uint32, addr string, news <-chan raft.Observation) {
	if a := n.o.Peers[id]; a != "" {
		addr = a
	}
	ctx, cancel := context.WithTimeout(n.ctx, linkDialTime)
	c, err := n.call(ctx, peerLink, id, addr)
	cancel()
	if err == nil {
		err = n.runLink(c, id, news)
		c.Close()
		n.log.Debug("link to the leader ended", "peer", id, "err", err)
	}
	if n.ctx.Err() != nil || !n.nobodyLeadsBut(id) {
		return
	}
	if n.leaderIsDead(addr) {
		n.succeed(id)
	} else {
		select { // it lives but does not want us, or the way is cut: not too fast
		case <-n.ctx.Done():
		case <-news:
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (n *Node) leaderIs(id uint32) bool {
	_, now := n.raft.LeaderWithID()
	return parseID(now) == id
}

// nobodyLeadsBut reports whether this server knows no leader other than id.
func (n *Node) nobodyLeadsBut(id uint32) bool {
	_, now := n.raft.LeaderWithID()
	return now == "" || parseID(now) == id
}

// leaderIsDead finds out whether the leader's process is gone: its connection
// broke and a new one is refused. The refusal keeps an election from being
// started against a leader that lives.
func (n *Node) leaderIsDead(addr string) bool {
	ctx, cancel := context.WithTimeout(n.ctx, linkDialTime)
	defer cancel()
	c, err := n.o.Dial(ctx, addr)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func (n *Node) rpcHeader() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(serverID(n.id)), Addr: n.trans.EncodePeer(serverID(n.id), n.selfAddr())}
}

// runLink sends our stream and touches until the connection or the leader's
// term ends.
func (n *Node) runLink(c net.Conn, leader uint32, news <-chan raft.Observation) error {
	s := n.fsm.stream
	reader := s.rewind()
	sent := &touchTimes{}
	broken := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		broken <- n.readAcks(bufio.NewReader(c), sent)
	}()
	defer func() { c.Close(); <-done }()
	w := bufio.NewWriterSize(c, 64<<10)
	tick := time.NewTicker(n.touchEvery())
	defer tick.Stop()
	var heard []Touch
	var buf []byte
	touch := func() error {
		if n.fsm.stream.birthNow() == 0 {
			bl := n.openBlock()
			if err := writeFrame(w, linkBlock, appendBlock(nil, &bl)); err != nil {
				return err
			}
		}
		heard = heard[:0]
		if n.o.Observer != nil {
			heard = n.o.Observer.Heard(heard)
		}
		buf = binary.BigEndian.AppendUint64(buf[:0], sent.add(time.Now()))
		buf = binary.BigEndian.AppendUint64(buf, n.fsm.index.Load())
		for _, h := range heard {
			buf = binary.BigEndian.AppendUint64(buf, uint64(h.Session))
			buf = binary.BigEndian.AppendUint32(buf, h.Age)
		}
		return writeFrame(w, linkTouch, buf)
	}
	if err := touch(); err != nil {
		return err
	}
	for {
		bl := s.take(reader, n.id, batchRequests, batchBytes, buf[:0])
		if bl.count > 0 {
			if err := writeFrame(w, linkBlock, appendBlock(nil, &bl)); err != nil {
				return err
			}
			buf = bl.requests
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		select {
		case <-n.ctx.Done():
			return n.ctx.Err()
		case err := <-broken:
			return err
		case <-news:
			if !n.leaderIs(leader) {
				return errNotLeading
			}
		case <-s.ready:
		case <-tick.C:
			if !n.leaderIs(leader) {
				return errNotLeading
			}
			if err := touch(); err != nil {
				return err
			}
		}
	}
}

// readAcks learns that the leader still hears us, and how far it is.
func (n *Node) readAcks(r *bufio.Reader, sent *touchTimes) error {
	for {
		kind, payload, err := readFrame(r)
		if err != nil {
			return err
		}
		if kind != linkAck || len(payload) != 16 {
			return errors.New("unknown message on a link")
		}
		if at, ok := sent.take(binary.BigEndian.Uint64(payload)); ok {
			n.gate.acked(n, at, binary.BigEndian.Uint64(payload[8:]))
		}
	}
}

// touchTimes remembers when touch messages were sent.
type touchTimes struct {
	mu   sync.Mutex
	next uint64
	at   []time.Time // of messages next-len(at) to next-1
}

func (t *touchTimes) add(at time.Time) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.at) == 256 { // nothing comes back: the link is about to be cut
		t.at = t.at[1:]
	}
	t.at = append(t.at, at)
	t.next++
	return t.next - 1
}

func (t *touchTimes) take(number uint64) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := int64(number) - int64(t.next) + int64(len(t.at))
	if i < 0 || i >= int64(len(t.at)) {
		return time.Time{}, false
	}
	at := t.at[i]
	t.at = t.at[i+1:]
	return at, true
}

// inLink is another server's stream, at the leader. What it holds is forgotten
// when the link or the term ends; its origin sends it again.
type inLink struct {
	from uint32
	c    net.Conn

	mu      sync.Mutex
	room    sync.Cond
	queue   []block
	bytes   int
	closed  bool
	applied uint64 // how far that server says it is
	heard   time.Time
}

// linkSet are the links of one term.
type linkSet struct {
	work func()

	mu     sync.Mutex
	links  []*inLink
	next   int // where take begins, so that nobody starves
	closed bool
}

func (ls *linkSet) add(l *inLink) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ls.closed {
		ls.links = append(ls.links, l)
	}
	return !ls.closed
}

func (ls *linkSet) remove(l *inLink) {
	l.close()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if i := slices.Index(ls.links, l); i >= 0 {
		ls.links = slices.Delete(ls.links, i, i+1)
	}
}

func (ls *linkSet) closeAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.links {
		l.close()
	}
}

// progress returns how far each linked server is, by its own word.
func (ls *linkSet) progress() map[uint32]uint64 {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	m := map[uint32]uint64{}
	for _, l := range ls.links {
		l.mu.Lock()
		if time.Since(l.heard) < 5*time.Second {
			m[l.from] = l.applied
		}
		l.mu.Unlock()
	}
	return m
}

// take appends waiting blocks to an entry, link by link, while there is room.
func (ls *linkSet) take(entry []byte, room int, seen func(*block)) []byte {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := range ls.links {
		l := ls.links[(ls.next+i)%len(ls.links)]
		for room > 0 && len(entry) < batchBytes {
			bl, ok := l.pop()
			if !ok {
				break
			}
			if bl.birth != 0 {
				seen(&bl)
			}
			entry = appendBlock(entry, &bl)
			room -= int(bl.count)
		}
	}
	ls.next++
	if room <= 0 || len(entry) >= batchBytes {
		ls.work() // there may be more
	}
	return entry
}

func (l *inLink) pop() (block, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return block{}, false
	}
	bl := l.queue[0]
	l.queue = l.queue[1:]
	l.bytes -= len(bl.requests)
	l.room.Signal()
	return bl, true
}

// push queues a block, waiting while the queue is full: then the connection is
// not read and the origin waits as well.
func (l *inLink) push(bl block) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && (len(l.queue) >= linkQueue || l.bytes >= linkQueueByte) {
		l.room.Wait()
	}
	if l.closed {
		return false
	}
	l.queue = append(l.queue, bl)
	l.bytes += len(bl.requests)
	return true
}

func (l *inLink) close() {
	l.mu.Lock()
	l.closed = true
	l.queue = nil
	l.mu.Unlock()
	l.room.Broadcast()
	l.c.Close()
}

// serveLink is the leader's end of a link.
func (n *Node) serveLink(c net.Conn, from uint32) {
	t := n.term.Load()
	if t == nil {
		return
	}
	l := &inLink{from: from, c: c}
	l.room.L = &l.mu
	if !t.links.add(l) {
		return
	}
	defer t.links.remove(l)
	r := bufio.NewReaderSize(c, 64<<10)
	w := bufio.NewWriter(c)
	for {
		kind, payload, err := readFrame(r)
		if err == nil {
			err = t.receive(l, w, kind, payload)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				n.log.Debug("link ended", "peer", from, "err", err)
			}
			return
		}
	}
}

func (t *term) receive(l *inLink, w *bufio.Writer, kind byte, payload []byte) error {
	switch kind {
	case linkBlock:
		bl, rest, err := nextBlock(payload)
		if err != nil || len(rest) > 0 || bl.origin != l.from {
			return errors.New("bad block on a link")
		}
		if err := checkBlock(&bl); err != nil {
			return err
		}
		if !l.push(bl) {
			return net.ErrClosed
		}
		t.wake()
		return nil
	case linkTouch:
		if len(payload) < 16 || (len(payload)-16)%12 != 0 {
			return errors.New("bad touches on a link")
		}
		t.touched(l, payload)
		// The word "heard" is given only by a leader that holds its lease.
		if t.ctx.Err() != nil || t.n.raft.State() != raft.Leader {
			return errNotLeading
		}
		ack := binary.BigEndian.AppendUint64(payload[:8:8], t.n.fsm.index.Load())
		if err := writeFrame(w, linkAck, ack); err != nil {
			return err
		}
		return w.Flush()
	}
	return errors.New("unknown message on a link")
}

func (t *term) touched(l *inLink, payload []byte) {
	l.mu.Lock()
	l.applied, l.heard = binary.BigEndian.Uint64(payload[8:]), time.Now()
	l.mu.Unlock()
	list := make([]Touch, 0, (len(payload)-16)/12)
	for b := payload[16:]; len(b) > 0; b = b[12:] {
		list = append(list, Touch{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])})
	}
	t.tracker.touchAll(list)
}
