package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/rights"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/watches"
)

// fakeCluster is a correct ensemble in one goroutine, with servers that lag, connections that break and
// sessions that expire. The checker must accept its histories.
type fakeCluster struct {
	rnd     *rand.Rand
	now     time.Duration
	log     []*entry
	servers []*fakeServer
	clients []*fakeClient
	records []Record
	conns   int
	session int64
	dead    map[int64]bool // sessions whose end is in the log
	lossy   bool
	flat    bool              // nodes like those of package workload: few, all below one node
	late    []*Op             // lost writes that may still arrive
	ids     map[int][]jute.ID // the identities of each connection's client
}

type entry struct {
	op   *Op
	conn *fakeConn
	end  int64 // id of the session that the entry ends; 0: no session
}

type fakeServer struct {
	tree    *tree.Tree
	watches *watches.Table[*fakeConn]
	closed  map[int64]bool
	applied int
	zxid    int64
}

type fakeClient struct {
	name     string
	session  int64
	conn     *fakeConn
	last     int64
	watches  Watches
	sequence int
}

type fakeConn struct {
	id     int
	client *fakeClient
	server *fakeServer
	queue  []*Op // sent and not answered
	logged bool  // whether the first request of `queue` is in the log
}

func newFakeCluster(seed uint64, lossy bool) *fakeCluster {
	f := &fakeCluster{rnd: rand.New(rand.NewPCG(seed, 5)), dead: map[int64]bool{}, lossy: lossy,
		session: 1 << 56, ids: map[int][]jute.ID{}}
	for range 3 {
		f.servers = append(f.servers, &fakeServer{tree: tree.New(), watches: watches.New[*fakeConn](),
			closed: map[int64]bool{}})
	}
	for i := range 5 {
		f.clients = append(f.clients, &fakeClient{name: fmt.Sprint("client", i)})
	}
	return f
}

// run() makes a history of about n requests.
func (f *fakeCluster) run(n int) []Record {
	for ops := 0; ops < n; {
		f.now += time.Microsecond
		c := f.clients[f.rnd.IntN(len(f.clients))]
		switch {
		case c.conn == nil && f.rnd.IntN(10) == 0:
			f.expire(c.session)
		case c.conn == nil && f.rnd.IntN(3) > 0: // this client stays away, and the others go on
		case c.conn == nil:
			f.connect(c)
		case f.lossy && f.rnd.IntN(150) == 0:
			f.disconnect(c)
		case f.lossy && f.rnd.IntN(600) == 0:
			f.outage()
		case len(c.conn.queue) < 3 && f.rnd.IntN(3) == 0:
			f.send(c, f.randomOp())
			ops++
		case len(c.conn.queue) > 0:
			f.progress(c.conn)
		}
		if len(f.late) > 0 && f.rnd.IntN(20) == 0 {
			f.arrive(0)
		}
		f.apply(f.servers[f.rnd.IntN(3)])
	}
	for _, c := range f.clients {
		if c.conn != nil {
			f.disconnect(c)
		}
	}
	return f.records
}

func (f *fakeCluster) add(r Record) { f.records = append(f.records, r) }

func (f *fakeCluster) connect(c *fakeClient) {
	start := f.now
	f.now++
	s := f.servers[f.rnd.IntN(3)]
	// When the session has a new connection, the servers refuse its late writes.
	f.late = slices.DeleteFunc(f.late, func(o *Op) bool { return o.Session == c.session })
	// The connection is usable only after the server has applied the whole log.
	for s.applied < len(f.log) {
		f.apply(s)
	}
	f.now++
	if f.dead[c.session] {
		f.add(Record{Expired: &Expired{c.session, f.now}})
		*c = fakeClient{name: c.name}
		return
	}
	fresh := c.session == 0
	if fresh {
		f.session++
		c.session = f.session
		f.log = append(f.log, &entry{}) // the new session takes a zxid
		c.watches = NewWatches()
	}
	f.conns++
	c.conn = &fakeConn{id: f.conns, client: c, server: s}
	f.ids[f.conns] = f.identities(c.name)
	f.add(Record{Connect: &Connect{c.name, f.conns, c.session, fresh, c.last, 0, start, f.now, f.ids[f.conns]}})
	if o := c.watches.Request(c.last); o != nil {
		f.send(c, *o)
	}
}

// outage() breaks all connections at once. Before clients reconnect, many of the lost writes still get into
// the log.
func (f *fakeCluster) outage() {
	for _, c := range f.clients {
		if c.conn != nil {
			f.disconnect(c)
		}
	}
	for len(f.late) > 0 && f.rnd.IntN(8) > 0 {
		f.arrive(f.rnd.IntN(len(f.late)))
	}
}

