package raftfsm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

// actQueue holds what the leader proposes on its own account. It is dropped
// with the term, so nothing in it is ever proposed twice.
//
// Of what may be much at once, the ends of sessions and the removal of nodes, the queue is apart: the
// members are published before it.
type actQueue struct {
	mu    sync.Mutex
	list  [][]byte // requests, encoded
	ends  []int64  // sessions to be ended
	due   map[int64]ending
	reaps [][]byte // requests, encoded
	size  int      // of reaps
	open  []byte   // blocks with open-stream requests, which belong to no stream yet
}

// ending is the end of a session that waits to be proposed. However often the session is found overdue while
// it waits, it is proposed once.
type ending struct {
	gen  uint32
	cost int // of applying it: 1, and 1 for each of its nodes
}

// propose queues an act of the leader. Acts are conditional: Apply looks again.
func (t *term) propose(r state.Request) {
	t.acts.add(r)
	t.wake()
}

func (q *actQueue) add(r state.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	act := r.Append(nil)
	if r.Op == state.OpReap {
		q.reaps, q.size = append(q.reaps, act), q.size+len(act)
	} else {
		q.list = append(q.list, act)
	}
}

// end queues the end of a session.
func (q *actQueue) end(session int64, e ending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.due == nil {
		q.due = map[int64]ending{}
	}
	if _, waits := q.due[session]; !waits {
		q.ends = append(q.ends, session)
	}
	q.due[session] = e
}

// reaping is how many bytes of removals wait to be proposed.
func (q *actQueue) reaping() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// addOpen queues a server's wish to open its stream.
func (q *actQueue) addOpen(bl state.Block) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = bl.Append(q.open)
}

// take appends what waits to an entry: every wish to open a stream, up to actsInEntry acts, and ends of
// sessions up to endsInEntry. They fill half the entry at the most. more tells that some are left.
func (q *actQueue) take(entry []byte) (_ []byte, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	entry = append(entry, q.open...)
	q.open = nil
	own := state.Block{}
	fits := func(size int) bool {
		return own.Count == 0 || len(own.Requests)+size <= state.BatchBytes/2
	}
	acts := func(list [][]byte) (rest [][]byte) {
		for len(list) > 0 && own.Count < actsInEntry && fits(len(list[0])) {
			own.Requests, own.Count = append(own.Requests, list[0]...), own.Count+1
			list = list[1:]
		}
		return list
	}
	q.list = acts(q.list)
	cost := 0
	for len(q.ends) > 0 {
		session := q.ends[0]
		e := q.due[session]
		if cost > 0 && cost+e.cost > endsInEntry || !fits(endBytes) {
			break
		}
		r := state.End(session, e.gen, state.EndExpired)
		own.Requests, own.Count = r.Append(own.Requests), own.Count+1
		cost += e.cost
		q.ends = q.ends[1:]
		delete(q.due, session)
	}
	was := len(own.Requests)
	q.reaps = acts(q.reaps)
	q.size -= len(own.Requests) - was
	if own.Count > 0 {
		entry = own.Append(entry)
	}
	return entry, len(q.list)+len(q.ends)+len(q.reaps) > 0
}

// touchEvery returns how often a server looks which sessions it has heard from.
func (o *Options) touchEvery() time.Duration {
	return min(max(o.MinSessionTimeout/16, 10*time.Millisecond), 250*time.Millisecond)
}

const (
	expiryBatch  = 1000
	reapPerSweep = 10_000
	sweepBytes   = 4 << 20 // of paths that wait to be proposed
	actsInEntry  = 100     // the state is locked while all of an entry is applied
	endsInEntry  = 1000    // sessions that end, and their nodes
	endBytes     = 64      // no end of a session is longer
	digestGap    = 1000
	membersEvery = 250 * time.Millisecond
)

