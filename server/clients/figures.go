package clients

import (
	"github.com/zlockd/zlockd/server/clients/conn"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
)

// Fill adds the connections and counters of the server to a status. It takes a lock of each connection.
func (s *Server) Fill(to *report.Status, need report.Need) {
	to.Fill(&s.conns.Metrics, need)
	list := s.conns.All()
	to.Serving, to.ReadOnly = s.conns.Entrance.Open(), s.conns.Entrance.ReadOnly()
	to.Uptime, to.Conns = s.conns.Now(), len(list)
	for _, c := range list {
		to.Outstanding += c.Waits()
	}
	watched := s.conns.Watches.Figures()
	to.WatchConns, to.WatchPaths, to.Watches = watched.Conns, watched.Paths, watched.Watches
	to.AllWatches = watched.All
	if need&report.NeedMetrics == 0 {
		return
	}
	watchers := make([]*watchers.Watcher, len(list))
	for i, c := range list {
		watchers[i] = c.Watcher()
	}
	largest := s.conns.Watches.Largest(watchers)
	buffers := s.conns.Memory.Used()
	to.Measure("watches", "Watches of all kinds.", float64(to.AllWatches))
	to.Measure("watch_memory_bytes", "Memory that watches take.", float64(watched.Bytes))
	to.Measure("watch_memory_limit_bytes", "Memory that watches may take.",
		float64(s.conns.Options.MaxWatchBytes))
	to.Measure("watch_memory_largest_bytes", "Largest memory that the watches of one connection take.",
		float64(largest))
	to.Measure("buffer_bytes",
		"Memory of large requests being received, and of answers and events to be sent.", float64(buffers))
	to.Measure("buffer_limit_bytes", "Limit of zlockd_buffer_bytes.", float64(s.conns.Options.MaxBuffers))
	to.Measure("accept_errors_total", "Connections that the server failed to accept.",
		float64(s.conns.Counts.AcceptErrors.Load()))
	to.Measure("foreign_connections_total", "Connections that spoke another protocol.",
		float64(s.conns.Counts.Foreign.Load()))
	to.Measure("sessions_refused_total", "Clients refused because their session had ended.",
		float64(s.conns.Counts.Refused.Load()))
	to.Measure("new_sessions_refused_total", "Clients that got no session because there were too many.",
		float64(s.conns.Counts.RefusedNew.Load()))
	to.Measure("contenders_refused_total", "Requests of clients that --one-layout refused with NOAUTH.",
		float64(s.conns.Counts.Divided.Load()))
	to.Measure("log_lines_dropped_total", "Log lines about clients dropped because there were too many.",
		float64(s.conns.Log.Dropped()))
	for r := ends.Client; r < ends.Reasons; r++ {
		to.Measure("connection_ends_total", "Connections that ended, by reason.",
			float64(s.conns.Counts.Ends[r].Load()), report.Pair{Key: "reason", Value: r.String()})
	}
}

// Metrics returns the values that the server measures.
func (s *Server) Metrics() *metrics.Set { return &s.conns.Metrics }

// Conns describes every client connection.
func (s *Server) Conns() []report.Conn {
	list := s.conns.All()
	conns := make([]report.Conn, 0, len(list))
	for _, c := range list {
		conns = append(conns, c.Describe())
	}
	return conns
}

// ResetConns zeroes the statistics of every connection.
func (s *Server) ResetConns() {
	for _, c := range s.conns.All() {
		c.Forget()
	}
}

// WatchScan calls f, in no order, for each pair of a path and a session that has a data or persistent watch
// there, until f returns false. It holds the lock of the watches for a bounded number of pairs at a time.
func (s *Server) WatchScan(f func(path string, session int64) bool) {
	type pair struct {
		path string
		c    *conn.Conn
	}
	const step = 1000
	var pairs []pair
	for from := uint32(0); ; {
		pairs = pairs[:0]
		from = s.conns.Watches.Scan(from, step, func(path string, w *watchers.Watcher) {
			pairs = append(pairs, pair{path, conn.Watching(w)})
		})
		for _, p := range pairs {
			if !f(p.path, p.c.Session()) {
				return
			}
		}
		if from == 0 {
			return
		}
	}
}

// Watching reports whether a session watches exactly this path; `known` is false if the session is not
// connected to this server.
func (s *Server) Watching(session int64, path string) (watching, known bool) {
	c := s.conns.Of(session)
	return c != nil && s.conns.Watches.Has(c.Watcher(), path), c != nil
}

// Watchers returns sessions connected here that watch exactly this path, but at most `most` of them.
func (s *Server) Watchers(path string, most int) (sessions []int64) {
	s.conns.Watches.At(path, most, func(w *watchers.Watcher) {
		sessions = append(sessions, conn.Watching(w).Session())
	})
	return sessions
}

// WatchCount returns how many watches a session has at this server.
func (s *Server) WatchCount(session int64) int {
	c := s.conns.Of(session)
	if c == nil {
		return 0
	}
	return s.conns.Watches.Of(c.Watcher())
}
