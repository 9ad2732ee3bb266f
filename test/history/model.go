package history

import (
	"bytes"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/watches"
)

// model is the tree and the watches at the point that the replay has reached.
type model struct {
	nodes  map[string]*node
	owned  map[int64]map[string]*node // ephemerals by session
	absent map[string]int64           // last zxid at which a client saw that the path names nothing

	// One-shot watches are separate from lasting ones: only a read of the node sets a one-shot watch.
	oneShot, lasting *watches.Table[int]
	events           int
}

// node is a node of the model. A field is unknown after an unanswered change whose zxid no
// client saw; the next reply that shows the field sets it.
type node struct {
	path     string
	czxid    int64 // unknown: negative, like all zxids
	mzxid    int64
	pzxid    int64
	pzTimes  int  // how often the children changed at pzxid
	pzLoose  bool // whether a child changed at an unknown zxid
	version  int32
	less     int32 // how much lower the version may be: a write with fewer sets may have made a change
	more     int32 // how much higher the version may be: a write with more sets may have made a change
	aversion int32
	data     []byte
	// dataUnknown: the model knows only the length of data.
	dataUnknown bool
	owner       int64
	swept       bool         // whether the servers may delete the node on their own
	makers      []*looseStep // if the owner is not known: one of these steps made the node
	acl         []jute.ACL   // nil: open
	aclFrom     int64        // unanswered writes after this zxid may have changed the ACL
	ctime       int64
	mtime       int64 // 0: unknown
	kids        map[string]*node
	builtin     int   // number of built-in children, which `made` and `gone` leave out
	made        int   // how many children are known to have been created
	gone        int   // how many children are known to have been deleted
	seenMade    int   // how many children were created according to a reply, which may know more
	seenGone    int   // how many children were deleted according to a reply
	seen        int64 // last zxid at which a client saw the node
	seenState   int64 // last zxid at which a client saw the node's versions
}

// The constant unknown is a zxid that the model does not know yet.
const unknown = -1

// moment is the time of a change in the model.
type moment struct {
	zxid   int64
	acked  bool // the change was acknowledged
	exact  bool // the change has the zxid; otherwise it came at some time up to the zxid
	end    bool // the events of the change come in no certain order, as at the end of a session
	silent bool // no client received an event
}

// stamp() returns the zxid that a change leaves in nodes.
func (m moment) stamp() int64 {
	if m.exact {
		return m.zxid
	}
	return unknown
}

// The type expected is an event that a connection should receive.
type expected struct {
	zxid  int64
	typ   jute.EventType
	path  string
	end   bool
	event int  // number of the event in the model
	maybe bool // the event may have been kept from the client
}

func newModel(root string) model {
	m := model{
		nodes: map[string]*node{}, owned: map[int64]map[string]*node{}, absent: map[string]int64{},
		oneShot: watches.New[int](), lasting: watches.New[int](),
	}
	if root == "/" {
		m.nodes["/"] = &node{path: "/", builtin: 1}
	}
	return m
}

// parent() returns the node above path, nil if the model does not cover it.
func (m *model) parent(path string) *node {
	if path == "/" {
		return nil
	}
	return m.nodes[parentOf(path)]
}

func (c *checker) create(path string, s *Step, owner int64, m moment) *node {
	n := &node{
		path: path, czxid: m.stamp(), mzxid: m.stamp(), pzxid: m.stamp(),
		data: s.Data, swept: swept(s), acl: normal(s.ACL), seen: m.zxid, seenState: m.zxid,
	}
	if m.acked {
		n.aclFrom = m.zxid
	}
	c.own(n, owner)
	c.model.nodes[path] = n
	if p := c.model.parent(path); p != nil {
		if p.kids == nil {
			p.kids = map[string]*node{}
		}
		p.kids[path] = n
		p.made++
		if m.exact {
			p.seenMade++
		}
		p.seenMade = max(p.seenMade, p.made)
		p.touchList(m)
	}
	c.tell(jute.EventCreated, n, m)
	c.tell(jute.EventChildrenChanged, c.model.parent(path), m)
	return n
}

// children() returns n's children in the order of their paths.
func (n *node) children() []*node {
	list := make([]*node, 0, len(n.kids))
	for _, path := range sorted(n.kids) {
		list = append(list, n.kids[path])
	}
	return list
}

// own() makes n an ephemeral node of the session.
func (c *checker) own(n *node, session int64) {
	if session == 0 {
		return
	}
	n.owner = session
	if c.model.owned[session] == nil {
		c.model.owned[session] = map[string]*node{}
	}
	c.model.owned[session][n.path] = n
}

