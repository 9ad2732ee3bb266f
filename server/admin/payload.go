package admin

import (
	"encoding/json"
	"iter"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin/exporter"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
)

func jsonConfiguration(s *report.Status) object {
	c := &s.Config
	return object{{"client_port", c.ClientPort}, {"data_dir", c.DataDir}, {"data_log_dir", c.LogDir},
		{"tick_time", c.TickTime.Milliseconds()}, {"max_client_cnxns", c.MaxClientCnxns},
		{"min_session_timeout", c.MinSessionTimeout.Milliseconds()},
		{"max_session_timeout", c.MaxSessionTimeout.Milliseconds()}, {"server_id", confID(s)},
		{"client_port_listen_backlog", c.ListenBacklog}}
}

// those() returns an iterator over objects: make() of each element for which show() is true.
func those[T any](list []T, show func(*T) bool, make func(*T) object) iter.Seq[object] {
	return func(yield func(object) bool) {
		for i := range list {
			if show(&list[i]) && !yield(make(&list[i])) {
				return
			}
		}
	}
}

// jsonConnections returns two lists: the connections without TLS, and those with TLS.
func jsonConnections(s *report.Status, make func(*report.Conn) object) object {
	return object{
		{"connections", those(s.ConnList, func(c *report.Conn) bool { return !c.Secure }, make)},
		{"secure_connections", those(s.ConnList, func(c *report.Conn) bool { return c.Secure }, make)},
	}
}

func jsonBrief(c *report.Conn) object {
	return object{{"remote_socket_address", hostPort(c.Addr)}, {"interest_ops", c.Interest},
		{"outstanding_requests", c.Queued}, {"packets_received", c.Received}, {"packets_sent", c.Sent}}
}

func jsonConnection(c *report.Conn) object {
	return append(jsonBrief(c), object{{"session_id", c.Session}, {"last_operation", lastOp(c)},
		{"established", c.Established.UnixMilli()}, {"session_timeout", c.Timeout.Milliseconds()},
		{"last_cxid", c.LastCxid}, {"last_zxid", c.LastZxid},
		{"last_response_time", c.LastReply.Milliseconds()}, {"last_latency", c.LastLatency},
		{"min_latency", c.Latency.Min}, {"avg_latency", int64(c.Latency.Avg)},
		{"max_latency", c.Latency.Max}}...)
}

func jsonDump(s *report.Status) object {
	var expiries object
	for _, set := range sessionSets(s) {
		ids := make([]int64, len(set.items))
		for i, x := range set.items {
			ids[i] = x.ID
		}
		expiries = append(expiries, member{strconv.FormatInt(set.uptime, 10), ids})
	}
	return object{{"expiry_time_to_session_ids", expiries},
		{"session_id_to_ephemeral_paths", jsonSessionPaths(s.Ephemerals)}}
}

func jsonSessionPaths(list []report.SessionPaths) (o object) {
	for _, l := range list {
		o = append(o, member{strconv.FormatInt(l.Session, 10), l.Paths})
	}
	return o
}

func jsonWatchesByPath(s *report.Status) object {
	paths, byPath := watchersByPath(s.WatchList)
	var o object
	for _, p := range paths {
		o = append(o, member{p, byPath[p]})
	}
	return object{{"path_to_session_ids", o}}
}

func jsonPairs(pairs []report.Pair) (o object) {
	for _, p := range pairs {
		o = append(o, member{p.Key, p.Value})
	}
	return o
}

func jsonHash(s *report.Status) object {
	all := func(*report.Digest) bool { return true }
	return object{{"digests", those(s.Digests, all, func(d *report.Digest) object {
		return object{{"zxid", d.Zxid}, {"digest", d.Digest}, {"digest_version", d.Version}}
	})}}
}

func jsonLastSnapshot(s *report.Status) object {
	seconds := int64(0)
	if !s.Snapshot.Time.IsZero() {
		seconds = s.Snapshot.Time.Unix()
	}
	return object{{"zxid", strings.TrimPrefix(report.Hex(s.Snapshot.Zxid), "0x")}, {"timestamp", seconds}}
}

