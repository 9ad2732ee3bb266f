package clients

import (
	"net"
	"time"

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
		o.stat.Reset()
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
	d.Queued, d.BytesIn = int64(o.pendingLen()), c.bytesIn.Load()
	switch {
	case o.flushing:
		d.Interest = 5
	case !o.waiting:
		d.Interest = 1
	}
	if phase(c.phase.Load()) == phaseOpen {
		d.Session, d.Timeout = c.session, c.timeout
		d.Expires = c.srv.o.Now().Add(time.Duration(c.lastHeard.Load()) - c.srv.now() + c.timeout + c.margin())
	}
	o.stat.Describe(&d)
	return d
}

func addrOf(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}
