package raftfsm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
)

// actQueue holds what the leader proposes on its own account. It is dropped
// with the term, so nothing in it is ever proposed twice.
type actQueue struct {
	mu    sync.Mutex
	count uint32
	buf   []byte
	open  []block // open-stream requests, which belong to no stream yet
}

// add queues an act of the leader. Acts are conditional: Apply looks again.
func (q *actQueue) add(r Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.buf = appendRequest(q.buf, &r)
	q.count++
}

// addOpen queues a server's wish to open its stream.
func (q *actQueue) addOpen(bl block) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = append(q.open, bl)
}

func (q *actQueue) take(entry []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.open {
		entry = appendBlock(entry, &q.open[i])
	}
	q.open = nil
	if q.count > 0 {
		entry = appendBlock(entry, &block{count: q.count, requests: q.buf})
		q.count, q.buf = 0, q.buf[:0]
	}
	return entry
}

// touchEvery is how often a server looks whom it has heard from.
func (n *Node) touchEvery() time.Duration {
	return min(max(n.o.MinSessionTimeout/16, 10*time.Millisecond), 200*time.Millisecond)
}

const (
	expiryEvery  = 20 * time.Millisecond
	expiryBatch  = 1000
	reapPerSweep = 10_000
	digestGap    = 1000
	membersEvery = 250 * time.Millisecond
	membersWait  = 2 * time.Second
)

// duties are what a leader does besides proposing: hear of its own clients,
// expire, sweep, compare digests, publish the members.
func (t *term) duties() {
	n := t.n
	expiry := time.NewTicker(expiryEvery)
	defer expiry.Stop()
	touch := time.NewTicker(n.touchEvery())
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
	var heard []Touch
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-touch.C:
			if n.raft.State() == raft.Leader {
				n.gate.contact(n.o.HeartbeatTimeout)
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
		}
	}
}

// expire proposes the end of the sessions whose time is over. It holds only if
// nobody has attached to the session meanwhile.
func (t *term) expire() {
	// What another server heard just before the end may still be on its way.
	due := t.tracker.due(2*t.n.touchEvery(), expiryBatch, nil)
	if len(due) == 0 {
		return
	}
	t.n.View(func(s *State) {
		for _, id := range due {
			if sess, ok := s.Sessions().Get(id); ok {
				t.acts.add(Request{Session: id, Gen: sess.Gen, Op: OpExpire})
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
	t.n.View(func(s *State) {
		paths = s.Tree().Reapable(t.n.o.Now().UnixMilli(), reapPerSweep, nil)
	})
	for _, p := range paths {
		t.acts.add(Request{Op: OpReap, Body: []byte(p)})
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
	t.n.View(func(s *State) {
		if d, ok := s.digests.last(); ok && d.Zxid >= done+digestGap {
			done = d.Zxid
			body := binary.BigEndian.AppendUint64(nil, uint64(d.Zxid))
			t.acts.add(Request{Op: OpDigest, Body: binary.BigEndian.AppendUint64(body, d.Sum)})
		}
	})
	t.wake()
	return done
}

// publishMembers keeps /zookeeper/config and the member table in step with
// raft's configuration.
func (t *term) publishMembers() {
	n := t.n
	if n.port == nil {
		return
	}
	servers := n.servers()
	t.nudger.setFollowers(servers)
	slices.SortFunc(servers, func(a, b raft.Server) int { return int(parseID(a.ID)) - int(parseID(b.ID)) })
	n.View(func(s *State) {
		in := map[uint32]bool{}
		var lines []string
		for _, srv := range servers {
			id := parseID(srv.ID)
			in[id] = true
			if s.members[id].BirthID == "" && time.Since(t.began) < membersWait {
				return // it is about to say where clients reach it
			}
			lines = append(lines, configLine(srv, s.members[id].ClientAddr))
		}
		for id, m := range s.members {
			if !in[id] && m.BirthID != "" {
				t.acts.add(Request{Op: OpForget, Body: binary.BigEndian.AppendUint32(nil, id)})
				t.wake()
			}
		}
		text := strings.Join(lines, "\n")
		if info, ok := s.Tree().Get("/zookeeper/config"); ok && len(lines) > 0 && configMembers(string(info.Data)) != text {
			t.acts.add(Request{Op: OpConfig, Body: []byte(text)})
			t.wake()
		}
	})
}

// configLine is a server as clients of ZooKeeper know it. There is no election
// port, but Java clients insist on three ports that differ.
func configLine(srv raft.Server, client string) string {
	addr := string(srv.Address)
	role := "participant"
	if srv.Suffrage != raft.Voter {
		role = "observer"
	}
	line := fmt.Sprintf("server.%s=%s:%d:%s", srv.ID, addr, freePort(portOf(addr), portOf(client)), role)
	if client != "" {
		line += ";" + client
	}
	return line
}

func portOf(addr string) int {
	_, port, _ := strings.Cut(addr[strings.LastIndexByte(addr, '/')+1:][strings.LastIndexByte(addr, ']')+1:], ":")
	n, _ := strconv.Atoi(port)
	return n
}

// freePort returns a port next to the first that is neither of the two.
func freePort(peer, client int) int {
	for p := peer + 1; p <= 65535; p++ {
		if p != client {
			return p
		}
	}
	return peer - 2 // then client is 65535 or none of these
}

// configMembers is the config text without its version line.
func configMembers(text string) string {
	if i := strings.LastIndex(text, "\nversion="); i >= 0 {
		return text[:i]
	}
	return text
}

// openStream asks for a birth for this server's stream, if it has none. The
// request may be repeated: its nonce tells repetitions.
func (n *Node) openStream() {
	if n.fsm.stream.birthNow() != 0 {
		return
	}
	if t := n.term.Load(); t != nil {
		t.acts.addOpen(n.openBlock())
		t.wake()
	}
}

// openBlock is the request that opens this server's stream.
func (n *Node) openBlock() block {
	m := Member{ID: n.id, BirthID: n.whoAmI().Birth, PeerAddr: n.o.Peers[n.id], ClientAddr: n.o.ClientAddr}
	r := Request{Op: OpOpenStream, Body: jute.AppendLong(m.append(nil), n.currentNonce())}
	return block{origin: n.id, count: 1, requests: appendRequest(nil, &r)}
}

func (n *Node) currentNonce() int64 {
	n.nonceMu.Lock()
	defer n.nonceMu.Unlock()
	for n.nonce == 0 {
		n.nonce = randomInt(n.o.Rand)
	}
	return n.nonce
}

// streamOpened is called by Apply when a stream of ours was opened.
func (n *Node) streamOpened(nonce int64, birth uint32) {
	n.nonceMu.Lock()
	ours := nonce == n.nonce
	if !ours {
		// An earlier life of this server opened its stream late and took ours
		// away. Nothing under the old birth can be applied any more: begin anew.
		n.nonce = 0
	}
	n.nonceMu.Unlock()
	s := n.fsm.stream
	switch {
	case ours && s.birthNow() != birth:
		s.open(birth)
		select {
		case n.opened <- struct{}{}:
		default:
		}
	case !ours && s.birthNow() != 0:
		s.open(0)
		go n.openStream()
	}
}
