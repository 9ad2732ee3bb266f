package admin

import (
	"maps"
	"strconv"
	"strings"
)

// The names below are ZooKeeper's (3.8). Dashboards and alerts ask for them, so all exist from
// the start; names without a value here stay zero.

// gauge is a number that goes up and down.
type gauge struct {
	name  string
	help  string
	value func(*Status) float64
	float bool // mntr shows a decimal point always
	// only says when the gauge exists; nil is always
	only func(*Status) bool
}

func leading(s *Status) bool { return s.Serving && s.Mode == Leader }

func zero(*Status) float64 { return 0 }

func gaugeTable() []gauge {
	num := func(f func(*Status) int64) func(*Status) float64 {
		return func(s *Status) float64 { return float64(f(s)) }
	}
	count := func(f func(*Status) int) func(*Status) float64 {
		return func(s *Status) float64 { return float64(f(s)) }
	}
	return []gauge{
		{name: "ephemerals_count", help: "Ephemeral nodes.", value: count(func(s *Status) int {
			return s.EphemeralCount
		})},
		{name: "avg_latency", help: "Mean time of a request in milliseconds.", float: true,
			value: func(s *Status) float64 { return s.Latency.Avg }},
		{name: "num_alive_connections", help: "Open client connections.", value: count(func(s *Status) int {
			return s.Conns
		})},
		{name: "outstanding_requests", help: "Requests received and not yet answered.",
			value: count(func(s *Status) int { return s.Outstanding })},
		{name: "znode_count", help: "Nodes of the tree.", value: count(func(s *Status) int { return s.Nodes })},
		{name: "global_sessions", help: "Sessions of the ensemble.", value: count(func(s *Status) int {
			return s.Sessions
		})},
		{name: "last_client_response_size", help: "Bytes of the last response.", value: num(func(s *Status) int64 {
			return s.Responses.Last
		})},
		{name: "packets_sent", help: "Packets sent to clients since the last reset.",
			value: num(func(s *Status) int64 { return s.Sent })},
		{name: "packets_received", help: "Packets received from clients since the last reset.",
			value: num(func(s *Status) int64 { return s.Received })},
		{name: "max_client_response_size", help: "Bytes of the largest response.",
			value: num(func(s *Status) int64 { return s.Responses.Max })},
		{name: "min_client_response_size", help: "Bytes of the smallest response.",
			value: num(func(s *Status) int64 { return s.Responses.Min })},
		{name: "watch_count", help: "Data and child watches.", value: count(func(s *Status) int {
			return s.AllWatches
		})},
		{name: "auth_failed_count", help: "Authentications that failed.", value: num(func(s *Status) int64 {
			return s.AuthFailed
		})},
		{name: "min_latency", help: "Shortest time of a request in milliseconds.",
			value: num(func(s *Status) int64 { return s.Latency.Min })},
		{name: "max_latency", help: "Longest time of a request in milliseconds.", value: num(func(s *Status) int64 {
			return s.Latency.Max
		})},
		{name: "approximate_data_size", help: "Bytes of paths and data in the tree.",
			value: num(func(s *Status) int64 { return s.DataSize })},
		{name: "open_file_descriptor_count", help: "Open file descriptors.", value: num(func(s *Status) int64 {
			return s.OpenFiles
		})},
		{name: "max_file_descriptor_count", help: "Limit of open file descriptors.",
			value: num(func(s *Status) int64 { return s.MaxFiles })},
		{name: "uptime", help: "Milliseconds since the start.", value: num(func(s *Status) int64 {
			return millis(s.Uptime)
		})},
		{name: "quorum_size", help: "Voters of the ensemble.", value: count((*Status).voters),
			only: (*Status).ensemble},

		{name: "learners", help: "Servers that follow this leader.", only: leading,
			value: count(func(s *Status) int { return len(s.Members) - 1 })},
		{name: "followers", help: "Voters that follow this leader.", only: leading,
			value: count(func(s *Status) int { return s.voters() - 1 })},
		{name: "synced_followers", help: "Voters that keep up with this leader.", only: leading,
			value: count(func(s *Status) int { return s.Synced })},
		{name: "synced_observers", help: "Servers without a vote that keep up.", only: leading,
			value: count(func(s *Status) int { return s.SyncedNon })},
		{name: "synced_non_voting_followers", help: "As synced_observers.", only: leading,
			value: count(func(s *Status) int { return s.SyncedNon })},
		{name: "pending_syncs", only: leading, value: zero},
		{name: "leader_uptime", help: "Milliseconds since this server became leader.", only: leading,
			value: num(func(s *Status) int64 { return millis(s.Leads) })},
		{name: "last_proposal_size", help: "Bytes of the last log entry.", only: leading,
			value: num(func(s *Status) int64 { return s.Proposals.Last })},
		{name: "min_proposal_size", help: "Bytes of the smallest log entry.", only: leading,
			value: num(func(s *Status) int64 { return s.Proposals.Min })},
		{name: "max_proposal_size", help: "Bytes of the largest log entry.", only: leading,
			value: num(func(s *Status) int64 { return s.Proposals.Max })},

		{name: "connection_drop_probability", float: true, value: zero},
		{name: "local_sessions", value: zero},
		{name: "outstanding_tls_handshake", value: zero},
		{name: "non_mtls_remote_conn_count", value: zero},
		{name: "non_mtls_local_conn_count", value: zero},
	}
}

// voters counts the members with a vote.
func (s *Status) voters() (n int) {
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

	// keyedNames are families with a key; true: with all quantiles.
	keyedNames = map[string]bool{
		"read_per_namespace":         false,
		"write_per_namespace":        false,
		"ack_latency":                true,
		"learner_handler_qp_size":    false,
		"learner_handler_qp_time_ms": true,
	}
)

// learnerFamilies are the families whose key is a follower, on the leader.
// Nothing here feeds them.
var learnerFamilies = []string{"ack_latency", "learner_handler_qp_size", "learner_handler_qp_time_ms"}

// keyed returns the families with a key.
func (s *Status) keyed() map[string]map[string]Summary {
	all := maps.Clone(s.Keyed)
	if all == nil || !leading(s) {
		return all
	}
	for _, family := range learnerFamilies {
		by := maps.Clone(all[family])
		if by == nil {
			by = map[string]Summary{}
		}
		for _, m := range s.Members {
			id := strconv.Itoa(int(m.ID))
			if _, fed := by[id]; !fed && m.ID != s.ID {
				by[id] = Summary{}
			}
		}
		all[family] = by
	}
	return all
}
