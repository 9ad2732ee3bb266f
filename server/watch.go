package server

import (
	"strings"
	"sync"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/tree"
)

// watchTable is the watches of this server's connections. Its lock is taken
// inside the state lock, and outbox locks are taken inside it.
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
}

func (t *watchTable) init(s *Server) {
	t.srv = s
	t.table = tree.NewWatches[*conn]()
	t.tell = t.tellOne
}

// add registers a watch. It reports false when there are too many, and ends
// the connection.
func (t *watchTable) add(c *conn, path string, kind tree.Kind) bool {
	o := &t.srv.o
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table.CountOf(c) >= o.MaxWatchesPerConn || t.table.Count() >= o.MaxWatches {
		c.kill(endWatches)
		t.srv.flush.kick()
		return false
	}
	t.table.Add(c, path, kind)
	return true
}

// fire tells everybody who watches of one event.
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
	if !tree.Allowed(t.event.ACL, *c.ids.Load(), jute.PermRead) {
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
	}
	c.touch()
}

// drop forgets a connection's watches, a few at a time: the goroutine that
// applies the log may be waiting for the lock.
func (t *watchTable) drop(c *conn) {
	t.mu.Lock()
	more := t.table.Drop(c)
	t.mu.Unlock()
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

// watchOp answers addWatch, removeWatches and checkWatches. The table is asked
// before the outbox is locked: that is the order of these locks.
func (c *conn) watchOp(st *raftfsm.State, xid int32, op jute.OpCode, body []byte) (open bool) {
	d := jute.NewDecoder(body)
	path, named := d.String()
	n := d.Int()
	var code jute.ErrCode
	var record []byte
	open = true
	switch {
	case d.Err() != nil || !named:
		code = jute.MarshallingError
	case op != jute.OpAddWatch && !tree.KnownWatcherType(n):
		code = jute.MarshallingError
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

// catchUpChunk is how many paths of a setWatches are compared under one hold
// of the state lock. A path that changes between two chunks is found changed
// by the second.
const catchUpChunk = 500

// setWatches tells the client what it missed while it had no connection, and
// arms the watches that missed nothing.
func (c *conn) setWatches(xid int32, op jute.OpCode, body []byte) bool {
	d := jute.NewDecoder(body)
	r := d.SetWatches(op == jute.OpSetWatches2)
	if d.Err() != nil || r.NullList {
		return c.reply(xid, op, c.srv.replica.Zxid(), jute.MarshallingError, nil)
	}
	zxid := c.srv.replica.Zxid()
	open := true
	step := jute.SetWatches{RelativeZxid: r.RelativeZxid}
	arm := func(k tree.Kind, path string) {
		open = open && c.srv.watches.add(c, path, k)
	}
	tell := func(e jute.EventType, path string) {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		if open = open && c.out.accepts(&c.srv.o); open {
			c.out.buf = jute.AppendEventFrame(c.out.buf, -1, e, path)
			c.out.frames++
		}
	}
	view := func(st *raftfsm.State) {
		zxid = st.Zxid()
		st.Tree().CatchUp(*c.ids.Load(), &step, arm, tell)
	}
	lists := [...]struct{ from, to *[]string }{
		{&r.Data, &step.Data}, {&r.Exist, &step.Exist}, {&r.Child, &step.Child},
		{&r.Persistent, &step.Persistent}, {&r.Recursive, &step.Recursive},
	}
	for _, l := range lists {
		for len(*l.from) > 0 && open {
			n := min(len(*l.from), catchUpChunk)
			*l.to, *l.from = (*l.from)[:n], (*l.from)[n:]
			c.srv.replica.View(view)
			c.flushLarge()
		}
		*l.to = nil
	}
	return open && c.reply(xid, op, zxid, jute.OK, nil)
}
