package admin

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/raftfsm/status"
)

func jsonConfiguration(j *jsonWriter, s *Status) {
	c := &s.Config
	j.fields("client_port", c.ClientPort, "data_dir", c.DataDir, "data_log_dir", c.LogDir,
		"tick_time", c.TickTime.Milliseconds(), "max_client_cnxns", c.MaxClientCnxns,
		"min_session_timeout", c.MinSessionTimeout.Milliseconds(),
		"max_session_timeout", c.MaxSessionTimeout.Milliseconds(), "server_id", confID(s),
		"client_port_listen_backlog", c.ListenBacklog)
}

// jsonConnections writes the lists of plain and of TLS connections.
func jsonConnections(j *jsonWriter, s *Status, brief bool) {
	for _, list := range []struct {
		key    string
		secure bool
	}{{"connections", false}, {"secure_connections", true}} {
		objects(j, list.key, s.ConnList, func(c *Conn) bool { return c.Secure == list.secure },
			func(c *Conn) { jsonConnection(j, c, brief) })
	}
}

func jsonConnection(j *jsonWriter, c *Conn, brief bool) {
	j.fields("remote_socket_address", hostPort(c.Addr), "interest_ops", c.Interest,
		"outstanding_requests", c.Queued, "packets_received", c.Received, "packets_sent", c.Sent)
	if !brief {
		j.fields("session_id", c.Session, "last_operation", lastOp(c),
			"established", c.Established.UnixMilli(), "session_timeout", c.Timeout.Milliseconds(),
			"last_cxid", c.LastCxid, "last_zxid", c.LastZxid,
			"last_response_time", c.LastReply.Milliseconds(), "last_latency", c.LastLatency,
			"min_latency", c.Latency.Min, "avg_latency", int64(c.Latency.Avg),
			"max_latency", c.Latency.Max)
	}
}

func jsonDump(j *jsonWriter, s *Status) {
	j.object("expiry_time_to_session_ids", func() {
		for _, set := range sessionSets(s) {
			ids := make([]int64, len(set.items))
			for i, x := range set.items {
				ids[i] = x.ID
			}
			j.field(strconv.FormatInt(set.uptime, 10), ids)
		}
	})
	j.object("session_id_to_ephemeral_paths", func() { jsonSessionPaths(j, s.Ephemerals) })
}

func jsonSessionPaths(j *jsonWriter, list []SessionPaths) {
	for _, l := range list {
		j.field(strconv.FormatInt(l.Session, 10), l.Paths)
	}
}

func jsonWatchesByPath(j *jsonWriter, s *Status) {
	paths, byPath := watchersByPath(s.WatchList)
	j.object("path_to_session_ids", func() {
		for _, p := range paths {
			j.field(p, byPath[p])
		}
	})
}

func jsonPairs(j *jsonWriter, pairs []Pair) {
	for _, p := range pairs {
		j.field(p.Key, p.Value)
	}
}

func jsonHash(j *jsonWriter, s *Status) {
	objects(j, "digests", s.Digests, func(*Digest) bool { return true }, func(d *Digest) {
		j.fields("zxid", d.Zxid, "digest", d.Digest, "digest_version", d.Version)
	})
}

func jsonLastSnapshot(j *jsonWriter, s *Status) {
	j.field("zxid", strings.TrimPrefix(Hex(s.Snapshot.Zxid), "0x"))
	seconds := int64(0)
	if !s.Snapshot.Time.IsZero() {
		seconds = s.Snapshot.Time.Unix()
	}
	j.field("timestamp", seconds)
}

func jsonLeader(j *jsonWriter, s *Status, _ url.Values) string {
	if !s.ensemble() {
		return "server is not initialized"
	}
	j.fields("is_leader", s.Mode == Leader, "leader_id", s.Leader, "leader_ip", withoutPort(s.LeaderAddr))
	return ""
}

func jsonMonitor(j *jsonWriter, s *Status) {
	s.each(func(name, value string, text bool) {
		if text {
			j.field(name, value)
		} else {
			j.field(name, json.Number(value))
		}
	})
}

func jsonObservers(j *jsonWriter, s *Status) {
	j.field("synced_observers", s.SyncedNon)
	objects(j, "observers", s.Members, func(m *status.Member) bool { return !m.Voter },
		func(m *status.Member) { j.fields("sid", m.ID, "address", m.Peer) })
}

func jsonServerStats(j *jsonWriter, s *Status) {
	sizes := func(z Sizes) func() {
		return func() {
			j.fields("last_buffer_size", z.Last, "min_buffer_size", z.Min, "max_buffer_size", z.Max)
		}
	}
	j.field("version", s.versionLine())
	j.field("read_only", s.Mode == ReadOnly)
	j.object("server_stats", func() {
		j.fields("packets_sent", s.Sent, "packets_received", s.Received,
			"fsync_threshold_exceed_count", s.Counters["fsync_threshold_exceed_count"])
		j.object("client_response_stats", sizes(s.Responses))
		j.fields("provider_null", false, "server_state", string(s.Mode),
			"outstanding_requests", s.Outstanding, "min_latency", s.Latency.Min,
			"avg_latency", s.Latency.Avg, "max_latency", s.Latency.Max, "data_dir_size", s.DataDirSize,
			"log_dir_size", s.LogDirSize, "last_processed_zxid", s.Zxid,
			"num_alive_client_connections", s.Conns, "uptime", s.Uptime.Milliseconds(),
			"auth_failed_count", s.AuthFailed, "non_mtlsremote_conn_count", 0,
			"non_mtlslocal_conn_count", 0)
	})
	j.object("client_response", sizes(s.Responses))
	if s.Mode == Leader {
		j.object("proposal_stats", sizes(s.Proposals))
	}
	j.field("node_count", s.Nodes)
}

func jsonVotingView(j *jsonWriter, s *Status) {
	j.object("current_config", func() {
		for _, m := range s.Members {
			if !m.Voter {
				continue
			}
			j.object(strconv.Itoa(int(m.ID)), func() {
				j.fields("server_addresses", []string{m.Peer}, "election_addresses", []string{m.Peer},
					"client_address", m.Client, "learner_type", "participant")
			})
		}
	})
}

// jsonZabState tells the ensemble's state in ZooKeeper's terms: the epoch is
// raft's term, the counter the zxid.
func jsonZabState(j *jsonWriter, s *Status) {
	m, ok := s.member()
	if !ok || !s.ensemble() {
		j.field("voting", false)
		j.field("zabstate", "")
		return
	}
	j.field("myid", s.ID)
	j.field("is_leader", s.Serving && s.Mode == Leader)
	j.object("quorum_address", func() { jsonAddress(j, m.Peer) })
	j.object("election_address", func() { jsonAddress(j, m.Peer) })
	j.fields("client_address", m.Client, "voting", m.Voter, "last_zxid", Hex(s.Zxid), "zab_epoch", s.Term,
		"zab_counter", s.Zxid)
	if s.Serving {
		j.field("zabstate", "broadcast")
	} else {
		j.field("zabstate", "election")
	}
}

func jsonAddress(j *jsonWriter, addr string) {
	list := []string{addr}
	port, _ := strconv.ParseInt(portOf(addr), 10, 64)
	j.fields("empty", false, "all_addresses", list, "all_reachable_addresses", list, "one", addr,
		"reachable_address", addr, "wildcard_addresses", []string{"0.0.0.0:" + portOf(addr)},
		"all_ports", []int64{port}, "all_host_strings", []string{withoutPort(addr)},
		"all_reachable_addresses_or_all", list, "reachable_or_one", addr)
}
