// Package exporter shows the figures of a server's status as the lines of mntr and as metrics for Prometheus.
// The names are those that ZooKeeper's tools know. Prometheus also gets zlockd's own metrics.
package exporter

import (
	"maps"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
)

// The names below are ZooKeeper 3.8's, because dashboards and alerts use these. All of them exist from the
// start of the server. A name for which zlockd has no value stays at zero.

// gauge is a number that may rise and fall. If `float` is true, mntr always shows it with a decimal point.
type gauge struct {
	name, help string
	value      float64
	float      bool
}

// gauges returns the gauges that this server has in its present mode.
func gauges(s *report.Status) (list []gauge) {
	add := func(name string, v int64, help string) { list = append(list, gauge{name, help, float64(v), false}) }
	float := func(name string, v float64, help string) { list = append(list, gauge{name, help, v, true}) }
	add("ephemerals_count", int64(s.EphemeralCount), "Ephemeral nodes.")
	float("avg_latency", s.Latency.Avg, "Mean time of a request in milliseconds.")
	add("num_alive_connections", int64(s.Conns), "Open client connections.")
	add("outstanding_requests", int64(s.Outstanding), "Requests received and not yet answered.")
	add("znode_count", int64(s.Nodes), "Nodes of the tree.")
	add("global_sessions", int64(s.Sessions), "Sessions of the ensemble.")
	add("last_client_response_size", s.Responses.Last, "Bytes of the last response.")
	add("packets_sent", s.Sent, "Packets sent to clients since the last reset.")
	add("packets_received", s.Received, "Packets received from clients since the last reset.")
	add("max_client_response_size", s.Responses.Max, "Bytes of the largest response.")
	add("min_client_response_size", s.Responses.Min, "Bytes of the smallest response.")
	add("watch_count", int64(s.AllWatches), "Data and child watches.")
	add("auth_failed_count", s.AuthFailed, "Authentications that failed.")
	add("min_latency", s.Latency.Min, "Shortest time of a request in milliseconds.")
	add("max_latency", s.Latency.Max, "Longest time of a request in milliseconds.")
	add("approximate_data_size", s.DataSize, "Bytes of paths and data in the tree.")
	add("open_file_descriptor_count", s.OpenFiles, "Open file descriptors.")
	add("max_file_descriptor_count", s.MaxFiles, "Limit of open file descriptors.")
	add("uptime", s.Uptime.Milliseconds(), "Milliseconds since the start.")
	if s.Ensemble() {
		add("quorum_size", int64(voters(s)), "Voters of the ensemble.")
	}
	if s.Leading() {
		learners, followers := following(s)
		add("learners", int64(learners), "Servers that follow this leader.")
		add("followers", int64(followers), "Voters that follow this leader.")
		add("synced_followers", int64(s.Synced), "Voters that keep up with this leader.")
		add("synced_observers", int64(s.SyncedNon), "Servers without a vote that keep up.")
		add("synced_non_voting_followers", int64(s.SyncedNon), "As synced_observers.")
		add("pending_syncs", 0, "")
		add("leader_uptime", s.Leads.Milliseconds(), "Milliseconds since this server became leader.")
		add("last_proposal_size", s.Proposals.Last, "Bytes of the last log entry.")
		add("min_proposal_size", s.Proposals.Min, "Bytes of the smallest log entry.")
		add("max_proposal_size", s.Proposals.Max, "Bytes of the largest log entry.")
	}
	float("connection_drop_probability", 0, "")
	for _, name := range []string{"local_sessions", "outstanding_tls_handshake", "non_mtls_remote_conn_count",
		"non_mtls_local_conn_count"} {
		add(name, 0, "")
	}
	return list
}

// following counts the servers that follow this leader. As in ZooKeeper, where the leader counts connections,
// a member that is down is not among them.
func following(s *report.Status) (learners, followers int) {
	for _, m := range s.Members {
		if m.ID == s.ID || m.Applied == 0 {
			continue
		}
		if learners++; m.Voter {
			followers++
		}
	}
	return learners, followers
}

// voters counts the members with a vote.
func voters(s *report.Status) (n int) {
	for _, m := range s.Members {
		if m.Voter {
			n++
		}
	}
	return n
}

