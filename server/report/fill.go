package report

import "github.com/zlockd/zlockd/server/metrics"

// Fill copies values of the server's counters into the status. It always fills in the values of `srvr`. If
// `need` has NeedMetrics, it also fills in all values under ZooKeeper's names.
func (s *Status) Fill(m *metrics.Set, need Need) {
	s.Received, s.Sent = m.PacketsReceived.Load(), m.PacketsSent.Load()
	s.Responses = m.Responses.Value()
	all := m.Requests.Value(s.Now, metrics.Micro)
	s.Latency = metrics.Latency{Min: int64(all.Min), Avg: all.Avg(), Max: int64(all.Max)}
	s.AuthFailed = m.AuthFailed.Load()
	s.Proposals = m.Proposals.Value()
	if need&NeedMetrics == 0 {
		return
	}
	s.Counters, s.Summaries = m.Named(s.Now)
	s.Keyed = map[string]map[string]metrics.Summary{readNames: m.Reads.Values(s.Now),
		writeNames: m.Writes.Values(s.Now)}
}

// The families of metrics that count sizes by the first part of a path.
const (
	readNames  = "read_per_namespace"
	writeNames = "write_per_namespace"
)

// HideNamespaces removes the sizes that show the first part of a path. Call it if not every client may list
// these names.
func (s *Status) HideNamespaces() {
	metrics.HideNames(s.Keyed[readNames])
	metrics.HideNames(s.Keyed[writeNames])
}
