package clients

import (
	"strings"
	"sync"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/watches"
)

// watchTable holds the watches of this server's connections. Its lock is taken inside the state
// lock, and outbox locks are taken inside it.
type watchTable struct {
	srv *Server

	mu    sync.Mutex
	table *watches.Table[*conn]

	telling
	hear  func(*conn)
	above func(path uint32)
}

func (t *watchTable) init(s *Server) {
	t.srv = s
	t.table = watches.New[*conn]()
	t.hear, t.above = t.hearOne, t.aboveOne
	t.asked, t.deepOf = make(map[question]bool), make(map[uint32]int)
}

// add registers a watch. It reports false when there are too many, and ends
// the connection.
func (t *watchTable) add(c *conn, path string, kind watches.Kind) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.watching.dropped {
		return false // a parked read may be answered during the end of its connection
	}
	if !t.room(c, len(path)) {
		c.kill(ends.Watches)
		t.srv.flush.kick()
		return false
	}
	t.table.Add(c, path, kind)
	return true
}

const (
	// smallWatches is how many bytes of watches a connection may have even when the bound for all is reached:
	// one greedy connection must not keep out modest ones.
	smallWatches = 64 << 10
	// watchStep is how much a connection's watches grow before the server counts the watches of its address
	// again.
	watchStep = 64 << 10
)

// room reports whether c may have one more watch, on a path of this length.
func (t *watchTable) room(c *conn, path int) bool {
	o := &t.srv.o
	count, before := t.table.Of(c)
	bytes := before + path
	switch {
	case count >= o.MaxWatchesPerConn || t.table.Count() >= o.MaxWatches || bytes > o.MaxWatchBytesPerConn:
		return false
	case bytes <= smallWatches:
		return true
	case t.table.Bytes()+int64(path) > int64(o.MaxWatchBytes):
		return false
	case t.srv.shares.Bound() && before/watchStep != bytes/watchStep:
		c.from.account.SetWatches(t.bytesOf(c.host))
		return t.srv.shares.Room(&c.from.account, path)
	}
	return true
}

// recount counts the memory of all watches of one address again.
func (t *watchTable) recount(from *address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from.account.SetWatches(t.bytesOf(from.host))
}

// CountWatches implements budget.Holder.
func (c *conn) CountWatches() { c.srv.watches.recount(c.from) }

// bytesOf returns the memory of all watches of one address.
func (t *watchTable) bytesOf(host string) (sum int) {
	for _, c := range t.srv.from(host) {
		_, bytes := t.table.Of(c)
		sum += bytes
	}
	return sum
}

// drop removes a connection's watches, a few at a time, because the goroutine that applies the log may wait
// for the lock.
func (t *watchTable) drop(c *conn) {
	t.mu.Lock()
	c.watching.dropped = true
	_, bytes := t.table.Of(c)
	more := t.table.Drop(c)
	t.mu.Unlock()
	if bytes >= watchStep {
		t.recount(c.from)
	}
	for more {
		t.mu.Lock()
		more = t.table.Sweep(sweepStep)
		t.mu.Unlock()
	}
}

// sweepStep is how many watches drop removes under one hold of the lock.
const sweepStep = 4096

// reset removes every watch.
func (t *watchTable) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table = watches.New[*conn]()
}

// watchOp answers addWatch, removeWatches and checkWatches. It asks the table before it locks the outbox,
// because the locks have this order.
func (c *conn) watchOp(st *state.State, xid int32, op jute.OpCode, body []byte) (open bool) {
	d := jute.NewDecoder(body)
	path, named := d.String()
	n := d.Int()
	c.reads.cost += int64(tree.WatchSteps(path))
	var code jute.ErrCode
	var record []byte
	open = true
	switch {
	case d.Err() != nil || !named:
		code = jute.MarshallingError
	case op != jute.OpAddWatch && !watches.Known(n):
		code = jute.MarshallingError
	case op == jute.OpCheckWatches && path != "" && !strings.Contains(path, "/"):
		code = jute.MarshallingError // ZooKeeper fails while it walks up to the root
	case op != jute.OpAddWatch:
		if !c.srv.watches.find(c, op, path, n) {
			code = jute.NoWatcher
		}
	case n != jute.AddWatchPersistent && n != jute.AddWatchRecursive:
		code = jute.MarshallingError
	case !strings.HasPrefix(path, "/"):
		code = jute.BadArguments
	default:
		kind := watches.Persistent
		if n == jute.AddWatchRecursive {
			kind = watches.Recursive
		}
		open = c.srv.watches.add(c, path, kind)
		record = []byte{0, 0, 0, 0}
	}
	return open && c.reply(xid, op, st.Zxid(), code, record)
}

// find reports whether c has such a watch, and removes the watch if op is removeWatches.
func (t *watchTable) find(c *conn, op jute.OpCode, path string, watcherType int32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if op == jute.OpRemoveWatches {
		return t.table.Remove(c, path, watcherType)
	}
	return t.table.Has(c, path, watcherType)
}

// Watching reports whether a session watches exactly this path; known is false if the session is not
// connected to this server.
func (s *Server) Watching(session int64, path string) (watching, known bool) {
	c := s.connOf(session)
	if c == nil {
		return false, false
	}
	t := &s.watches
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.table.Has(c, path, jute.WatcherAny), true
}

// Watchers returns up to most of the sessions connected here that watch exactly
// this path.
func (s *Server) Watchers(path string, most int) (sessions []int64) {
	t := &s.watches
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table.WatchersAt(path, most, func(c *conn) { sessions = append(sessions, c.session) })
	return sessions
}

// WatchCount returns how many watches a session has at this server.
func (s *Server) WatchCount(session int64) int {
	c := s.connOf(session)
	if c == nil {
		return 0
	}
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	count, _ := s.watches.table.Of(c)
	return count
}
