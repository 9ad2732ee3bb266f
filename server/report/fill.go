package report

import "github.com/zlockd/zlockd/server/metrics"

// Fill copies counters into the status: always those that srvr shows and, with NeedMetrics, all that have a
// name in ZooKeeper.
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

// Families of metrics that have a size for each first part of a path.
const (
	readNames  = "read_per_namespace"
	writeNames = "write_per_namespace"
)

// HideNamespaces removes the sizes that tell names, for a reader who may not see the names of top-level
// nodes.
func (s *Status) HideNamespaces() {
	metrics.HideNames(s.Keyed[readNames])
	metrics.HideNames(s.Keyed[writeNames])
}
