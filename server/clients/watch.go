package clients

import (
	"strings"
	"sync"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree"
)

// watchTable holds the watches of this server's connections. Its lock is taken inside the state
// lock, and outbox locks are taken inside it.
type watchTable struct {
	srv *Server

	mu    sync.Mutex
	table *tree.Watches[*conn]

	// The event being told, by the goroutine that applies the log.
	zxid  int64
	event *tree.Event
	frame []byte // serialised once, when the first connection is told
	told  int
	tell  func(*conn)
	asked map[question]bool // of the change being told

	accounts []*account // of those told of the change
}

// question is whether a client with these identities may read a node with this ACL.
type question struct {
	ids *[]jute.ID
	acl *tree.ACL
}

func (t *watchTable) init(s *Server) {
	t.srv = s
	t.table = tree.NewWatches[*conn]()
	t.tell = t.tellOne
	t.asked = make(map[question]bool)
}

// add registers a watch. It reports false when there are too many, and ends
// the connection.
func (t *watchTable) add(c *conn, path string, kind tree.WatchKind) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dropped {
		return false // a parked read is answered while its connection ends
	}
	if !t.room(c, len(path)) {
		c.kill(endWatches)
		t.srv.flush.kick()
		return false
	}
	t.table.Add(c, path, kind)
	return true
}

const (
	// smallWatches is how many bytes a connection may have however much others have: a connection
	// that takes everything must not keep out those that want little.
	smallWatches = 64 << 10
	// watchStep is how much a connection's watches grow until those from its
	// address are added up again.
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
	case t.srv.boundsAddresses() && before/watchStep != bytes/watchStep:
		c.from.watches.Store(int64(t.bytesOf(c.host)))
		return c.from.roomFor(t.srv, path)
	}
	return true
}

// recount adds up again what the connections from one address have.
func (t *watchTable) recount(from *address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from.watches.Store(int64(t.bytesOf(from.host)))
}

// bytesOf adds up what the connections from one address have.
func (t *watchTable) bytesOf(host string) (sum int) {
	for _, c := range t.srv.from(host) {
		_, bytes := t.table.Of(c)
		sum += bytes
	}
	return sum
}

// fire tells every connection that watches of one event.
func (t *watchTable) fire(zxid int64, e *tree.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.zxid, t.event, t.frame, t.told = zxid, e, t.frame[:0], 0
	t.table.Fire(e, t.tell)
	t.event = nil
	if t.told > 0 {
		t.srv.noteFired(e.Type, t.told, len(t.frame))
	}
}

// tellOne appends the event to one connection's outbox, if the client may
// read the node.
func (t *watchTable) tellOne(c *conn) {
	if !t.mayTell(c) {
		return
	}
	if len(t.frame) == 0 {
		t.frame = jute.AppendEventFrame(t.frame, t.zxid, t.event.Type, t.event.Path)
	}
	t.told++
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.accepts(&t.srv.o) {
		c.out.append(t.frame)
		c.grown(true)
	}
	c.touch()
}

// mayTell tells whether a connection hears of the event: its client may read the node,
// and its address has not been told too much.
func (t *watchTable) mayTell(c *conn) bool {
	a := &c.from.account
	if a.told == 0 {
		t.accounts = append(t.accounts, a)
		if a.owed.Load() > t.srv.share(debtTime) {
			a.told = maxTells
		}
	}
	if a.told += 1 + len(t.event.Path)/tellBytes; a.told > maxTells && t.srv.boundsAddresses() {
		c.kill(endEvents)
		return false
	}
	return t.mayRead(a, c.ids.Load())
}

// settle charges the addresses for what they were told of a change.
func (t *watchTable) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.accounts {
		a.owed.Add(int64(min(a.told, maxTells)))
		a.told = 0
	}
	clear(t.accounts)
	t.accounts = t.accounts[:0]
	if len(t.asked) > 0 {
		t.asked = make(map[question]bool)
	}
}

// mayRead tells whether a client may read the node of the event being told. The
// answer for many identities is kept until the whole change is told.
func (t *watchTable) mayRead(a *account, ids *[]jute.ID) bool {
	if len(*ids) <= fewIDs {
		return t.event.ACL.Allows(*ids, jute.PermRead)
	}
	q := question{ids, t.event.ACL}
	may, known := t.asked[q]
	if !known {
		a.told += len(*ids) / 2
		may = t.event.ACL.Allows(*ids, jute.PermRead)
		t.asked[q] = may
	}
	return may
}

// fewIDs is how many identities are looked up in an ACL for each event.
const fewIDs = 4

// drop forgets a connection's watches, a few at a time: the goroutine that
// applies the log may be waiting for the lock.
func (t *watchTable) drop(c *conn) {
	t.mu.Lock()
	c.dropped = true
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

// sweepStep is how many watches are forgotten under one hold of the lock.
const sweepStep = 4096

// reset forgets every watch.
func (t *watchTable) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table = tree.NewWatches[*conn]()
}

// watchOp answers addWatch, removeWatches and checkWatches. It asks the table before it locks the
// outbox: that is the order of these locks.
func (c *conn) watchOp(st *state.State, xid int32, op jute.OpCode, body []byte) (open bool) {
	d := jute.NewDecoder(body)
	path, named := d.String()
	n := d.Int()
	c.cost += int64(tree.WatchSteps(path))
	var code jute.ErrCode
	var record []byte
	open = true
	switch {
	case d.Err() != nil || !named:
		code = jute.MarshallingError
	case op != jute.OpAddWatch && !tree.KnownWatcherType(n):
		code = jute.MarshallingError
	case op == jute.OpCheckWatches && path != "" && !strings.Contains(path, "/"):
		code = jute.MarshallingError // the reference stumbles on its way up to the root
	case op != jute.OpAddWatch:
		if !c.srv.watches.find(c, op, path, n) {
			code = jute.NoWatcher
		}
	case n != jute.AddWatchPersistent && n != jute.AddWatchRecursive:
		code = jute.MarshallingError
	case !strings.HasPrefix(path, "/"):
		code = jute.BadArguments
	default:
		kind := tree.Persistent
		if n == jute.AddWatchRecursive {
			kind = tree.Recursive
		}
		open = c.srv.watches.add(c, path, kind)
		record = []byte{0, 0, 0, 0}
	}
	return open && c.reply(xid, op, st.Zxid(), code, record)
}

// find reports whether c has such a watch, and removes it if op says so.
func (t *watchTable) find(c *conn, op jute.OpCode, path string, watcherType int32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if op == jute.OpRemoveWatches {
		return t.table.Remove(c, path, watcherType)
	}
	return t.table.Has(c, path, watcherType)
}

// Watching tells whether a session watches exactly this path, if it is
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

// WatchCount tells how many watches a session has here.
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
