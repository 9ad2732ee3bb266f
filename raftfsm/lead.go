package raftfsm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/session"
)

// noteLeadership does nothing but remember what raft says of leadership: raft
// blocks its main loop until it is heard, so whoever listens must not call
// raft.
func (n *Node) noteLeadership() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case leading := <-n.leadership:
			n.leadMu.Lock()
			n.leading = leading
			n.leadCount++
			n.leadMu.Unlock()
			select {
			case n.leadNews <- struct{}{}:
			default:
			}
		}
	}
}

func (n *Node) leadState() (bool, uint64) {
	n.leadMu.Lock()
	defer n.leadMu.Unlock()
	return n.leading, n.leadCount
}

// lead runs one term after the other, never two at once. Leadership lost and
// regained is a new term.
func (n *Node) lead() {
	for {
		leading, count := n.leadState()
		if !leading {
			select {
			case <-n.ctx.Done():
				return
			case <-n.leadNews:
			}
			continue
		}
		err := n.oneTerm(count)
		if n.ctx.Err() != nil {
			return
		}
		if now, c := n.leadState(); now && c == count {
			// Still leader by raft's word: a proposal failed, or leadership was
			// about to be handed over. Begin again, from the barrier on.
			n.log.Debug("leadership term begins again", "err", err)
			select {
			case <-n.ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// oneTerm leads until leadership changes, and returns when nothing of the term
// is left running.
func (n *Node) oneTerm(count uint64) error {
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- n.runTerm(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-n.leadNews:
			if _, c := n.leadState(); c != count {
				cancel()
			}
		}
	}
}

// term is one leadership of this server.
type term struct {
	n       *Node
	ctx     context.Context
	began   time.Time
	tracker *tracker
	reader  uint64        // our right to take from our own stream
	work    chan struct{} // holds a token when the batcher may find work
	acts    actQueue      // what the leader proposes on its own account
	links   linkSet       // streams of the other servers
	nudger  *nudger
	members chan struct{} // holds a token when a member has announced itself
	full    atomic.Bool   // what needs more room is refused
}

// runTerm leads until ctx ends or a proposal fails.
func (n *Node) runTerm(ctx context.Context) error {
	// Winning an election says nothing about what is applied. After the
	// barrier everything ever acknowledged is.
	if err := await(ctx, n.raft.Barrier(0)); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &term{n: n, ctx: ctx, began: time.Now(), tracker: newTracker(), work: make(chan struct{}, 1), members: make(chan struct{}, 1)}
	t.links.work = t.wake
	n.fsm.mu.RLock() // no session can come or go between the listing and the publishing
	n.fsm.state.sessions.All(func(s session.Session) { t.tracker.touch(s.ID, s.Timeout, 0) })
	n.fsm.tracker.Store(t.tracker)
	n.fsm.mu.RUnlock()
	t.reader = n.fsm.stream.rewind()
	n.term.Store(t)
	n.elections.Add(1)
	n.gate.contact(n.o.HeartbeatTimeout)
	n.log.Info("this server leads", "term", n.raft.CurrentTerm(), "zxid", fmt.Sprintf("0x%x", n.Zxid()))
	defer func() {
		n.term.CompareAndSwap(t, nil)
		n.fsm.tracker.CompareAndSwap(t.tracker, nil)
		t.links.closeAll()
		n.log.Info("this server leads no more")
	}()
	t.nudger = newNudger(t)
	defer t.nudger.close()
	duties := make(chan struct{})
	go func() {
		defer close(duties)
		t.duties()
	}()
	defer func() { cancel(); <-duties }()
	n.openStream()
	err := t.batch()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// await waits for a future of raft's, which may never complete, until ctx ends.
func await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// memberNews makes the leader look at the members again.
func (t *term) memberNews() {
	select {
	case t.members <- struct{}{}:
	default:
	}
}

func (t *term) wake() {
	select {
	case t.work <- struct{}{}:
	default:
	}
}

// Bounds of an entry: larger ones cost more latency than they save syncs.
const (
	batchRequests = 1000
	batchBytes    = 256 << 10
)

// batch proposes what has come in while the last entry was on its way: one
// entry in flight, one being filled. A lone request leaves at once.
func (t *term) batch() error {
	n := t.n
	var options byte
	if n.o.NoQuota {
		options |= entryNoQuota
	}
	if n.o.NoTTL {
		options |= entryNoTTL
	}
	size := 1 << 10
	for {
		o := options
		if t.full.Load() {
			o |= entryFull
		}
		entry := beginEntry(make([]byte, 0, size), o)
		entry = t.fill(entry)
		if len(entry) == entryHeaderSize {
			t.nudger.settle()
			select {
			case <-t.ctx.Done():
				return t.ctx.Err()
			case <-n.fsm.stream.ready:
			case <-t.work:
			}
			continue
		}
		size = min(max(1<<10, len(entry)+len(entry)/4), batchBytes)
		sealEntry(entry, n.o.Now().UnixMilli())
		if err := await(t.ctx, n.raft.Apply(entry, time.Second)); err != nil {
			// Whether the entry commits is not known. It does not matter: the
			// streams are sent again, and Apply skips what it has seen.
			return err
		}
	}
}

// fill appends blocks from our own stream, from every link and of the leader's
// own acts.
func (t *term) fill(entry []byte) []byte {
	entry = t.acts.take(entry)
	room := batchRequests
	at := len(entry)
	own := t.n.fsm.stream.take(t.reader, t.n.id, room, batchBytes, append(entry, make([]byte, blockHeaderSize)...))
	if own.count > 0 {
		entry = own.requests
		own.requests = entry[at+blockHeaderSize:]
		putBlockHeader(entry[at:], &own)
		t.heardOf(&own)
		room -= int(own.count)
	}
	return t.links.take(entry, room, t.heardOf)
}

// heardOf touches the sessions of proposed requests: a write, and above all a
// sync, must keep its session alive at the leader.
func (t *term) heardOf(bl *block) {
	rest := bl.requests
	t.tracker.mu.Lock()
	defer t.tracker.mu.Unlock()
	now := t.tracker.now()
	for range bl.count {
		id, next := peekRequest(rest)
		if d, ok := t.tracker.timeouts[id]; ok {
			t.tracker.expiry.Touch(id, d, now)
		}
		rest = next
	}
}

// peekRequest returns the session of the first request of b, which must be
// well formed, and what follows it.
func peekRequest(b []byte) (session int64, rest []byte) {
	session = int64(binary.BigEndian.Uint64(b))
	ids := int(int32(binary.BigEndian.Uint32(b[16:])))
	b = b[20:]
	for range 2 * max(ids, 0) {
		b = b[4+max(0, int(int32(binary.BigEndian.Uint32(b)))):]
	}
	return session, b[4+max(0, int(int32(binary.BigEndian.Uint32(b)))):]
}

// errNotLeading is answered to whoever takes this server for the leader.
var errNotLeading = errors.New("this server does not lead")
