package server

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/machine"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/report"
)

var _ admin.Source = (*Instance)(nil)

// compatible is the version of ZooKeeper that the server claims to be, because clients and dashboards compare
// it with version numbers.
const compatible = "3.9.3"

// Status implements admin.Source. It takes each lock only for a short time, so that writes need not wait
// long.
func (i *Instance) Status(need report.Need) *report.Status {
	s := &report.Status{
		Now:     i.o.Now(),
		Built:   i.o.Built,
		Version: compatible + "-zlockd-" + cmp.Or(i.o.Version, "dev"),
		Node:    status.Node{ID: i.o.ID},
		Config:  i.shownConfig(),
	}
	i.Clients.Fill(s, need)
	if need&report.NeedProcess != 0 {
		s.OpenFiles, s.MaxFiles = machine.OpenFiles()
		s.Environment = machine.Environment()
	}
	if need&report.NeedConns != 0 {
		i.listConns(s)
	}
	if need&report.NeedWatches != 0 {
		i.listWatches(s, need)
	}
	i.diskStatus(s)
	if i.o.SkipACL {
		s.Notices = append(s.Notices, "access rights are not checked (--skip-acl)")
	}

	i.certificateStatus(s, need&report.NeedMetrics != 0)
	i.auditStatus(s, need&report.NeedMetrics != 0)

	node := i.node.Load()
	if node == nil {
		s.Serving = false
		s.Reason = "waiting for the other servers of the cluster"
		if p := i.waits.Load(); p != nil {
			s.Reason = *p
		}
		if s.ReadOnly {
			s.Mode = report.ReadOnly
		}
	} else {
		i.clusterStatus(s, node, need)
	}
	if need&report.NeedMetrics != 0 {
		s.Summaries["jvm_pause_time_ms"] = metrics.GCPauses()
		i.ownMetrics(s)
		if i.view != nil && node != nil {
			i.view.Measure(s)
		}
	}
	if need&(report.NeedProcess|report.NeedMetrics) != 0 && i.view != nil && node != nil {
		s.Notices = append(s.Notices, i.view.Notices()...)
	}
	i.backupStatus(s, need&report.NeedMetrics != 0)
	i.ticketStatus(s, node, need&report.NeedMetrics != 0)
	return s
}

// ResetStats implements admin.Source.
func (i *Instance) ResetStats() { i.Clients.Metrics().Reset() }

// ResetConns implements admin.Source.
func (i *Instance) ResetConns() { i.Clients.ResetConns() }

// shownConfig returns the configuration for the command `conf`: what is in force, with defaults.
func (i *Instance) shownConfig() report.Config {
	return report.Config{
		ClientPort:        portOf(i.client, 0),
		SecurePort:        portOf(i.secure, -1),
		DataDir:           i.o.DataDir,
		LogDir:            i.o.DataDir,
		TickTime:          cmp.Or(i.o.TickTime, i.c.MinSessionTimeout/2),
		MaxClientCnxns:    max(i.Clients.MaxConnsPerAddr(), 0),
		MinSessionTimeout: i.c.MinSessionTimeout,
		MaxSessionTimeout: i.c.MaxSessionTimeout,
		ListenBacklog:     -1,
		File:              i.o.ConfigText,
	}
}