// duties are what a leader does besides proposing: hear of its own clients,
// expire, sweep, compare digests, publish the members.
func (t *term) duties() {
	n := t.n
	every := n.o.touchEvery()
	tick := time.NewTimer(n.raft.Beat(every))
	defer tick.Stop()
	expiry := time.NewTimer(every) // of the next deadline, if it comes before the next tick
	defer expiry.Stop()
	sweep := time.NewTicker(n.o.SweepInterval)
	defer sweep.Stop()
	t.publishMembers()
	t.lookAtRoom()
	// A loop that wakes late has not been listening: touches wait unread in sockets. It must not act
	// on deadlines before every session had the time to be heard again.
	late := min(time.Second, n.o.MinSessionTimeout/4)
	last, looked := time.Now(), time.Now()
	var digested int64
	var left abandoned
	var heard []state.Touch
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.members:
			t.publishMembers()
			continue
		case <-sweep.C:
			t.sweep()
			continue
		case <-expiry.C:
		case <-tick.C:
			tick.Reset(n.raft.Beat(every))
			if n.raft.Leads() {
				n.serving.contact()
			}
			heard = n.o.Observer.Heard(heard[:0], false)
			t.tracker.touchAll(heard)
			if time.Since(looked) >= membersEvery-every/2 {
				looked = time.Now()
				t.publishMembers()
				digested = t.compareDigests(digested)
				t.endTickets()
				t.lookAtRoom()
				left.look(t)
			}
		}
		now := time.Now()
		if stall := now.Sub(last); stall > late {
			n.log.Warn("this server was stalled; all sessions get more time", "stall", stall.Round(time.Millisecond))
			t.tracker.stalled(stall)
		}
		last = now
		t.expire(now)
		expiry.Reset(t.tracker.next(t.grace(), every))
	}
}

// grace is how long a session outlives its timeout: what another server heard just before the end
// may still be on its way.
func (t *term) grace() time.Duration { return 2 * t.n.o.touchEvery() }

// expire proposes the end of the sessions whose time is over. Apply ends a session only if no
// client has attached to it since. now is the time at which this server last was not stalled.
func (t *term) expire(now time.Time) {
	due := t.tracker.due(now.Add(-t.grace()), expiryBatch)
	if len(due) == 0 {
		return
	}
	t.n.View(func(s *state.State) {
		for _, id := range due {
			if sess, ok := s.Sessions().Get(id); ok {
				t.acts.end(id, ending{sess.Gen, 1 + s.Tree().EphemeralsIn(id)})
			} else {
				t.tracker.remove(id)
			}
		}
	})
	t.wake()
}

// sweep proposes the removal of empty containers and overdue TTL nodes, up to reapPerSweep of them and
// sweepBytes of paths: the next sweep finds the rest.
func (t *term) sweep() {
	for from, left := 0, reapPerSweep; left > 0; {
		var paths []string
		t.n.View(func(s *state.State) {
			paths, from = s.Tree().Reapable(t.n.o.Now().UnixMilli(), from, left, nil)
		})
		for _, p := range paths {
			if t.acts.reaping() > sweepBytes {
				return
			}
			t.propose(state.Request{Op: state.OpReap, Body: []byte(p)})
		}
		if left -= len(paths); from == 0 {
			return
		}
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
			t.propose(state.Request{Op: state.OpDigest, Body: binary.BigEndian.AppendUint64(body, d.Sum)})
		}
	})
	return done
}

// lookAtRoom decides whether requests that need more room are refused from now
// on. The decision travels with the entries, so that all servers agree; a log
// that can still be written keeps sessions, deletions and the cluster alive.
func (t *term) lookAtRoom() {
	low := t.lowest()
	why := cmp.Or(low, t.n.noRoom())
	if full := why != ""; full != t.full.Swap(full) {
		if full {
			t.n.log.Warn("requests that need more room are refused", "reason", why)
		} else {
			t.n.log.Info("requests that need more room are taken again")
		}
	}
	if (low != "") != t.low.Swap(low != "") {
		t.n.addBarrier() // all servers must know before a client asks
	}
}

// lowest says which server's disk is low; empty: none. One is enough: a server
// that cannot store an entry ends.
func (t *term) lowest() string {
	if why := *t.n.lowDisk.Load(); why != "" {
		return why
	}
	return t.links.full()
}

