package observe

import (
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
)

// Conn has what operators see of one connection. It has no lock: its owner guards it.
type Conn struct {
	received, sent int64
	bytes          int64 // bytes sent

	op      jute.OpCode // the operation of the last reply; 0: none
	cxid    int32
	zxid    int64
	replied time.Duration

	count, sum             int64 // how many requests were answered, and the sum of their latencies in ms
	latest, least, longest int64

	replies             int // replies since the last call of Wrote; the sizes below are theirs
	lastSize            int // size of the last reply
	leastSize, mostSize int
}

// NewConn returns the counts of a new connection.
func NewConn() Conn { return Conn{cxid: -1} }

// Reset zeroes the counts. What it knows of the last reply stays.
func (s *Conn) Reset() { *s = Conn{op: s.op, cxid: s.cxid, zxid: s.zxid, replied: s.replied} }

// Received counts n requests.
func (s *Conn) Received(n int) { s.received += int64(n) }

// Total returns how many requests were received and how many bytes were sent.
func (s *Conn) Total() (requests, bytes int64) { return s.received, s.bytes }

// Last records the last reply: to which request it was, and its zxid.
func (s *Conn) Last(xid int32, op jute.OpCode, zxid int64) {
	s.op, s.zxid = op, zxid
	if xid >= 0 {
		s.cxid = xid
	}
}

// Took records n requests that were answered at the time `now`, each after the time d.
func (s *Conn) Took(n int, d, now time.Duration) {
	ms := d.Milliseconds()
	s.replied = now
	if s.count == 0 || ms < s.least {
		s.least = ms
	}
	s.longest = max(s.longest, ms)
	s.latest = ms
	s.count += int64(n)
	s.sum += int64(n) * ms
}

// Size records the length of a reply.
func (s *Conn) Size(n int) {
	if s.replies == 0 || n < s.leastSize {
		s.leastSize = n
	}
	s.mostSize = max(s.mostSize, n)
	s.lastSize = n
	s.replies++
}

// Wrote counts frames that will be written now. It also adds the sizes of the replies among them to the
// server's metrics.
func (s *Conn) Wrote(frames, bytes int, m *metrics.Set) {
	s.sent += int64(frames)
	s.bytes += int64(bytes)
	m.PacketsSent.Add(int64(frames))
	m.ResponseBytes.Add(int64(bytes))
	if s.replies > 0 {
		m.Responses.Observe(int64(s.leastSize))
		m.Responses.Observe(int64(s.mostSize))
		m.Responses.Observe(int64(s.lastSize))
		s.replies, s.mostSize = 0, 0
	}
}

// Describe fills in what operators see. For a connection without a session, that is only how much was
// received and sent.
func (s *Conn) Describe(d *report.Conn) {
	d.Received, d.Sent, d.BytesOut = s.received, s.sent, s.bytes
	if d.Session == 0 {
		return
	}
	d.LastOp, d.LastCxid, d.LastZxid, d.LastReply = opLabels[s.op], int64(s.cxid), s.zxid, s.replied
	d.LastLatency = s.latest
	d.Latency = metrics.Latency{Min: s.least, Max: s.longest}
	if s.count > 0 {
		d.Latency.Avg = float64(s.sum) / float64(s.count)
	}
}

// opLabels are the names of operations as `cons` shows them.
var opLabels = map[jute.OpCode]string{
	state.OpCreateSession: "SESS", state.OpAttach: "SESS", jute.OpPing: "PING", jute.OpCreate: "CREA",
	jute.OpCreate2: "CREA", jute.OpCreateContainer: "CREA", jute.OpCreateTTL: "CREA", jute.OpDelete: "DELE",
	jute.OpSetData: "SETD", jute.OpGetData: "GETD", jute.OpExists: "EXIS", jute.OpGetChildren: "GETC",
	jute.OpGetChildren2: "GETC", jute.OpGetACL: "GETA", jute.OpSetACL: "SETA", jute.OpSync: "SYNC",
	jute.OpMulti: "MULT", jute.OpMultiRead: "MLTR", jute.OpCheck: "CHEC", jute.OpCheckWatches: "CHKW",
	jute.OpRemoveWatches: "REMW", jute.OpSetWatches: "SETW", jute.OpSetWatches2: "STW2",
	jute.OpAddWatch: "ADDW", jute.OpGetEphemerals: "GETE", jute.OpGetAllChildrenNumber: "GETACN",
	jute.OpWhoAmI: "HOMI", jute.OpReconfig: "RECO", jute.OpCloseSession: "CLOS",
}
