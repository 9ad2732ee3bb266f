package metrics

import (
	"reflect"
	"strings"
	"sync/atomic"
	"time"
)

// Set has the counters of a working server. The zero value is ready. Callers use the fields directly:
// m.ReadLatency.ObserveTime(d). The tag `zk` of a Counter or Recorder gives its names in ZooKeeper. A
// Recorder has times in microseconds or, with the tag `count`, numbers.
type Set struct {
	PacketsReceived Counter // reset by srst, as are all Recorders
	PacketsSent     Counter
	AuthFailed      Counter // never reset
	Responses       Extremes
	Proposals       Extremes // sizes of the log entries that this server proposes, in bytes
	Requests        Recorder // every request

	ConnectionRequests  Counter `zk:"connection_request_count"` // connect requests
	ConnectionRejected  Counter `zk:"connection_rejected"`      // refused by a limit
	ConnectionDropped   Counter `zk:"connection_drop_count"`    // ended by the server, not by the client
	Revalidated         Counter `zk:"connection_revalidate_count revalidate_count"`
	SessionlessExpired  Counter `zk:"sessionless_connections_expired"` // no connect request arrived in time
	SessionsExpired     Counter `zk:"stale_sessions_expired"`
	BytesReceived       Counter `zk:"bytes_received_count"`
	ResponseBytes       Counter `zk:"response_bytes"`
	WatchBytes          Counter `zk:"watch_bytes"`
	LargeRejected       Counter `zk:"large_requests_rejected"`
	HandshakeFailed     Counter `zk:"unsuccessful_handshake"` // connect requests that could not be read
	TLSHandshakeFailed  Counter `zk:"tls_handshake_exceeded"`
	UnrecoverableErrors Counter `zk:"unrecoverable_error_count"` // panics in a connection
	ClosedNotServing    Counter `zk:"cnxn_closed_without_zk_server_running"`
	Throttled           Counter `zk:"request_throttle_wait_count"` // had to wait for a share or for memory

	ReadLatency        Recorder `zk:"readlatency"`
	UpdateLatency      Recorder `zk:"updatelatency"`
	PropagationLatency Recorder `zk:"propagation_latency"`               // from the leader's clock to Apply here
	NodeCreatedWatch   Recorder `zk:"node_created_watch_count" count:""` // how many watches one event fires
	NodeDeletedWatch   Recorder `zk:"node_deleted_watch_count" count:""`
	NodeChangedWatch   Recorder `zk:"node_changed_watch_count" count:""`
	NodeChildrenWatch  Recorder `zk:"node_children_watch_count" count:""`

	// The replicated log.
	ProposalCount Counter `zk:"proposal_count"`
	Elections     Counter `zk:"looking_count"` // how many times this server lost its leader
	// how many snapshots were sent to followers
	SnapshotsSent Counter  `zk:"snap_count"`
	QueueSize     Recorder `zk:"sync_processor_queue_size" count:""` // requests that wait when one is proposed
	BatchSize     Recorder `zk:"sync_processor_batch_size" count:""` // requests in an entry
	// time from the proposal to the commit, at the leader
	AckLatency Recorder `zk:"quorum_ack_latency"`
	// time from the proposal until the leader has applied the entry
	ProposalLatency   Recorder `zk:"proposal_latency"`
	ElectionTime      Recorder `zk:"election_time"`
	LeaderUnavailable Recorder `zk:"leader_unavailable_time"`
	Unavailable       Recorder `zk:"unavailable_time"`
	SnapshotWrite     Recorder `zk:"snapshottime"`
	SnapshotRead      Recorder `zk:"dbinittime startup_snap_load_time"` // time to read the snapshot at the start
	ReplayEntries     Recorder `zk:"startup_txns_loaded" count:""`      // entries that were applied at the start
	ReplayTime        Recorder `zk:"startup_txns_load_time"`

	Reads  Namespaces // bytes read, by the first part of the path
	Writes Namespaces
}

// Micro is the number of microseconds in a millisecond: it converts recorded times.
const Micro = 1000

// Named returns the counters and the summaries of the recorders, by their names in ZooKeeper.
func (m *Set) Named(now time.Time) (counters map[string]int64, summaries map[string]Summary) {
	counters, summaries = map[string]int64{}, map[string]Summary{}
	m.each(func(field any, tag reflect.StructTag) {
		unit := float64(Micro)
		if _, counts := tag.Lookup("count"); counts {
			unit = 1
		}
		for name := range strings.FieldsSeq(tag.Get("zk")) {
			switch f := field.(type) {
			case *Counter:
				counters[name] = f.Load()
			case *Recorder:
				summaries[name] = f.Value(now, unit)
			}
		}
	})
	return counters, summaries
}

// each() calls f with a pointer to each field and its tags.
func (m *Set) each(f func(field any, tag reflect.StructTag)) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		f(v.Field(i).Addr().Interface(), v.Type().Field(i).Tag)
	}
}

// Reset zeroes what `srst` zeroes.
func (m *Set) Reset() {
	m.PacketsReceived.Store(0)
	m.PacketsSent.Store(0)
	m.each(func(field any, _ reflect.StructTag) {
		if r, ok := field.(interface{ Reset() }); ok { // a Counter has no Reset, and is left alone
			r.Reset()
		}
	})
}

// Extremes keeps the last, smallest and largest of a series of sizes. The
// zero value is ready.
type Extremes struct {
	last atomic.Int64 // the last size plus 1; 0 before the first size
	bounds
}

// Observe records v, which is not negative.
func (e *Extremes) Observe(v int64) {
	e.last.Store(v + 1)
	e.note(v)
}

// Value returns the recorded value.
func (e *Extremes) Value() Sizes {
	return Sizes{Last: e.last.Load() - 1, Min: e.least.Load() - 1, Max: e.greatest.Load() - 1}
}

// Reset forgets everything.
func (e *Extremes) Reset() {
	e.last.Store(0)
	e.clear()
}