func (c *checker) remove(n *node, m moment) {
	delete(c.model.nodes, n.path)
	delete(c.model.owned[n.owner], n.path)
	// If the zxid of the removal is unknown, the node may have gone right after seenState, and clients may have
	// seen another node at the path since.
	c.model.absent[n.path] = n.seenState
	if m.exact {
		c.model.absent[n.path] = m.zxid
	}
	if p := c.model.parent(n.path); p != nil {
		delete(p.kids, n.path)
		p.gone++
		if m.exact {
			p.seenGone++
		}
		p.seenGone = max(p.seenGone, p.gone)
		p.touchList(m)
	}
	c.tell(jute.EventDeleted, n, m)
	c.tell(jute.EventChildrenChanged, c.model.parent(n.path), m)
}

func (n *node) touchList(m moment) {
	if m.exact && n.pzxid != m.zxid {
		n.pzxid, n.pzTimes = m.zxid, 0
	}
	if m.exact {
		n.pzTimes++
	}
	n.pzLoose = !m.exact
}

func (c *checker) setData(n *node, s *Step, m moment) {
	n.data, n.dataUnknown = s.Data, false
	n.version++
	n.mzxid, n.mtime = m.stamp(), 0
	c.tell(jute.EventDataChanged, n, m)
}

// mayEnd reports whether the session can have ended at or before `zxid` although no client closed it.
func (c *checker) mayEnd(id, zxid int64) bool {
	s := c.session(id)
	return !s.ended && s.closed == 0 && s.alive < zxid
}

// tell() fires an event of a node, for the clients that may read the node. If m.exact is false, no client saw
// the zxid of the change, so no connection received the event. Then tell() fires only one-shot watches: their
// clients read the node when they set the watch, so they saw the node before the change and have missed the
// event. A lasting watch may have been set after the change, because setting it needs no read of the node.
func (c *checker) tell(typ jute.EventType, n *node, m moment) {
	if n == nil || !c.within(n.path) {
		return
	}
	if m.silent {
		c.hide(typ, n, m)
		return
	}
	c.model.events++
	var doubtful []int
	note := func(id int) {
		k := c.conns[id]
		yes, no := c.may(n, id, jute.PermRead, m.zxid)
		if last := len(k.expect); yes && (last == 0 || k.expect[last-1].event != c.model.events) {
			k.expect = append(k.expect, expected{m.zxid, typ, n.path, m.end, c.model.events,
				no || k.doubts[n.path] != nil})
		}
		if k.doubts[n.path] != nil {
			doubtful = append(doubtful, id)
		}
	}
	e := tree.Event{Type: typ, Path: n.path}
	c.model.oneShot.Fire(e.Type, e.Path, note)
	if m.exact {
		c.model.lasting.Fire(e.Type, e.Path, note)
	}
	for _, id := range doubtful {
		for _, k := range c.conns[id].doubts[n.path] {
			c.watch(id, n.path, k)
		}
	}
}

func (c *checker) watch(conn int, path string, k watches.Kind) {
	if k == watches.Data || k == watches.Child {
		c.model.oneShot.Add(conn, path, k)
	} else {
		c.model.lasting.Add(conn, path, k)
	}
}

// compare() compares a Stat read at zxid with the node. If the Stat does not fit the node, but
// fits a node that may have replaced it, the model takes that node.
func (c *checker) compare(n *node, st *jute.Stat, zxid int64, record int) {
	_, acked := c.acked[st.Czxid]
	reborn := !acked && st.Czxid > n.seenState && st.Czxid <= zxid && st.Czxid != n.czxid && c.reborn(n, zxid)
	sure := len(c.out)
	c.compareStat(n, st, zxid, record)
	if reborn && len(c.out) > sure {
		c.out = c.out[:sure]
		c.replace(n, st)
	}
	n.seenState = zxid
}

// replace() turns n into the node that st shows.
func (c *checker) replace(n *node, st *jute.Stat) {
	n.czxid, n.mzxid, n.pzxid, n.ctime, n.mtime = st.Czxid, st.Mzxid, st.Pzxid, st.Ctime, st.Mtime
	n.version, n.aversion, n.pzLoose, n.makers = st.Version, st.Aversion, false, nil
	n.less, n.more = 0, 0
	if n.owner != st.EphemeralOwner {
		delete(c.model.owned[n.owner], n.path)
		n.owner = 0
		c.own(n, st.EphemeralOwner)
	}
	n.data, n.dataUnknown = make([]byte, st.DataLength), true
	n.made = int(st.Cversion+st.NumChildren) / 2
	n.gone = n.made - (int(st.NumChildren) - n.builtin)
	n.seenMade, n.seenGone = n.made, n.gone
}

