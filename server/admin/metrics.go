package admin

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Metrics is what a server counts while it works. The zero value is ready.
// Its fields are used directly: m.ReadLatency.ObserveTime(d).
type Metrics struct {
	PacketsReceived Counter // reset by srst, as are all Recorders
	PacketsSent     Counter
	Responses       Extremes
	Requests        Recorder // every request, µs

	ConnectionRequests  Counter // connect requests, new and returning
	ConnectionRejected  Counter // refused by a limit
	ConnectionDropped   Counter // ended by the server: too slow, too much, malformed
	Revalidated         Counter // attaches of an existing session
	SessionlessExpired  Counter // connections that sent no connect request in time
	SessionsExpired     Counter // sessions that fell silent
	BytesReceived       Counter
	ResponseBytes       Counter
	WatchBytes          Counter
	LargeRejected       Counter // frames above the limit
	HandshakeFailed     Counter // connect requests that could not be read
	TLSHandshakeFailed  Counter
	AuthFailed          Counter // never reset
	UnrecoverableErrors Counter // panics in a connection
	ClosedNotServing    Counter // closed because the server did not serve
	Throttled           Counter // times a socket was not read because the server was full

	ReadLatency        Recorder // µs
	UpdateLatency      Recorder // µs
	PropagationLatency Recorder // µs from the leader's stamp to the local apply
	NodeCreatedWatch   Recorder // watches fired by one event
	NodeDeletedWatch   Recorder
	NodeChangedWatch   Recorder
	NodeChildrenWatch  Recorder

	// What the replicated log measures, times in µs.
	Proposals         Extremes // bytes of log entries proposed here
	ProposalCount     Counter
	Elections         Counter  // times this server knew no leader
	SnapshotsSent     Counter  // to followers
	QueueSize         Recorder // requests under way when an entry is proposed
	BatchSize         Recorder // requests in an entry
	AckLatency        Recorder // at the leader: proposed to committed
	ProposalLatency   Recorder // at the leader: proposed to applied
	ElectionTime      Recorder
	LeaderUnavailable Recorder
	Unavailable       Recorder
	SnapshotWrite     Recorder
	SnapshotRead      Recorder // at the start
	ReplayEntries     Recorder // at the start
	ReplayTime        Recorder

	Reads  Namespaces // bytes, by first part of the path
	Writes Namespaces
}

// micro is how many of the recorded microseconds make a millisecond.
const micro = 1000

// Fill puts the values into s: those of srvr always, and under ZooKeeper's
// names when metrics are needed. It makes the maps that are nil.
func (m *Metrics) Fill(s *Status, need Need) {
	s.Received, s.Sent = m.PacketsReceived.Load(), m.PacketsSent.Load()
	s.Responses = m.Responses.Value()
	all := m.Requests.Value(s.Now, micro)
	s.Latency = Latency{Min: int64(all.Min), Avg: all.Avg(), Max: int64(all.Max)}
	s.AuthFailed = m.AuthFailed.Load()
	s.Proposals = m.Proposals.Value()
	if need&NeedMetrics == 0 {
		return
	}

	if s.Counters == nil {
		s.Counters = make(map[string]int64)
	}
	for name, c := range map[string]*Counter{
		"connection_request_count":              &m.ConnectionRequests,
		"connection_rejected":                   &m.ConnectionRejected,
		"connection_drop_count":                 &m.ConnectionDropped,
		"connection_revalidate_count":           &m.Revalidated,
		"revalidate_count":                      &m.Revalidated,
		"sessionless_connections_expired":       &m.SessionlessExpired,
		"stale_sessions_expired":                &m.SessionsExpired,
		"bytes_received_count":                  &m.BytesReceived,
		"response_bytes":                        &m.ResponseBytes,
		"watch_bytes":                           &m.WatchBytes,
		"large_requests_rejected":               &m.LargeRejected,
		"unsuccessful_handshake":                &m.HandshakeFailed,
		"tls_handshake_exceeded":                &m.TLSHandshakeFailed,
		"unrecoverable_error_count":             &m.UnrecoverableErrors,
		"cnxn_closed_without_zk_server_running": &m.ClosedNotServing,
		"request_throttle_wait_count":           &m.Throttled,
		"proposal_count":                        &m.ProposalCount,
		"looking_count":                         &m.Elections,
		"snap_count":                            &m.SnapshotsSent,
	} {
		s.Counters[name] = c.Load()
	}

	if s.Summaries == nil {
		s.Summaries = make(map[string]Summary)
	}
	for name, r := range m.recorders() {
		unit := float64(micro)
		if counted[name] {
			unit = 1
		}
		s.Summaries[name] = r.Value(s.Now, unit)
	}
	if s.Keyed == nil {
		s.Keyed = make(map[string]map[string]Summary)
	}
	s.Keyed["read_per_namespace"] = m.Reads.values(s.Now)
	s.Keyed["write_per_namespace"] = m.Writes.values(s.Now)
}