// arrive() puts a lost write into the log long after its client has stopped waiting.
func (f *fakeCluster) arrive(at int) {
	session := f.late[at].Session // its oldest late write comes first
	at = slices.IndexFunc(f.late, func(o *Op) bool { return o.Session == session })
	o := f.late[at]
	f.late = slices.Delete(f.late, at, at+1)
	if !f.dead[o.Session] {
		f.log = append(f.log, &entry{op: o})
	}
}

func (f *fakeCluster) disconnect(c *fakeClient) {
	k := c.conn
	c.conn = nil
	k.server.watches.Drop(k)
	for i, o := range k.queue {
		o.Unknown = true
		f.add(Record{Op: o})
		// A lost write may still get into the log until its client reconnects.
		switch {
		case !isWrite(o.Op) || i == 0 && k.logged || f.dead[c.session]:
		case f.rnd.IntN(3) == 0:
			f.late = append(f.late, o)
		case f.rnd.IntN(2) == 0 && len(f.late) == 0:
			f.log = append(f.log, &entry{op: o})
		}
	}
	k.queue = nil
	if f.rnd.IntN(4) == 0 {
		f.expire(c.session)
	}
}

func (f *fakeCluster) expire(session int64) {
	if session != 0 && !f.dead[session] {
		f.log = append(f.log, &entry{end: session})
		f.dead[session] = true
	}
}

func (f *fakeCluster) send(c *fakeClient, o Op) {
	c.sequence++
	o.Client, o.Conn, o.Session, o.Seq, o.Start = c.name, c.conn.id, c.session, c.sequence, f.now
	c.conn.queue = append(c.conn.queue, &o)
}

// progress() serves the first request of a connection.
func (f *fakeCluster) progress(k *fakeConn) {
	o := k.queue[0]
	switch {
	case isWrite(o.Op) || o.Op == jute.OpSync:
		if !k.logged {
			k.logged = true
			f.log = append(f.log, &entry{op: o, conn: k})
		}
	default:
		k.server.serve(k, o, f)
		f.reply(k, o, k.server.zxid, o.Code)
	}
}

func (f *fakeCluster) reply(k *fakeConn, o *Op, zxid int64, code jute.ErrCode) {
	o.Zxid, o.End, o.Code = zxid, f.now, code
	k.queue, k.logged = k.queue[1:], false
	f.add(Record{Op: o})
	c := k.client
	c.last = max(c.last, zxid)
	c.watches.Answered(o)
	if o.Op == jute.OpCloseSession {
		c.conn = nil
		k.server.watches.Drop(k)
		for _, o := range k.queue {
			o.Unknown = true
			f.add(Record{Op: o})
		}
		*c = fakeClient{name: c.name}
	}
}

func (f *fakeCluster) event(k *fakeConn, zxid int64, t jute.EventType, path string) {
	f.add(Record{Event: &Event{k.id, f.now, zxid, t, path}})
	k.client.watches.Fired(t, path)
}

// apply() lets a server apply one entry of the log.
func (f *fakeCluster) apply(s *fakeServer) {
	if s.applied == len(f.log) {
		return
	}
	e := f.log[s.applied]
	s.applied++
	ch := &tree.Change{Zxid: s.zxid + 1, Time: int64(s.applied) + 1000}
	code, changed, reply := jute.OK, true, []byte(nil)
	switch {
	case e.op != nil && s.closed[e.op.Session]:
		changed = false
	case e.end != 0:
		s.closed[e.end] = true
		s.tree.CloseSession(ch, e.end)
	case e.op == nil:
	case e.op.Op == jute.OpSync:
		changed = false
	case e.op.Op == jute.OpCloseSession:
		s.closed[e.op.Session] = true
		s.tree.CloseSession(ch, e.op.Session)
		f.dead[e.op.Session] = true
	default:
		ch.Session, ch.IDs = e.op.Session, f.ids[e.op.Conn]
		reply, code, changed = s.tree.Apply(ch, e.op.Op, e.op.Body(), nil)
	}
	if changed {
		s.zxid++
	}
	for i := range ch.Events {
		ev := &ch.Events[i]
		s.watches.Fire(ev.Type, ev.Path, func(k *fakeConn) {
			if ev.ACL.Allows(f.ids[k.id], jute.PermRead) {
				f.event(k, s.zxid, ev.Type, ev.Path)
			}
		})
	}
	if e.conn != nil && e.conn.server == s && len(e.conn.queue) > 0 && e.conn.queue[0] == e.op {
		if e.op.Code = code; code == jute.OK {
			d := jute.NewDecoder(reply)
			e.op.Decode(&d)
		}
		f.reply(e.conn, e.op, s.zxid, e.op.Code)
	}
}

