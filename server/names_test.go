package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// events says for each metric which event changes it.
var events = map[string]string{}

func init() {
	add := func(event, names string) {
		for _, name := range strings.Fields(names) {
			events[name] = event
		}
	}
	add("a connection begins or ends",
		`num_alive_connections connection_request_count open_file_descriptor_count zlockd_connection_ends_total`)
	add("a connection is refused by a limit", "connection_rejected")
	add("the server ends a connection: too slow, too much, malformed", "connection_drop_count")
	add("a client comes back to its session", "connection_revalidate_count revalidate_count")
	add("a connection says nothing in time", "sessionless_connections_expired")
	add("a connection comes while nobody is served", "cnxn_closed_without_zk_server_running")
	add("the connect request cannot be read", "unsuccessful_handshake")
	add("a TLS handshake fails", "tls_handshake_exceeded")
	add("another protocol is spoken", "zlockd_foreign_connections_total")
	add("a connection cannot be accepted", "zlockd_accept_errors_total")
	add("a client comes back too late", "zlockd_sessions_refused_total")
	add("a session is refused by a limit", "zlockd_new_sessions_refused_total")
	add("a contender is refused by --one-layout", "zlockd_contenders_refused_total")
	add("a session begins or ends", "global_sessions")
	add("a session falls silent", "stale_sessions_expired")
	add("an authentication fails", "auth_failed_count")
	add("a frame is too large", "large_requests_rejected")
	add("a request panics", "unrecoverable_error_count")
	add("a socket is not read because the server is full", "request_throttle_wait_count")
	add("a request", `packets_received packets_sent bytes_received_count response_bytes last_client_response_size max_client_response_size
		min_client_response_size avg_latency min_latency max_latency outstanding_requests`)
	add("a read", "readlatency read_per_namespace")
	add("a write", `updatelatency write_per_namespace znode_count approximate_data_size proposal_count commit_count proposal_latency quorum_ack_latency
		propagation_latency sync_processor_batch_size sync_processor_queue_size fsynctime last_proposal_size min_proposal_size max_proposal_size zlockd_zxid
		zlockd_raft_last_index zlockd_raft_commit_index zlockd_raft_applied_index zlockd_member_applied_index zlockd_stream_pending zlockd_log_requests zlockd_log_bytes`)
	add("an ephemeral node", "ephemerals_count")
	add("a watch is set, or goes",
		"watch_count zlockd_watches zlockd_watch_memory_bytes zlockd_watch_memory_largest_bytes")
	add("a watch fires", "node_created_watch_count node_deleted_watch_count node_changed_watch_count "+
		"node_children_watch_count watch_bytes")
	add("an election", `election_time looking_count leader_unavailable_time unavailable_time leader_uptime zlockd_leader zlockd_leader_id zlockd_raft_term
		zlockd_elections_total zlockd_serving zk_up zk_server_leader zk_server_state zk_peer_state`)
	add("members change or fall behind",
		"quorum_size learners followers synced_followers synced_observers synced_non_voting_followers")
	add("a snapshot", "snapshottime zlockd_snapshot_zxid zlockd_snapshot_bytes")
	add("a snapshot is sent to a follower", "snap_count")
	add("a start with data", "dbinittime startup_snap_load_time startup_txns_loaded startup_txns_load_time")
	add("a lock is taken, waited for, given back",
		`zlockd_locks_held zlockd_lock_waiters zlockd_lock_oldest_wait_seconds zlockd_lock_longest_hold_seconds
		zlockd_lock_grants_total zlockd_lock_scan_seconds`)
	add("two programs hold a lock that do not see each other", "zlockd_locks_held_twice")
	add("a holder stays though its maximum hold is over", "zlockd_lock_holds_over_limit")
	add("sessions wait for each other", "zlockd_lock_suspected_deadlocks")
	add("a ticket is asked for", "zlockd_tickets zlockd_ticket_waits zlockd_ticket_requests_total "+
		"zlockd_ticket_requests_refused_total")
	add("a hold of hours comes to its end", "zlockd_ticket_holds_end_soon")
	add("a caller draws from a rate", "zlockd_rate_draws_total zlockd_rate_draws_refused_total "+
		"zlockd_rate_nodes")
	add("a backup, or none in time",
		"zlockd_backup_age_seconds zlockd_backups_total zlockd_backups_failed_total")
	add("a wrong password at the admin port", "zlockd_admin_logins_failed_total")
	add("a certificate comes to its end", "zlockd_certificate_expiry_seconds")
	add("something is wrong, or worth a note", "zlockd_faults zlockd_notices")
	add("large requests, slow readers", "zlockd_buffer_bytes")
	add("too many log lines", "zlockd_log_lines_dropped_total zlockd_log_lines_lost_total")
	add("a change is asked for while there is an audit log", "zlockd_audit_lines_total zlockd_audit_lines_lost_total")
	add("a request takes long", "zlockd_slow_requests_total zlockd_slow_requests_skipped_total "+
		"zlockd_request_stage_seconds")
	add("time", "uptime")
	add("a collection, goroutines, memory",
		`jvm_pause_time_ms jvm_gc_collection_seconds_count jvm_gc_collection_seconds_sum jvm_threads_current jvm_threads_daemon
		jvm_threads_state jvm_threads_started_total jvm_memory_bytes_used jvm_memory_bytes_committed jvm_memory_pool_bytes_used jvm_memory_pool_bytes_committed`)
	add("nothing: it tells a setting, or what runs",
		`max_file_descriptor_count zlockd_peer_insecure zlockd_skip_acl zlockd_build_info zlockd_watch_memory_limit_bytes
		zlockd_buffer_limit_bytes zk_version zk_ruok jvm_info jvm_memory_bytes_max jvm_memory_pool_bytes_max`)
}