var (
	counterNames = strings.Fields(`
		proposal_count commit_count snap_count diff_count looking_count
		connection_request_count connection_rejected connection_drop_count connection_revalidate_count
		revalidate_count sessionless_connections_expired stale_sessions_expired
		stale_requests stale_requests_dropped stale_replies
		bytes_received_count response_bytes watch_bytes large_requests_rejected
		throttled_ops request_throttle_wait_count
		request_commit_queued prep_processor_request_queued sync_processor_request_queued
		learner_commit_received_count learner_proposal_received_count
		outstanding_changes_queued outstanding_changes_removed
		digest_mismatches_count unrecoverable_error_count unsuccessful_handshake tls_handshake_exceeded
		insecure_admin_count ensemble_auth_success ensemble_auth_fail ensemble_auth_skip
		dead_watchers_queued dead_watchers_cleared add_dead_watcher_stall_time
		response_packet_cache_hits response_packet_cache_misses
		response_packet_get_children_cache_hits response_packet_get_children_cache_misses
		quit_leading_due_to_disloyal_voter cnxn_closed_without_zk_server_running
		requests_not_forwarded_to_commit_processor skip_learner_request_to_next_processor_count`)

	basicNames = strings.Fields(`
		election_time leader_unavailable_time unavailable_time fsynctime snapshottime dbinittime
		startup_txns_loaded startup_txns_load_time startup_snap_load_time follower_sync_time observer_sync_time
		node_created_watch_count node_deleted_watch_count node_changed_watch_count node_children_watch_count
		connection_token_deficit proposal_process_time commit_process_time prep_process_time sync_process_time
		sync_processor_batch_size sync_processor_queue_size prep_processor_queue_size
		learner_request_processor_queue_size session_queues_drained pending_session_queue_size
		requests_in_session_queue reads_after_write_in_session_queue reads_issued_from_session_queue
		read_commit_proc_req_queued write_commit_proc_req_queued commit_commit_proc_req_queued
		read_commit_proc_issued write_commit_proc_issued concurrent_request_processing_in_commit_processor
		time_waiting_empty_pool_in_commit_processor_read_ms write_batch_time_in_commit_processor
		socket_closing_time inflight_snap_count inflight_diff_count netty_queued_buffer_capacity`)

	advancedNames = strings.Fields(`
		readlatency updatelatency propagation_latency proposal_latency commit_propagation_latency
		quorum_ack_latency proposal_ack_creation_latency close_session_prep_time
		read_commitproc_time_ms write_commitproc_time_ms read_final_proc_time_ms write_final_proc_time_ms
		local_write_committed_time_ms server_write_committed_time_ms
		prep_processor_queue_time_ms sync_processor_queue_time_ms sync_processor_queue_flush_time_ms
		sync_processor_queue_and_flush_time_ms request_throttle_queue_time_ms jvm_pause_time_ms
		dead_watchers_cleaner_latency om_commit_process_time_ms om_proposal_process_time_ms`)

	// keyedNames are the families that have a metric for each key. The value says whether the family has all
	// quantiles.
	keyedNames = map[string]bool{
		"read_per_namespace":         false,
		"write_per_namespace":        false,
		"ack_latency":                true,
		"learner_handler_qp_size":    false,
		"learner_handler_qp_time_ms": true,
	}
)

// learnerFamilies are families with a metric for each follower. A leader shows them, but has no values for
// them.
var learnerFamilies = []string{"ack_latency", "learner_handler_qp_size", "learner_handler_qp_time_ms"}

// keyed returns the families that have a metric for each key.
func keyed(s *report.Status) map[string]map[string]metrics.Summary {
	all := maps.Clone(s.Keyed)
	if all == nil || !s.Leading() {
		return all
	}
	for _, family := range learnerFamilies {
		by := maps.Clone(all[family])
		if by == nil {
			by = map[string]metrics.Summary{}
		}
		for _, m := range s.Members {
			id := strconv.Itoa(int(m.ID))
			if _, fed := by[id]; !fed && m.ID != s.ID {
				by[id] = metrics.Summary{}
			}
		}
		all[family] = by
	}
	return all
}
