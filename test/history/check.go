package history

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/watches"
)

// Check returns what is wrong with a history, or nothing if the history is possible.
func Check(records []Record, o Options) []Violation {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Max == 0 {
		o.Max = 20
	}
	c := &checker{
		Options: o, records: records,
		conns: map[int]*conn{}, sessions: map[int64]*sess{}, acked: map[int64]int{},
		expiries: map[int64]time.Duration{},
	}
	c.index()
	c.checkOrder()
	c.checkRealTime()
	c.checkTurns()
	c.checkDraws()
	c.findFacts()
	c.replay()
	c.checkEvents()
	sort.SliceStable(c.out, func(i, j int) bool { return c.out[i].Record < c.out[j].Record })
	return c.out[:min(len(c.out), o.Max)]
}

// checker is one run of Check.
type checker struct {
	Options
	records []Record
	out     []Violation

	conns    map[int]*conn
	sessions map[int64]*sess
	acked    map[int64]int // by zxid of a successful write: its record
	replies  seenByTime
	expiries map[int64]time.Duration // by session: when a client first learned of its end
	facts    map[int64]*facts
	loose    loose
	model    model
	now      int // index of the record that the replay has reached
}

// conn is what the checker knows of a connection.
type conn struct {
	session int64
	begin   time.Duration
	records []int // indexes of the replies and events, in the order of arrival
	last    int64 // highest zxid in the records of the connection
	first   int64 // no write of an older connection has a zxid above this
	expect  []expected
	catchUp map[int][]*Event // by the record of a setWatches: the events before its reply
	ids     []jute.ID
	doubts  map[string][]watches.Kind // watches that may be used up, by path
}

// sess is what the checker knows of a session.
type sess struct {
	conns  []int
	alive  int64 // highest zxid at which a server answered the session
	closed int64 // zxid at which the session was closed; 0: never
	ended  bool  // the session has ended in the model
	endBy  int64 // a zxid at which the session had already ended; MaxInt64: unknown
}

// seenByTime finds the highest zxid that any client had seen before a moment.
type seenByTime struct {
	at  []time.Duration
	top []int64
}

func (s *seenByTime) before(t time.Duration) int64 {
	if n := sort.Search(len(s.at), func(i int) bool { return s.at[i] >= t }); n > 0 {
		return s.top[n-1]
	}
	return 0
}

func (c *checker) fail(rule string, record int, format string, args ...any) {
	if len(c.out) < 10*c.Max {
		text := fmt.Sprintf(format, args...)
		c.out = append(c.out, Violation{rule, fmt.Sprintf("%s (%v)", text, c.records[record]), record})
	}
}

// within() reports whether the model covers the path.
func (c *checker) within(path string) bool {
	if path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/") || path == "" {
		return false
	}
	return c.Root == "/" || path == c.Root || strings.HasPrefix(path, c.Root+"/")
}

func isWrite(op jute.OpCode) bool {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL,
		jute.OpDelete, jute.OpSetData, jute.OpSetACL, jute.OpMulti, jute.OpCloseSession:
		return true
	}
	return false
}