// noRoom says why to refuse requests that need more room; empty: there is room.
func (n *Node) noRoom() string {
	var nodes int
	var bytes int64
	n.View(func(s *state.State) { nodes, bytes = s.Tree().Count(), s.Tree().Bytes()+s.Tree().ACLBytes() })
	switch {
	case n.o.MaxNodes > 0 && nodes >= n.o.MaxNodes:
		return fmt.Sprintf("there are %d nodes, and no more than %d are allowed", nodes, n.o.MaxNodes)
	case n.o.MaxBytes > 0 && bytes >= n.o.MaxBytes:
		return fmt.Sprintf("the data and ACLs are %d bytes, and no more than %d are allowed", bytes, n.o.MaxBytes)
	}
	return *n.lowDisk.Load()
}

const roomLook = 250 * time.Millisecond

// watchDisk looks how much room is left on this server's disk, in a goroutine of its own: a disk
// that hangs must not hold up the goroutines that ask.
func (n *Node) watchDisk() {
	for more := true; more; more = signal.Pause(n.ctx, n.raft.Beat(roomLook)) {
		why := n.diskIsLow(0)
		n.lowDisk.Store(&why)
	}
}

// diskIsLow says why this server's disk would be low with so many bytes less
// free than now; empty: it would not.
func (n *Node) diskIsLow(less int64) string {
	free, err := n.o.FreeBytes(n.o.DataDir)
	if err != nil {
		return ""
	}
	snapshot, _ := n.disk.NewestSnapshot()
	reserve := max(n.o.DiskReserve, 2*snapshot)
	if free -= less; free < reserve {
		return fmt.Sprintf("the disk of %s has %d MiB left, less than the %d MiB kept free for log and snapshots",
			n.o.DataDir, free>>20, reserve>>20)
	}
	return ""
}

// tracker holds the deadlines of all sessions while this server leads. It
// lives for one leadership term: a new leader knows nothing of earlier touches
// and gives every session its full timeout.
type tracker struct {
	start time.Time // origin of the monotonic times below

	mu     sync.Mutex
	expiry *session.Expiry
}

func newTracker() *tracker {
	return &tracker{start: time.Now(), expiry: session.NewExpiry()}
}

func (t *tracker) now() time.Duration { return time.Since(t.start) }

// touch notes that a session has this timeout, in ms, and was heard from now.
func (t *tracker) touch(id int64, timeout int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expiry.Touch(id, time.Duration(timeout)*time.Millisecond, t.now())
}

func (t *tracker) touchAll(list []state.Touch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, h := range list {
		t.expiry.Heard(h.Session, now-time.Duration(h.Age)*time.Millisecond)
	}
}

func (t *tracker) remove(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expiry.Remove(id)
}

// replace replaces all known sessions by those of another state, with their full timeouts.
func (t *tracker) replace(sessions *session.Table) {
	t.mu.Lock()
	t.expiry = session.NewExpiry()
	t.mu.Unlock()
	sessions.All(func(s session.Session) { t.touch(s.ID, s.Timeout) })
}

// due returns up to limit sessions whose time was over at a moment.
func (t *tracker) due(at time.Time, limit int) []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expiry.Due(at.Sub(t.start), limit, nil)
}

// next returns how long no session becomes due for due, at most limit.
func (t *tracker) next(grace, limit time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now() - grace
	return max(t.expiry.Next(now+limit)-now, time.Millisecond)
}

// stallCredit is how many times the length of a stall every session gets for it: its client may
// have to connect again first.
const stallCredit = 4

// stalled gives every session more time because this server did not listen for so long, but at most
// its full timeout from now on: a server that stalls often still expires silent sessions.
func (t *tracker) stalled(long time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.expiry.All(func(id int64, timeout, at time.Duration) {
		t.expiry.Heard(id, min(now, at-timeout+stallCredit*long))
	})
}

// deadlines returns the time left to each session.
func (t *tracker) deadlines() map[int64]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	left := make(map[int64]time.Duration, t.expiry.Len())
	t.expiry.All(func(id int64, _, at time.Duration) { left[id] = at - now })
	return left
}
