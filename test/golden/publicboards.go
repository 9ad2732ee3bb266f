package golden

import "strings"

// Public returns the queries of boards and rules that operators of ZooKeeper have: Grafana's boards 10465
// (ZooKeeper's own exporter, which its manual names) and 11442 (dabealu's exporter), Grafana's ZooKeeper
// library, the rules of ZooKeeper's manual and of a much used mixin. Each query names a metric and shows how
// the board or the rule uses it.
func Public() []Query {
	var list []Query
	add := func(board, form, names string) {
		for _, name := range strings.Fields(names) {
			list = append(list, Query{board, name, strings.ReplaceAll(form, "NAME", name)})
		}
	}
	const plain, of = `NAME{instance=~"$instance",job=~"$job"}`, `{instance=~"$instance",job=~"$job"}`

	add("10465", plain, `
		znode_count ephemerals_count global_sessions local_sessions write_per_namespace_sum
		read_per_namespace_sum approximate_data_size
		packets_received packets_sent response_packet_cache_misses response_packet_cache_hits
		response_packet_get_children_cache_misses
		response_packet_get_children_cache_hits unrecoverable_error_count digest_mismatches_count
		startup_snap_load_time startup_snap_load_time_count startup_snap_load_time_sum startup_txns_loaded
		startup_txns_loaded_count
		startup_txns_loaded_sum dbinittime dbinittime_count dbinittime_sum leader_uptime election_time
		election_time_count election_time_sum
		uptime learner_commit_received_count commit_count snap_count diff_count looking_count proposal_count
		last_proposal_size max_proposal_size min_proposal_size learner_handler_qp_size_sum
		quit_leading_due_to_disloyal_voter
		watch_count node_changed_watch_count_sum node_children_watch_count_sum node_deleted_watch_count_sum
		node_created_watch_count_sum
		revalidate_count stale_sessions_expired dead_watchers_cleared dead_watchers_queued
		add_dead_watcher_stall_time
		outstanding_requests last_client_response_size min_client_response_size max_client_response_size
		bytes_received_count
		connection_request_count num_alive_connections connection_rejected connection_drop_count
		connection_drop_probability
		sessionless_connections_expired open_file_descriptor_count fsynctime fsynctime_count fsynctime_sum
		snapshottime_count
		prep_processor_request_queued outstanding_changes_queued outstanding_changes_removed
		sync_processor_request_queued
		request_commit_queued max_latency min_latency avg_latency proposal_ack_creation_latency
		tls_handshake_exceeded outstanding_tls_handshake ensemble_auth_fail ensemble_auth_success ensemble_auth_skip
		jvm_threads_state jvm_memory_pool_bytes_used`)
	add("10465", "max("+plain+")", `
		quorum_size learners synced_non_voting_followers synced_observers jvm_classes_loaded
		jvm_threads_current jvm_threads_deadlocked`)
	add("10465", "rate("+plain+"[5m])", `
		znode_count ephemerals_count follower_sync_time_sum om_commit_process_time_ms_sum
		om_proposal_process_time_ms_sum
		dead_watchers_cleaner_latency_sum connection_token_deficit_sum snapshottime_sum
		prep_process_time_sum prep_processor_queue_time_ms_sum
		prep_processor_queue_size_sum close_session_prep_time_sum sync_process_time_sum
		sync_processor_queue_flush_time_ms_sum
		sync_processor_queue_size_sum sync_processor_batch_size_sum commit_process_time_sum
		read_commitproc_time_ms_sum
		write_commitproc_time_ms_sum write_commit_proc_req_queued_sum read_commit_proc_req_queued_sum
		commit_commit_proc_req_queued_sum
		requests_in_session_queue_sum read_commit_proc_issued_sum write_commit_proc_issued_sum
		concurrent_request_processing_in_commit_processor_sum
		time_waiting_empty_pool_in_commit_processor_read_ms_sum
		pending_session_queue_size_sum local_write_committed_time_ms_sum server_write_committed_time_ms_sum
		write_batch_time_in_commit_processor_sum reads_after_write_in_session_queue_sum session_queues_drained_sum
		reads_issued_from_session_queue_sum write_final_proc_time_ms_sum read_final_proc_time_ms_sum
		readlatency_sum updatelatency_sum
		proposal_latency_sum quorum_ack_latency_sum ack_latency_sum propagation_latency_sum
		commit_propagation_latency_sum
		jvm_pause_time_ms_sum jvm_gc_collection_seconds_sum jvm_gc_collection_seconds_count`)
	add("10465", "NAME_sum"+of+" / NAME_count"+of, "election_time fsynctime snapshottime")
	add("10465", "irate(NAME_sum"+of+"[1m])", "fsynctime election_time")

	add("11442", plain, `
		zk_up zk_server_leader zk_ephemerals_count zk_znode_count zk_watch_count zk_num_alive_connections
		zk_open_file_descriptor_count
		zk_max_file_descriptor_count zk_avg_latency zk_min_latency zk_max_latency zk_outstanding_requests
		zk_approximate_data_size
		zk_version`)
	add("11442", "rate("+plain+"[5m])", "zk_packets_sent zk_packets_received")

	add("Grafana's library", plain, `
		znode_count outstanding_requests num_alive_connections watch_count quorum_size min_latency
		max_latency avg_latency`)
	add("Grafana's library", "clamp_max(leader_uptime"+of+", 1) or clamp_max(NAME"+of+", 0)",
		"num_alive_connections")
	add("Grafana's library",
		`sum without (id) (NAME_used{area="heap"}) / sum without (id) (NAME_max{area="heap"})`, "jvm_memory_bytes")

	for _, a := range Alerts() {
		list = append(list, Query{a.Board, a.Panel, a.Expr})
	}
	return list
}