func jsonMonitor(s *report.Status) (o object) {
	exporter.Lines(s, func(name, value string, text bool) {
		if text {
			o = append(o, member{name, value})
		} else {
			o = append(o, member{name, json.Number(value)})
		}
	})
	return o
}

func jsonObservers(s *report.Status) object {
	return object{{"synced_observers", s.SyncedNon},
		{"observers", those(s.Members, func(m *status.Member) bool { return !m.Voter },
			func(m *status.Member) object { return object{{"sid", m.ID}, {"address", m.Peer}} })}}
}

func jsonServerStats(s *report.Status) object {
	sizes := func(z metrics.Sizes) object {
		return object{{"last_buffer_size", z.Last}, {"min_buffer_size", z.Min}, {"max_buffer_size", z.Max}}
	}
	o := object{{"version", s.VersionLine()}, {"read_only", s.Mode == report.ReadOnly}, {"server_stats", object{
		{"packets_sent", s.Sent}, {"packets_received", s.Received},
		{"fsync_threshold_exceed_count", s.Counters["fsync_threshold_exceed_count"]},
		{"client_response_stats", sizes(s.Responses)}, {"provider_null", false},
		{"server_state", string(s.Mode)}, {"outstanding_requests", s.Outstanding},
		{"min_latency", s.Latency.Min}, {"avg_latency", s.Latency.Avg}, {"max_latency", s.Latency.Max},
		{"data_dir_size", s.DataDirSize}, {"log_dir_size", s.LogDirSize}, {"last_processed_zxid", s.Zxid},
		{"num_alive_client_connections", s.Conns}, {"uptime", s.Uptime.Milliseconds()},
		{"auth_failed_count", s.AuthFailed}, {"non_mtlsremote_conn_count", 0},
		{"non_mtlslocal_conn_count", 0},
	}}, {"client_response", sizes(s.Responses)}}
	if s.Mode == report.Leader {
		o = append(o, member{"proposal_stats", sizes(s.Proposals)})
	}
	return append(o, member{"node_count", s.Nodes})
}

func jsonVotingView(s *report.Status) object {
	var voters object
	for _, m := range s.Members {
		if m.Voter {
			voters = append(voters, member{strconv.Itoa(int(m.ID)), object{
				{"server_addresses", []string{m.Peer}}, {"election_addresses", []string{m.Peer}},
				{"client_address", m.Client}, {"learner_type", "participant"}}})
		}
	}
	return object{{"current_config", voters}}
}

// jsonZabState describes the server's part in the cluster in ZooKeeper's terms: the epoch is raft's term, and
// the counter is the zxid.
func jsonZabState(s *report.Status) object {
	m, ok := s.Self()
	if !ok || !s.Ensemble() {
		return object{{"voting", false}, {"zabstate", ""}}
	}
	state := "election"
	if s.Serving {
		state = "broadcast"
	}
	return object{{"myid", s.ID}, {"is_leader", s.Leading()}, {"quorum_address", jsonAddress(m.Peer)},
		{"election_address", jsonAddress(m.Peer)}, {"client_address", m.Client}, {"voting", m.Voter},
		{"last_zxid", report.Hex(s.Zxid)}, {"zab_epoch", s.Term}, {"zab_counter", s.Zxid}, {"zabstate", state}}
}

func jsonAddress(addr string) object {
	list := []string{addr}
	port, _ := strconv.ParseInt(portOf(addr), 10, 64)
	return object{{"empty", false}, {"all_addresses", list}, {"all_reachable_addresses", list}, {"one", addr},
		{"reachable_address", addr}, {"wildcard_addresses", []string{"0.0.0.0:" + portOf(addr)}},
		{"all_ports", []int64{port}}, {"all_host_strings", []string{withoutPort(addr)}},
		{"all_reachable_addresses_or_all", list}, {"reachable_or_one", addr}}
}
