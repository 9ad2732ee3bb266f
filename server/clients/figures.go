package clients

import (
	"net"
	"time"

	"github.com/zlockd/zlockd/server/admin"
)

// Fill puts into a status what the server is doing. It costs a lock per connection.
func (s *Server) Fill(to *admin.Status, need admin.Need) {
	s.metrics.Fill(to, need)
	list := s.all()
	to.Serving, to.Uptime, to.Conns = s.serves(), s.now(), len(list)
	for _, c := range list {
		c.out.mu.Lock()
		to.Outstanding += c.out.pendingLen()
		c.out.mu.Unlock()
	}
	t := &s.watches
	t.mu.Lock()
	to.WatchConns, to.WatchPaths, to.Watches = t.table.Summary()
	to.AllWatches = t.table.Count()
	watchBytes, largest := t.table.Bytes(), 0
	for _, c := range list {
		_, bytes := t.table.Of(c)
		largest = max(largest, bytes)
	}
	t.mu.Unlock()
	if need&admin.NeedMetrics == 0 {
		return
	}
	s.memory.mu.Lock()
	buffers := s.memory.used
	s.memory.mu.Unlock()
	to.Measure("watches", "Watches of all kinds.", float64(to.AllWatches))
	to.Measure("watch_memory_bytes", "Memory that watches take.", float64(watchBytes))
	to.Measure("watch_memory_limit_bytes", "Memory that watches may take.", float64(s.o.MaxWatchBytes))
	to.Measure("watch_memory_largest_bytes", "Memory that the watches of one connection take, at most.",
		float64(largest))
	to.Measure("buffer_bytes",
		"Memory of large requests on their way in and of replies and events on their way out.", float64(buffers))
	to.Measure("buffer_limit_bytes", "Limit of zlockd_buffer_bytes.", float64(s.o.MaxBuffers))
	to.Measure("accept_errors_total", "Connections that the server failed to accept.",
		float64(s.counts.acceptErrors.Load()))
	to.Measure("foreign_connections_total", "Connections that spoke another protocol.",
		float64(s.counts.foreign.Load()))
	to.Measure("sessions_refused_total", "Clients whose session had ended.", float64(s.counts.refused.Load()))
	to.Measure("log_lines_dropped_total", "Log lines about clients left out because there were too many.",
		float64(s.log.dropped.Load()))
	for r := endClient; r < endReasons; r++ {
		to.Measure("connection_ends_total", "Connections that ended, by reason.", float64(s.counts.ends[r].Load()),
			admin.Pair{Key: "reason", Value: r.String()})
	}
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