func portOf(ln net.Listener, none int) int {
	if ln == nil {
		return none
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return none
}

// clusterStatus adds what this server knows of the cluster, and figures of the replicated state.
func (i *Instance) clusterStatus(s *report.Status, node *raftfsm.Node, need report.Need) {
	serving := s.Serving // whether the server admits clients
	s.Node = node.Status()
	if s.Serving = s.Serving && serving; !s.Serving {
		s.Reason = cmp.Or(s.Reason, "starting")
	}
	if s.Full != "" {
		s.Notices = append(s.Notices, "requests that need more room are refused: "+s.Full)
	}
	if s.LayoutWaits != "" {
		s.Notices = append(s.Notices, "--one-layout has no effect yet: "+s.LayoutWaits)
	}
	if need&report.NeedDirs != 0 {
		s.DataDirSize, s.LogDirSize = node.DiskBytes()
	}
	s.Mode = i.mode(&s.Node)
	if s.ReadOnly {
		s.Mode = report.ReadOnly
	}
	if s.Mode == report.Standalone {
		s.Members = nil
	}
	for _, m := range s.Members {
		if m.ID == s.Leader {
			s.LeaderAddr = m.Peer
		}
		if m.ID == s.ID {
			_, p, _ := net.SplitHostPort(m.Peer)
			s.Config.PeerPort, _ = strconv.Atoi(p)
		} else if m.Applied > 0 && m.Applied+status.EnoughToVote >= s.Last {
			if m.Voter {
				s.Synced++
			} else {
				s.SyncedNon++
			}
		}
	}
	if !s.Serving && s.Removed {
		s.Reason = fmt.Sprintf("this server was removed from the cluster: stop it, "+
			"or add it again by zlock member add %d", s.ID)
	}
	s.Notices = append(s.Notices, resourceNotices(s)...)
	if n := lossNotice(s); n != "" {
		s.Notices = append(s.Notices, n)
	}
	if s.PeerInsecure {
		s.Notices = append(s.Notices, "servers talk to each other in the clear (--peer-insecure)")
	}

	var members string
	topNames := i.o.SkipACL
	node.View(func(st *state.State) {
		t := st.Tree()
		topNames = topNames || t.Shows("/any")
		s.Nodes, s.DataSize, s.EphemeralCount = t.Count(), t.Bytes(), t.EphemeralCount()
		s.Sessions = st.Sessions().Len()
		for _, d := range st.Digests() {
			s.Digests = append(s.Digests, report.Digest{Zxid: d.Zxid, Digest: d.Sum, Version: 2})
		}
		members = st.ConfigData()
	})
	s.ConfigText, s.ConfigIndex = config.Cut(members)
	if need&report.NeedSessions != 0 {
		listSessions(s, node)
	}
	if need&report.NeedEphemerals != 0 {
		i.listEphemerals(s, node, need)
	}
	if need&report.NeedMetrics != 0 {
		if !topNames {
			s.HideNamespaces()
		}
		clusterMetrics(s)
	}
}

// mode() returns the name that srvr has for this server's part in the cluster, or "" if it has none yet.
func (i *Instance) mode(n *status.Node) report.Mode {
	if n.Role == string(report.Follower) {
		for _, m := range n.Members {
			if m.ID == n.ID && !m.Voter {
				return report.Observer
			}
		}
	}
	return report.Mode(n.Role)
}

// clusterMetrics adds the metrics of the replicated log.
func clusterMetrics(s *report.Status) {
	const ms = float64(time.Millisecond)
	s.Summaries["fsynctime"] = metrics.Summary{Count: s.Syncs, Sum: float64(s.SyncTime) / ms,
		Max: float64(s.SyncMax) / ms}
	s.Counters["commit_count"] = int64(s.Applied)
	s.Measure("peer_insecure", "1 if servers talk to each other in the clear.", report.Flag(s.PeerInsecure))
	s.Measure("stream_pending", "Requests of this server not yet applied.", float64(s.Pending))
	s.Measure("log_requests", "Requests in the log since the last snapshot.", float64(s.LogBehind))
	s.Measure("log_bytes", "Bytes of the log on disk.", float64(s.LogDirSize))
	s.Measure("snapshot_bytes", "Bytes of snapshots on disk.", float64(s.DataDirSize))
	s.Measure("elections_total", "Elections this server won.", float64(s.Elections))
	for _, m := range s.Members {
		if m.Applied > 0 {
			s.Measure("member_applied_index", "Newest log entry a member has applied, as the leader knows.",
				float64(m.Applied), report.Pair{Key: "id", Value: strconv.Itoa(int(m.ID))})
		}
	}
}

// ownMetrics adds metrics of this process that have no name in ZooKeeper.
func (i *Instance) ownMetrics(s *report.Status) {
	s.Measure("skip_acl", "1 if access rights are not checked.", report.Flag(i.o.SkipACL))
	if i.o.LogLost != nil {
		s.Measure("log_lines_lost_total", "Log lines lost because the reader of stderr was too slow or gone.",
			float64(i.o.LogLost()))
	}
	i.slow.Status(s)
}

// auditStatus adds the faults and notices of the audit log and, if `metrics` is true, its counts. /health
// needs the faults, but no metrics.
func (i *Instance) auditStatus(s *report.Status, metrics bool) {
	var f audit.Figures
	if i.o.Audit != nil {
		f = i.o.Audit.Figures()
		switch {
		case f.Problem != nil:
			s.Faults = append(s.Faults, fmt.Sprintf("the audit log cannot be written, and %d lines are lost: %v",
				f.Lost,
				f.Problem))
		case f.Lost > 0:
			s.Notices = append(s.Notices, fmt.Sprintf("%d lines of the audit log are lost, the last at %s: too many "+
				"came at once, or from one address; a line linesLost in the log names the address", f.Lost,
				f.LostAt.UTC().Format(time.RFC3339)))
		}
		if f.Outgrows != nil {
			s.Notices = append(s.Notices, fmt.Sprintf("the audit log grows beyond its size, because its file cannot "+
				"be renamed: %v", f.Outgrows))
		}
	}
	if !metrics {
		return
	}
	s.Measure("audit_lines_total", "Lines written to the audit log.", float64(f.Written))
	s.Measure("audit_lines_lost_total", "Lines of the audit log lost because it could not be written, too many "+
		"came at once, or an address wrote more than its share.", float64(f.Lost))
}