// index() sorts the records by connection and session.
func (c *checker) index() {
	type seen struct {
		at   time.Duration
		zxid int64
	}
	var all []seen
	pending := map[int][]*Event{} // by connection: events that are part of the answer to a setWatches
	for i, r := range c.records {
		switch {
		case r.Connect != nil:
			k := c.conn(r.Connect.Conn, r.Connect.Session, r.Connect.Start)
			k.ids = r.Connect.IDs
			if r.Connect.New && (len(c.sessions[k.session].conns) > 1 || len(k.records) > 0) {
				c.fail("G14", i, "session %#x was given twice", k.session)
			}
		case r.Event != nil:
			k := c.conn(r.Event.Conn, 0, r.Event.At)
			k.records = append(k.records, i)
			if r.Event.Zxid <= 0 {
				pending[r.Event.Conn] = append(pending[r.Event.Conn], r.Event)
				continue
			}
			k.last = max(k.last, r.Event.Zxid)
			all = append(all, seen{r.Event.At, r.Event.Zxid})
		case r.Op != nil && !r.Op.Unknown:
			o := r.Op
			k := c.conn(o.Conn, o.Session, o.Start)
			k.records = append(k.records, i)
			if o.Watches != nil {
				k.catchUp[i] = pending[o.Conn]
				delete(pending, o.Conn)
			}
			k.last = max(k.last, o.Zxid)
			bound := o.Zxid
			if isWrite(o.Op) && o.Code == jute.OK {
				bound--
				if before, twice := c.acked[o.Zxid]; twice {
					c.fail("G1", i, "zxid %d belongs to two writes: %v", o.Zxid, c.records[before])
				}
				c.acked[o.Zxid] = i
			}
			k.first = min(k.first, bound)
			s := c.sessions[o.Session]
			if o.Op == jute.OpCloseSession && o.Code == jute.OK {
				s.closed = o.Zxid
			} else if o.Code != jute.SessionExpired && o.Code != jute.UnknownSession {
				s.alive = max(s.alive, o.Zxid)
			}
			all = append(all, seen{o.End, o.Zxid})
		case r.Op != nil:
			c.conn(r.Op.Conn, r.Op.Session, r.Op.Start)
		case r.Backup != nil:
			all = append(all, seen{r.Backup.End, r.Backup.Zxid})
		case r.Expired != nil:
			if at, ok := c.expiries[r.Expired.Session]; !ok || r.Expired.At < at {
				c.expiries[r.Expired.Session] = r.Expired.At
			}
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	top := int64(0)
	for _, s := range all {
		top = max(top, s.zxid)
		c.replies.at = append(c.replies.at, s.at)
		c.replies.top = append(c.replies.top, top)
	}
}

// conn() returns the connection, and creates it if necessary.
func (c *checker) conn(id int, session int64, begin time.Duration) *conn {
	k, ok := c.conns[id]
	if !ok {
		k = &conn{begin: begin, first: math.MaxInt64, catchUp: map[int][]*Event{}}
		c.conns[id] = k
	}
	if k.session == 0 && session != 0 {
		k.session = session
		s := c.session(session)
		s.conns = append(s.conns, id)
	}
	return k
}

func (c *checker) session(id int64) *sess {
	s, ok := c.sessions[id]
	if !ok {
		s = &sess{endBy: math.MaxInt64}
		c.sessions[id] = s
	}
	return s
}

// checkOrder checks what a single session or server shows: G4, G5, G9, G12.
func (c *checker) checkOrder() {
	for _, k := range c.conns {
		last, seq := int64(0), math.MinInt
		for _, i := range k.records {
			o := c.records[i].Op
			if o == nil {
				continue
			}
			if o.Zxid < last {
				c.fail("G4", i, "zxid fell from %d", last)
			}
			if at := o.shows(); at > o.Zxid {
				c.fail("G4", i, "the reply shows a change of zxid %d, which is later", at)
			}
			if o.Seq < seq {
				c.fail("G5", i, "reply to request %d after that to request %d", o.Seq, seq)
			}
			last, seq = max(last, o.Zxid), max(seq, o.Seq)
		}
	}
	c.checkSessions()
	digests := map[int64]int{}
	for i, r := range c.records {
		switch {
		case r.Digest != nil:
			before, ok := digests[r.Digest.Zxid]
			if ok && c.records[before].Digest.Sum != r.Digest.Sum {
				c.fail("G9", i, "servers differ: %v", c.records[before])
			}
			digests[r.Digest.Zxid] = i
		case r.Connect != nil && r.Connect.LastZxid > 0:
			for _, j := range c.conns[r.Connect.Conn].records {
				if o := c.records[j].Op; o != nil && o.Zxid < r.Connect.LastZxid {
					c.fail("G4", j, "the client had seen zxid %d before it connected", r.Connect.LastZxid)
					break
				}
			}
		}
	}
}

// checkSessions compares the connections of each session. A new connection never shows an older state than
// the session had seen on other connections before this one began.
func (c *checker) checkSessions() {
	for id, s := range c.sessions {
		if s.closed > 0 && s.alive > s.closed {
			c.fail("G12", c.acked[s.closed], "session %#x was answered at zxid %d after it was closed", id, s.alive)
		}
		if len(s.conns) < 2 {
			continue
		}
		var ops []int
		for _, id := range s.conns {
			for _, i := range c.conns[id].records {
				if c.records[i].Op != nil {
					ops = append(ops, i)
				}
			}
		}
		sort.SliceStable(ops, func(a, b int) bool { return c.records[ops[a]].Op.End < c.records[ops[b]].Op.End })
		var seen seenByTime
		top := int64(0)
		for _, i := range ops {
			o := c.records[i].Op
			top = max(top, o.Zxid)
			seen.at, seen.top = append(seen.at, o.End), append(seen.top, top)
		}
		for _, id := range s.conns {
			k := c.conns[id]
			for _, i := range k.records {
				if o := c.records[i].Op; o != nil {
					if floor := seen.before(k.begin); o.Zxid < floor {
						c.fail("G4", i, "the session had seen zxid %d on another connection", floor)
					}
					break
				}
			}
		}
	}
	c.checkExpiries()
	for i, r := range c.records {
		if r.Op == nil || r.Op.Unknown {
			continue
		}
		if e, ok := c.expiries[r.Op.Session]; ok && r.Op.Start > e && r.Op.Op != jute.OpCloseSession {
			c.fail("G12", i, "session %#x was answered after it was reported expired", r.Op.Session)
		}
	}
}

// checkExpiries checks G10: a session lasts for its timeout after the last request that the leader certainly
// received. Only requests that went through the log count: a server that the leader no longer hears may still
// have answered a read.
func (c *checker) checkExpiries() {
	type life struct{ timeout, heard time.Duration }
	lives := map[int64]*life{}
	closing := map[int64]bool{}
	of := func(id int64) *life {
		if lives[id] == nil {
			lives[id] = new(life)
		}
		return lives[id]
	}
	for _, r := range c.records {
		switch o := r.Op; {
		case r.Connect != nil:
			l := of(r.Connect.Session)
			l.timeout, l.heard = r.Connect.Timeout, max(l.heard, r.Connect.Start)
		case o == nil:
		case o.Op == jute.OpCloseSession:
			closing[o.Session] = true
		case o.Unknown:
		case isWrite(o.Op) || o.Op == jute.OpSync:
			l := of(o.Session)
			l.heard = max(l.heard, o.Start)
		}
	}
	for i, r := range c.records {
		if r.Expired == nil || closing[r.Expired.Session] || lives[r.Expired.Session] == nil {
			continue
		}
		if l := lives[r.Expired.Session]; l.timeout > 0 && r.Expired.At < l.heard+l.timeout {
			c.fail("G10", i, "it was heard from %v before, and its timeout is %v", r.Expired.At-l.heard, l.timeout)
		}
	}
}

// checkRealTime checks G1 and G7. For each session that a client found expired, it also finds the zxid before
// which the session must have ended.
func (c *checker) checkRealTime() {
	type write struct {
		start time.Duration
		zxid  int64
	}
	var writes []write
	for i, r := range c.records {
		o := r.Op
		if b := r.Backup; b != nil && b.Zxid < c.replies.before(b.Start) {
			c.fail("G7", i, "zxid %d had been seen before the backup was asked for", c.replies.before(b.Start))
		}
		reads := o != nil && o.Watches == nil && o.Op != jute.OpPing // whether the reply shows more than a zxid
		if o == nil || o.Unknown || !isWrite(o.Op) && o.Op != jute.OpSync && !(c.Linearizable && reads) {
			continue
		}
		floor := c.replies.before(o.Start)
		switch took := isWrite(o.Op) && o.Code == jute.OK; {
		case took && o.Zxid <= floor:
			c.fail("G1", i, "zxid %d had been seen before the write was sent", floor)
		case !took && o.Zxid < floor && o.Op == jute.OpSync:
			c.fail("G7", i, "zxid %d had been seen before the sync was sent", floor)
		case !took && o.Zxid < floor:
			c.fail("G1", i, "answered at a state older than zxid %d, which had been seen before", floor)
		case took:
			writes = append(writes, write{o.Start, o.Zxid})
		}
	}
	sort.Slice(writes, func(i, j int) bool { return writes[i].start < writes[j].start })
	least := make([]int64, len(writes)+1)
	least[len(writes)] = math.MaxInt64
	for i := len(writes) - 1; i >= 0; i-- {
		least[i] = min(least[i+1], writes[i].zxid)
	}
	for id := range c.sessions {
		if at, ok := c.expiries[id]; ok {
			c.sessions[id].endBy = least[sort.Search(len(writes), func(i int) bool { return writes[i].start > at })]
		}
	}
}