// mntrName matches what mntr puts before a name.
var mntrName = regexp.MustCompile(`^zk_((avg|min|max|cnt|sum|p50|p95|p99|p999)_)?(.*)$`)

// Each metric has an event that changes it, unless the manual lists it among the metrics that stay zero.
func TestEveryMetricIsFedOrToldOf(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/reference/metrics.md"))(t)
	_, section, _ := strings.Cut(string(page), "\n## Metrics that stay zero\n")
	section, _, _ = strings.Cut(section, "\n## ")
	zero := map[string]bool{}
	for row := range strings.Lines(section) {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
				zero[m[1]] = true
			}
		}
	}

	e := newEnsemble(t, 3, slog.New(slog.DiscardHandler), func(o *Options) {
		o.AdminAddr, o.MetricsAddr = "127.0.0.1:0", "127.0.0.1:0"
		o.BackupDir, o.BackupInterval = t.TempDir(), -time.Second // a negative interval counts as none
		o.LogLost = func() int64 { return 0 }
		pair, _, _ := until(t, time.Now().Add(time.Hour))
		o.ClientTLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	})
	id, led := e.leader()
	handOff(t, led)
	must.OK(t, led.Node().Snapshot())
	must.OK(t, led.Close(context.Background()))
	delete(e.servers, id)
	_, next := e.leader()
	e.restart(id)
	handOff(t, next)
	holds(t, next)

	var families []string
	sample := regexp.MustCompile(`(?m)^([a-z0-9_]+?)(_sum|_count)?(\{[^}]*\})? (\S+)$`)
	for _, i := range e.servers {
		code, text := get(t, "http://"+i.AdminAddr()+"/metrics")
		must.Equal(t, code, http.StatusOK)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(text, -1) {
			families = append(families, m[1])
		}
		for _, m := range sample.FindAllStringSubmatch(text, -1) {
			if (zero[m[1]] || zero[m[1]+m[2]]) && m[4] != "0" {
				t.Errorf("%s%s is %s: the manual says that nothing feeds it", m[1], m[2], m[4])
			}
		}
	}
	slices.Sort(families)
	families = slices.Compact(families)
	exists := map[string]bool{}
	for _, name := range families {
		exists[name] = true
	}
	for _, name := range families {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") ||
			strings.HasPrefix(name, "promhttp_") {
			continue // metrics of the Prometheus library
		}
		if m := mntrName.FindStringSubmatch(name); m != nil &&
			(exists[m[3]] || exists[strings.TrimPrefix(name, "zk_")] || exists[strings.TrimPrefix(name, "zk_")+
				"_total"]) {
			continue // another name of the same metric
		}
		switch _, moves := events[name]; {
		case moves && zero[name]:
			t.Errorf("%s has an event that moves it, and stands among those that nothing feeds", name)
		case !moves && !zero[name]:
			t.Errorf("%s: what moves it? Else it belongs into the table in docs/reference/metrics.md", name)
		}
	}
	for name := range events {
		if !exists[name] {
			t.Errorf("%s is moved by %q, and no server has it", name, events[name])
		}
	}
	for name := range zero {
		expect.That(t, exists[name], "docs/reference/metrics.md tells of %s, and no server has it", name)
	}
}