// compareStat compares a Stat with the node and learns unknown fields.
func (c *checker) compareStat(n *node, st *jute.Stat, zxid int64, record int) {
	bad := func(field string, got, want int64) {
		c.fail("G6", record, "%s: %s is %d, must be %d", n.path, field, got, want)
	}
	learn := func(field string, known *int64, got, none int64) {
		switch {
		case *known == none:
			*known = got
		case *known != got:
			bad(field, got, *known)
		}
	}
	if n.mzxid == unknown {
		n.version = max(n.version, st.Version)
	}
	if st.Aversion > n.aversion {
		n.aversion += c.use(c.loose.acls[n.path], n.seenState, zxid, st.Aversion-n.aversion)
	}
	learn("czxid", &n.czxid, st.Czxid, unknown)
	learn("mzxid", &n.mzxid, st.Mzxid, unknown)
	learn("ctime", &n.ctime, st.Ctime, 0)
	learn("mtime", &n.mtime, st.Mtime, 0)
	if !n.isVersion(st.Version) {
		bad("version", int64(st.Version), int64(n.version))
	}
	if st.Aversion != n.aversion {
		bad("aversion", int64(st.Aversion), int64(n.aversion))
	}
	if n.makers == nil && st.EphemeralOwner != n.owner {
		bad("ephemeralOwner", st.EphemeralOwner, n.owner)
	}
	if int(st.DataLength) != len(n.data) {
		bad("dataLength", int64(st.DataLength), int64(len(n.data)))
	}
	c.compareList(n, st, zxid, record)
}

// isVersion reports whether v may be the node's version. If so, the model takes v as the version.
func (n *node) isVersion(v int32) bool {
	if v < n.version-n.less || v > n.version+n.more {
		return false
	}
	n.version, n.less, n.more = v, 0, 0
	return true
}

// compareList compares the fields about children with the node.
func (c *checker) compareList(n *node, st *jute.Stat, zxid int64, record int) {
	sum := int(st.Cversion) + int(st.NumChildren)
	made := sum / 2
	gone := made - (int(st.NumChildren) - n.builtin)
	if sum%2 != 0 {
		c.fail("G6", record, "%s: cversion %d does not fit %d children", n.path, st.Cversion, st.NumChildren)
		return
	}
	mostMade, mostGone := n.made, n.gone
	if made != n.made || gone != n.gone {
		m, g := c.open(n, zxid)
		mostMade, mostGone = mostMade+m, mostGone+g
	}
	if made < n.seenMade || made > mostMade {
		c.fail("G6", record, "%s: %d children ever created, must be %d to %d", n.path, made, n.seenMade, mostMade)
	}
	if gone < n.seenGone || gone > mostGone {
		c.fail("G6", record, "%s: %d children ever deleted, must be %d to %d", n.path, gone, n.seenGone, mostGone)
	}
	n.seenMade, n.seenGone = max(n.seenMade, made), max(n.seenGone, gone)
	by, taken := c.acked[st.Pzxid]
	taken = taken && c.records[by].Op.Op != jute.OpCloseSession
	switch {
	case st.Pzxid == n.pzxid || n.pzxid == unknown:
	case st.Pzxid > n.pzxid && st.Pzxid <= zxid && !taken && (n.pzLoose || made > n.made || gone > n.gone):
	default:
		c.fail("G6", record, "%s: pzxid is %d, must be %d", n.path, st.Pzxid, n.pzxid)
	}
	n.pzxid, n.pzLoose = st.Pzxid, false
}

// open() counts the children that may have been created and deleted under n without the model knowing.
func (c *checker) open(n *node, zxid int64) (made, gone int) {
	for _, l := range c.loose.under[n.path] {
		if !l.within(0, zxid) || l.by != nil && len(l.by.claims) == 1 {
			continue
		}
		if l.Op == jute.OpDelete {
			gone++
			continue
		}
		made++
		if c.passing(l, zxid) {
			gone++
		}
	}
	for _, k := range n.kids {
		if c.mayGo(k, zxid) {
			gone++
		}
	}
	return made, gone
}

func (c *checker) compareData(n *node, value []byte, record int) {
	if n.dataUnknown {
		n.data, n.dataUnknown = value, false
	}
	if !bytes.Equal(value, n.data) {
		c.fail("G6", record, "%s: data is %.40q, must be %.40q", n.path, value, n.data)
	}
}