// counted are the recorders of numbers; the others are of times.
var counted = map[string]bool{
	"node_created_watch_count": true, "node_deleted_watch_count": true, "node_changed_watch_count": true,
	"node_children_watch_count": true,
	"sync_processor_batch_size": true, "sync_processor_queue_size": true, "startup_txns_loaded": true,
}

func (m *Metrics) recorders() map[string]*Recorder {
	return map[string]*Recorder{
		"readlatency":               &m.ReadLatency,
		"updatelatency":             &m.UpdateLatency,
		"propagation_latency":       &m.PropagationLatency,
		"node_created_watch_count":  &m.NodeCreatedWatch,
		"node_deleted_watch_count":  &m.NodeDeletedWatch,
		"node_changed_watch_count":  &m.NodeChangedWatch,
		"node_children_watch_count": &m.NodeChildrenWatch,
		"sync_processor_queue_size": &m.QueueSize,
		"sync_processor_batch_size": &m.BatchSize,
		"quorum_ack_latency":        &m.AckLatency,
		"proposal_latency":          &m.ProposalLatency,
		"election_time":             &m.ElectionTime,
		"leader_unavailable_time":   &m.LeaderUnavailable,
		"unavailable_time":          &m.Unavailable,
		"snapshottime":              &m.SnapshotWrite,
		"dbinittime":                &m.SnapshotRead,
		"startup_snap_load_time":    &m.SnapshotRead,
		"startup_txns_loaded":       &m.ReplayEntries,
		"startup_txns_load_time":    &m.ReplayTime,
	}
}

// Reset zeroes what `srst` zeroes.
func (m *Metrics) Reset() {
	m.PacketsReceived.Store(0)
	m.PacketsSent.Store(0)
	m.Responses.Reset()
	m.Proposals.Reset()
	m.Requests.Reset()
	for _, r := range m.recorders() {
		r.Reset()
	}
	m.Reads.reset()
	m.Writes.reset()
}

// Extremes keeps the last, smallest and largest of a series of sizes. The
// zero value is ready.
type Extremes struct {
	last, least, greatest atomic.Int64 // each + 1, 0 before the first
}

// Observe records v, which is not negative.
func (e *Extremes) Observe(v int64) {
	v++
	e.last.Store(v)
	for old := e.least.Load(); old == 0 || v < old; old = e.least.Load() {
		if e.least.CompareAndSwap(old, v) {
			break
		}
	}
	for old := e.greatest.Load(); v > old; old = e.greatest.Load() {
		if e.greatest.CompareAndSwap(old, v) {
			break
		}
	}
}

// Value returns what was recorded.
func (e *Extremes) Value() Sizes {
	return Sizes{Last: e.last.Load() - 1, Min: e.least.Load() - 1, Max: e.greatest.Load() - 1}
}

// Reset forgets everything.
func (e *Extremes) Reset() {
	e.last.Store(0)
	e.least.Store(0)
	e.greatest.Store(0)
}

// maxNamespaces bounds the memory a client can take by inventing top-level names; further names
// are counted together.
const (
	maxNamespaces   = 32
	maxNamespace    = 64       // bytes of a name that is counted by itself
	otherNamespaces = "/other" // no first part of a path has a slash
)

// Namespaces collects sizes by the first part of a path. The zero value is
// ready. Looking a name up takes no lock; a new one copies the map.
type Namespaces struct {
	mu sync.Mutex // held while a name is added
	m  atomic.Pointer[map[string]*Recorder]
}

// Observe records n bytes for path.
func (n *Namespaces) Observe(path string, bytes int64) {
	name := strings.TrimPrefix(path, "/")
	if i := strings.IndexByte(name, '/'); i >= 0 {
		name = name[:i]
	}
	if len(name) > maxNamespace {
		name = otherNamespaces
	}
	if m := n.m.Load(); m != nil {
		r := (*m)[name]
		if r == nil && len(*m) >= maxNamespaces-1 {
			r = (*m)[otherNamespaces]
		}
		if r != nil {
			r.Observe(bytes)
			return
		}
	}
	n.add(name).Observe(bytes)
}

func (n *Namespaces) add(name string) *Recorder {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := map[string]*Recorder{}
	if p := n.m.Load(); p != nil {
		old = *p
	}
	if len(old) >= maxNamespaces-1 {
		name = otherNamespaces
	}
	if r := old[name]; r != nil {
		return r
	}
	fresh := maps.Clone(old)
	r := new(Recorder)
	fresh[strings.Clone(name)] = r
	n.m.Store(&fresh)
	return r
}

func (n *Namespaces) values(now time.Time) map[string]Summary {
	out := make(map[string]Summary)
	if m := n.m.Load(); m != nil {
		for name, r := range *m {
			out[name] = r.Value(now, 1)
		}
	}
	return out
}

func (n *Namespaces) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m.Store(nil)
}
