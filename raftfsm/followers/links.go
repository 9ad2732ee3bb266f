package followers

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/status"
)

const (
	linkQueue     = 2048     // how many blocks the leader holds for one server
	linkQueueByte = 32 << 20 // how many bytes the blocks of one server may have
)

// Link is another server's stream, as the leader receives it. When the link or the term ends, the leader
// drops the blocks of the link, and the other server sends them again.
type Link struct {
	peer.Greeting // the greeting of the other server
	Conn          net.Conn

	set     *Links // the lock of `set` guards the fields below
	room    sync.Cond
	queue   []entries.Block
	bytes   int
	applied uint64 // the log index that the server says it has applied
	heard   time.Time
	full    string // why the server asks to refuse requests that need more room
	fullAt  time.Time
}

// Links are the links that a leader has in one term.
type Links struct {
	mu     sync.Mutex
	links  []*Link
	closed bool
}

// Add adds a link; it returns false when the term is over.
func (ls *Links) Add(l *Link) bool {
	l.set, l.room.L = ls, &ls.mu
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ls.closed {
		ls.links = append(ls.links, l)
	}
	return !ls.closed
}

// Remove closes and removes a link.
func (ls *Links) Remove(l *Link) {
	l.Conn.Close() // without the lock, because with TLS Close may wait for the other server
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.links = slices.DeleteFunc(ls.links, func(o *Link) bool { return o == l })
}

// Close closes all links when the term is over.
func (ls *Links) Close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.links {
		l.room.Broadcast()
		go l.Conn.Close() // with TLS, Close may wait for the other server
	}
}

// LeastVersion returns the newest version that this server and all linked servers understand.
func (ls *Links) LeastVersion() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	least := peer.Version
	for _, l := range ls.links {
		least = min(least, l.Version)
	}
	return least
}

// Far returns the progress of each linked server. known() returns a member's incarnation. Far ignores a link
// of another incarnation: the process of a server that was replaced may still hold its link, and must not
// speak for the new server.
func (ls *Links) Far(known func(id uint32) (incarnation string)) map[uint32]status.Progress {
	ls.mu.Lock()
	links := slices.Clone(ls.links)
	ls.mu.Unlock()
	links = slices.DeleteFunc(links, func(l *Link) bool { return known(l.From) != l.Incarnation })
	ls.mu.Lock()
	defer ls.mu.Unlock()
	m := map[uint32]status.Progress{}
	for _, l := range links {
		if !l.heard.IsZero() {
			m[l.From] = status.Progress{Applied: l.applied,
				Heard:   status.Ago(time.Since(l.heard).Milliseconds()),
				Version: l.Release, Starts: l.Start}
		}
	}
	return m
}

// Cut closes the links of a server that is no longer a member, because its process may still run.
func (ls *Links) Cut(id uint32) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.links {
		if l.From == id {
			go l.Conn.Close() // with TLS, Close may wait for the other server
		}
	}
}

// Progress returns the index that each linked member has applied, if the member reported it recently.
func (ls *Links) Progress(known func(id uint32) (incarnation string)) map[uint32]uint64 {
	m := map[uint32]uint64{}
	for id, p := range ls.Far(known) {
		if p.Reached() {
			m[id] = p.Applied
		}
	}
	return m
}

// fullFor is how long a report of too little free disk space stays valid.
const fullFor = 2 * time.Second

// Full returns why a server asks to refuse requests that need more room. It returns "" if no server asks for
// that.
func (ls *Links) Full() string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.links {
		if l.full != "" && time.Since(l.fullAt) < fullFor {
			return fmt.Sprintf("server %d: %s", l.From, l.full)
		}
	}
	return ""
}

// Waiting returns the links that hold blocks.
func (ls *Links) Waiting() (list []*Link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.links {
		if len(l.queue) > 0 {
			list = append(list, l)
		}
	}
	return list
}

// Pop takes the oldest block; ok is false if there is none.
func (l *Link) Pop() (_ entries.Block, ok bool) {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	if len(l.queue) == 0 {
		return entries.Block{}, false
	}
	bl := l.queue[0]
	l.queue = l.queue[1:]
	l.bytes -= len(bl.Requests)
	l.room.Signal()
	return bl, true
}

// Push queues a block. While the queue is full, Push waits; the connection is not read during that time, so
// the other server waits as well. Push returns false when the term is over.
func (l *Link) Push(bl entries.Block) bool {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	for !l.set.closed && (len(l.queue) >= linkQueue || l.bytes >= linkQueueByte) {
		l.room.Wait()
	}
	l.queue = append(l.queue, bl)
	l.bytes += len(bl.Requests)
	return !l.set.closed
}

// SetApplied notes how far the server says it has applied the log.
func (l *Link) SetApplied(index uint64) {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.applied, l.heard = index, time.Now()
}

// Applied returns the log index that the server last reported as applied. It returns 0 if the server has not
// reported yet.
func (l *Link) Applied() uint64 {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	return l.applied
}

// SetFull notes why the server asks to refuse requests that need more room.
func (l *Link) SetFull(why string) {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.full, l.fullAt = why, time.Now()
}
