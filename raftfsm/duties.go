package raftfsm

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// actQueue holds what the leader proposes on its own account. It is dropped
// with the term, so nothing in it is ever proposed twice.
type actQueue struct {
	mu    sync.Mutex
	sizes []int         // of the requests in buf
	buf   []byte        // requests, encoded
	open  []state.Block // open-stream requests, which belong to no stream yet
}

// add queues an act of the leader. Acts are conditional: Apply looks again.
func (q *actQueue) add(r state.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := len(q.buf)
	q.buf = r.Append(q.buf)
	q.sizes = append(q.sizes, len(q.buf)-at)
}

// bytes is how much waits to be proposed.
func (q *actQueue) bytes() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.buf)
}

// addOpen queues a server's wish to open its stream.
func (q *actQueue) addOpen(bl state.Block) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = append(q.open, bl)
}

// take appends what waits to an entry: every wish to open a stream, and acts that
// fill half the entry at the most. more tells that some acts are left.
func (q *actQueue) take(entry []byte) (_ []byte, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.open {
		entry = q.open[i].Append(entry)
	}
	q.open = nil
	n, size := 0, 0
	for n < len(q.sizes) && (n == 0 || size+q.sizes[n] <= state.BatchBytes/2) {
		size += q.sizes[n]
		n++
	}
	if n > 0 {
		own := state.Block{Count: uint32(n), Requests: q.buf[:size]}
		entry = own.Append(entry)
		q.sizes = q.sizes[:copy(q.sizes, q.sizes[n:])]
		q.buf = q.buf[:copy(q.buf, q.buf[size:])]
	}
	return entry, len(q.sizes) > 0
}

// touchEvery is how often a server looks whom it has heard from.
func (o *Options) touchEvery() time.Duration {
	return min(max(o.MinSessionTimeout/16, 10*time.Millisecond), 200*time.Millisecond)
}

const (
	expiryEvery  = 20 * time.Millisecond
	expiryBatch  = 1000
	reapPerSweep = 10_000
	sweepBytes   = 4 << 20 // of paths that wait to be proposed
	digestGap    = 1000
	membersEvery = 250 * time.Millisecond
)

// duties are what a leader does besides proposing: hear of its own clients,
// expire, sweep, compare digests, publish the members.
func (t *term) duties() {
	n := t.n
	expiry := time.NewTicker(expiryEvery)
	defer expiry.Stop()
	touch := time.NewTicker(n.o.touchEvery())
	defer touch.Stop()
	sweep := time.NewTicker(n.o.SweepInterval)
	defer sweep.Stop()
	members := time.NewTicker(membersEvery)
	defer members.Stop()
	t.publishMembers()
	t.lookAtRoom()
	// A loop that wakes late has not been listening: touches wait unread in
	// sockets. It must not act on deadlines before everybody had the time to be
	// heard again.
	late := min(time.Second, n.o.MinSessionTimeout/4)
	last := time.Now()
	var digested int64
	var left abandoned
	var heard []state.Touch
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-touch.C:
			if n.raft.Leads() {
				n.serving.contact()
			}
			if n.o.Observer != nil {
				heard = n.o.Observer.Heard(heard[:0])
				t.tracker.touchAll(heard)
			}
		case <-expiry.C:
			now := time.Now()
			if stall := now.Sub(last); stall > late+expiryEvery {
				n.log.Warn("this server was stalled; all sessions get more time", "stall", stall.Round(time.Millisecond))
				t.tracker.stalled(stall)
			}
			last = now
			t.expire()
		case <-sweep.C:
			t.sweep()
		case <-t.members:
			t.publishMembers()
		case <-members.C:
			t.publishMembers()
			digested = t.compareDigests(digested)
			t.lookAtRoom()
			left.look(t)
		}
	}
}

// expire proposes the end of the sessions whose time is over. It holds only if
// nobody has attached to the session meanwhile.
func (t *term) expire() {
	// What another server heard just before the end may still be on its way.
	due := t.tracker.due(2*t.n.o.touchEvery(), expiryBatch, nil)
	if len(due) == 0 {
		return
	}
	t.n.View(func(s *state.State) {
		for _, id := range due {
			if sess, ok := s.Sessions().Get(id); ok {
				t.acts.add(state.Request{Session: id, Gen: sess.Gen, Op: state.OpExpire})
			} else {
				t.tracker.remove(id)
			}
		}
	})
	t.wake()
}

// sweep proposes the removal of empty containers and overdue TTL nodes.
func (t *term) sweep() {
	var paths []string
	t.n.View(func(s *state.State) {
		paths = s.Tree().Reapable(t.n.o.Now().UnixMilli(), reapPerSweep, nil)
	})
	for _, p := range paths {
		if t.acts.bytes() > sweepBytes {
			break // the next sweep finds the rest
		}
		t.acts.add(state.Request{Op: state.OpReap, Body: []byte(p)})
	}
	if len(paths) > 0 {
		t.wake()
	}
}

// compareDigests lets every server compare its state with ours now and then.
func (t *term) compareDigests(done int64) int64 {
	if t.n.port == nil {
		return done
	}
	t.n.View(func(s *state.State) {
		if d, ok := s.LastDigest(); ok && d.Zxid >= done+digestGap {
			done = d.Zxid
			body := binary.BigEndian.AppendUint64(nil, uint64(d.Zxid))
			t.acts.add(state.Request{Op: state.OpDigest, Body: binary.BigEndian.AppendUint64(body, d.Sum)})
		}
	})
	t.wake()
	return done
}
