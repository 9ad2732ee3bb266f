package clients

import (
	"net"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
)

// Figures are what a server is doing at one moment.
type Figures struct {
	Serving     bool
	Uptime      time.Duration
	Conns       int // open client connections in any phase
	Outstanding int // requests proposed and not yet answered

	// Of the data registry alone, as wchs shows them.
	WatchConns, WatchPaths, WatchPairs int
	Watches                            int   // of both registries
	WatchBytes                         int64 // memory they take
	WatchBytesMost                     int64 // of one connection
	BufferBytes                        int64 // of large frames and of what waits to be written

	AcceptErrors    int64
	Foreign         int64 // connections that spoke another protocol
	SessionsRefused int64 // attaches answered "expired"
	LogDropped      int64 // log lines about input that were not written
	Ends            []End // ended connections, one End for every reason
}

// End tells how many connections ended for one reason.
type End struct {
	Reason string
	Count  int64
}

// Figures gathers the server's state. It costs a lock per connection.
func (s *Server) Figures() Figures {
	f := Figures{
		Serving:         s.serves(),
		Uptime:          s.now(),
		AcceptErrors:    s.counts.acceptErrors.Load(),
		Foreign:         s.counts.foreign.Load(),
		SessionsRefused: s.counts.refused.Load(),
		LogDropped:      s.log.dropped.Load(),
	}
	list := s.all()
	f.Conns = len(list)
	for _, c := range list {
		c.out.mu.Lock()
		f.Outstanding += c.out.pendingLen()
		c.out.mu.Unlock()
	}
	for r := endClient; r < endReasons; r++ {
		f.Ends = append(f.Ends, End{r.String(), s.counts.ends[r].Load()})
	}
	s.memory.mu.Lock()
	f.BufferBytes = int64(s.memory.used)
	s.memory.mu.Unlock()
	t := &s.watches
	t.mu.Lock()
	defer t.mu.Unlock()
	f.WatchConns, f.WatchPaths, f.WatchPairs = t.table.Summary()
	f.Watches = t.table.Count()
	f.WatchBytes = t.table.Bytes()
	for _, c := range list {
		_, bytes := t.table.Of(c)
		f.WatchBytesMost = max(f.WatchBytesMost, int64(bytes))
	}
	return f
}

// Metrics are the values the server measures.
func (s *Server) Metrics() *admin.Metrics { return &s.metrics }

// Conns describes every client connection.
func (s *Server) Conns() []admin.Conn {
	list := s.all()
	conns := make([]admin.Conn, 0, len(list))
	for _, c := range list {
		conns = append(conns, c.describe())
	}
	return conns
}

// ResetConns zeroes the statistics of every connection.
func (s *Server) ResetConns() {
	for _, c := range s.all() {
		o := &c.out
		o.mu.Lock()
		o.stat = connStat{op: o.stat.op, cxid: o.stat.cxid, zxid: o.stat.zxid, replied: o.stat.replied}
		o.mu.Unlock()
	}
}

// WatchScan calls f for every pair of a path and a session that has a data or persistent watch
// there, in no order. It holds the lock of the watches for a bounded number of pairs at a time.
func (s *Server) WatchScan(f func(path string, session int64)) {
	type pair struct {
		path string
		c    *conn
	}
	const step = 1000
	var pairs []pair
	for from := uint32(0); ; {
		pairs = pairs[:0]
		s.watches.mu.Lock()
		from = s.watches.table.Scan(from, step, func(path string, c *conn) { pairs = append(pairs, pair{path, c}) })
		s.watches.mu.Unlock()
		for _, p := range pairs {
			f(p.path, p.c.session)
		}
		if from == 0 {
			return
		}
	}
}

// describe returns the connection as operators see it.
func (c *conn) describe() admin.Conn {
	d := admin.Conn{Addr: addrOf(c.nc), Secure: c.secure, Established: c.srv.o.Now().Add(c.born - c.srv.now()),
		LastCxid: -1}
	if phase(c.phase.Load()) == phaseWord {
		d.Received = 1
		return d
	}
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	st := &o.stat
	d.Queued, d.Received, d.Sent = int64(o.pendingLen()), st.received, st.sent
	d.BytesIn, d.BytesOut = c.bytesIn.Load(), st.bytes
	switch {
	case o.flushing:
		d.Interest = 5
	case !o.waiting:
		d.Interest = 1
	}
	if phase(c.phase.Load()) != phaseOpen {
		return d
	}
	d.Session = c.session
	d.LastOp = opLabel(st.op)
	d.Timeout = c.timeout
	d.Expires = c.srv.o.Now().Add(time.Duration(c.lastHeard.Load()) - c.srv.now() + c.timeout + c.margin())
	d.LastCxid, d.LastZxid, d.LastReply = int64(st.cxid), st.zxid, st.replied
	d.LastLatency = st.latest
	d.Latency = admin.Latency{Min: st.least, Max: st.longest}
	if st.count > 0 {
		d.Latency.Avg = float64(st.sum) / float64(st.count)
	}
	return d
}

func addrOf(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// opLabel is an operation's name as `cons` shows it.
func opLabel(op jute.OpCode) string { return opLabels[op] }

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