// serve() answers a read.
func (s *fakeServer) serve(k *fakeConn, o *Op, f *fakeCluster) {
	if o.Watches != nil {
		s.tree.CatchUp(f.ids[k.id], o.Watches,
			func(kind watches.Kind, path string) { s.watches.Add(k, path, kind) },
			func(t jute.EventType, path string) { f.event(k, -1, t, path) })
		return
	}
	if o.Op == jute.OpAddWatch {
		s.watches.Add(k, o.Path, watches.Persistent+watches.Kind(o.Mode))
		return
	}
	if o.Op == jute.OpPing {
		return
	}
	info, ok := s.tree.Get(o.Path)
	if _, perm := o.needs(); ok && perm != 0 && !rights.Allowed(info.ACL, f.ids[k.id], perm) {
		o.Code = jute.NoAuth
		return
	}
	kind := watches.Data
	if o.Op == jute.OpGetChildren2 {
		kind = watches.Child
	}
	if o.Watch && (ok || o.Op == jute.OpExists) {
		s.watches.Add(k, o.Path, kind)
	}
	if !ok {
		o.Code = jute.NoNode
		return
	}
	o.Stat = &info.Stat
	switch o.Op {
	case jute.OpGetData:
		o.Value = slices.Clone(info.Data)
	case jute.OpGetChildren2:
		o.Children = s.tree.Children(o.Path)
	case jute.OpGetACL:
		o.ACL = shown(info.ACL, f.ids[k.id])
	}
}

func (f *fakeCluster) path() string {
	if f.flat {
		return fmt.Sprint("/k", f.rnd.IntN(8))
	}
	return [...]string{"/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep"}[f.rnd.IntN(6)]
}

func (f *fakeCluster) value() []byte { return fmt.Append(nil, "v", f.rnd.IntN(1000)) }

func (f *fakeCluster) randomOp() Op {
	path, watch := f.path(), f.rnd.IntN(3) == 0
	list := path
	if f.flat {
		list = "/"
	}
	version := int32(-1)
	if f.rnd.IntN(3) == 0 {
		version = f.rnd.Int32N(3)
	}
	switch n := f.rnd.IntN(100); {
	case n < 15:
		return Op{Step: Step{Op: jute.OpExists, Path: path}, Watch: watch}
	case n < 30:
		return Op{Step: Step{Op: jute.OpGetData, Path: path}, Watch: watch}
	case n < 45:
		return Op{Step: Step{Op: jute.OpGetChildren2, Path: list}, Watch: watch}
	case n < 46:
		return Op{Step: Step{Op: jute.OpGetACL, Path: path}}
	case n < 48:
		return Op{Step: Step{Op: jute.OpAddWatch, Path: path}, Mode: f.rnd.Int32N(2)}
	case n < 50:
		return Op{Step: Step{Op: jute.OpSync, Path: path}}
	case n < 51:
		return Op{Step: Step{Op: jute.OpCloseSession}}
	case n < 54:
		return Op{Step: Step{Op: jute.OpPing}}
	case n < 58 || f.flat && n < 65:
		o := Op{Step: Step{Op: jute.OpMulti}}
		for range 1 + f.rnd.IntN(3) {
			o.Steps = append(o.Steps, f.randomStep(f.path(), version))
		}
		return o
	}
	return Op{Step: f.randomStep(path, version)}
}

// user() is the identity of a client.
func user(name string) jute.ID { return jute.ID{Scheme: "digest", ID: name + ":hash"} }

// identities() returns the identities of a client on a new connection.
func (f *fakeCluster) identities(name string) []jute.ID {
	switch f.rnd.IntN(4) {
	case 0:
		return nil
	case 1:
		return []jute.ID{user(name), user(f.clients[f.rnd.IntN(len(f.clients))].name)}
	}
	return []jute.ID{user(name)}
}

// acl returns a random ACL, which gives one client everything.
func (f *fakeCluster) acl() []jute.ACL {
	all := jute.ACL{Perms: jute.PermAll, ID: user(f.clients[f.rnd.IntN(len(f.clients))].name)}
	switch f.rnd.IntN(8) {
	case 0:
		return []jute.ACL{all}
	case 1:
		return []jute.ACL{{Perms: f.rnd.Int32N(32), ID: jute.WorldAnyone[0].ID}, all}
	}
	return nil
}

func (f *fakeCluster) randomStep(path string, version int32) Step {
	switch n := f.rnd.IntN(20); {
	case n < 4:
		return Step{Op: jute.OpCreate, Path: path, Data: f.value(), ACL: f.acl()}
	case n < 6:
		return Step{Op: jute.OpCreate2, Path: path, Data: f.value(), ACL: f.acl()}
	case n < 8:
		return Step{Op: jute.OpCreate, Path: path, Data: f.value(), ACL: f.acl(), Flags: 1}
	case n < 11:
		return Step{Op: jute.OpCreate2, Path: path + "/n-", Data: f.value(), ACL: f.acl(),
			Flags: 2 + f.rnd.Int32N(2)}
	case n < 15:
		return Step{Op: jute.OpDelete, Path: path, Version: version}
	case n < 16:
		return Step{Op: jute.OpSetACL, Path: path, Version: version, ACL: f.acl()}
	}
	return Step{Op: jute.OpSetData, Path: path, Data: f.value(), Version: version}
}