// Alert is a public alert rule. It fires when Expr satisfies the comparison When, such as "> 100".
type Alert struct {
	Query
	When string
}

// Alerts returns the public rules, those of ZooKeeper's manual first.
func Alerts() []Alert {
	const manual, mixin, exporter = "ZooKeeper's manual", "zookeeper-mixin", "exporterhub"
	rule := func(board, name, expr, when string) Alert { return Alert{Query{board, name, expr}, when} }
	return []Alert{
		rule(manual, "server is down", `up{job="zlockd"}`, "== 0"),
		rule(manual, "too many znodes", `znode_count`, "> 1000000"),
		rule(manual, "too many connections", `num_alive_connections`, "> 50"),
		rule(manual, "znodes too big", `approximate_data_size / 1024 / 1024`, "> 1024"),
		rule(manual, "too many watches", `watch_count`, "> 10000"),
		rule(manual, "a leader election happens", `increase(election_time_count[5m])`, "> 0"),
		rule(manual, "open too many files", `open_file_descriptor_count`, "> 300"),
		rule(manual, "fsync time is too long", `rate(fsynctime_sum[1m])`, "> 100"),
		rule(manual, "snapshot time is too long", `rate(snapshottime_sum[5m])`, "> 100"),
		rule(manual, "average latency is too high", `avg_latency`, "> 100"),
		rule(manual, "memory filling up", `jvm_memory_bytes_used{area="heap"} / jvm_memory_bytes_max{area="heap"}`,
			"> 0.8"),
		rule(mixin, "missing quorum", `max by (job) (quorum_size) - sum by (job) (up{job="zlockd"})`, "!= 0"),
		rule(mixin, "leader unavailable", `sum by (job) (changes(leader_unavailable_time_count[5m]))`, "> 0"),
		rule(exporter, "ZookeeperDown", `zk_up`, "== 0"),
		rule(exporter, "ZookeeperMissingLeader", `sum(zk_server_leader)`, "== 0"),
		rule(exporter, "ZookeeperTooManyLeaders", `sum(zk_server_leader)`, "> 1"),
		rule(exporter, "ZookeeperNotOk", `zk_ruok`, "== 0"),
		rule("Grafana's library", "JvmThreadsDeadlocked", `jvm_threads_deadlocked`, "> 0"),
	}
}
