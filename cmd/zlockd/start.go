package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/release"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/server/clients"
)

// running adapts a server to the daemon.
type running struct {
	*server.Instance
	audit *audit.Log // nil: none
}

// startServer starts a server with the settings.
func startServer(ctx context.Context, s *settings, log *slog.Logger) (process, error) {
	tuneGC()
	o, err := serverOptions(s, log)
	if err != nil {
		return nil, err
	}
	if s.auditLog != "" {
		if o.Audit, err = audit.Open(s.auditLog, time.Now); err != nil {
			return nil, fmt.Errorf("--audit-log: %w", err)
		}
	}
	i, err := server.Start(ctx, o)
	if err != nil {
		if o.Audit != nil {
			o.Audit.Close()
		}
		return nil, err
	}
	return running{i, o.Audit}, nil
}

// Close implements process.
func (r running) Close(ctx context.Context) error {
	err := r.Instance.Close(ctx)
	if r.audit != nil {
		r.audit.Close()
	}
	return err
}

// serverOptions translates the settings into the options of package server.
func serverOptions(s *settings, log *slog.Logger) (server.Options, error) {
	clientTLS, files, err := newClientTLS(s, log)
	if err != nil {
		return server.Options{}, err
	}
	adminTLS, adminFiles, err := newAdminTLS(s, log)
	if err != nil {
		return server.Options{}, err
	}
	mechanisms, err := newSASL(s, log)
	if err != nil {
		return server.Options{}, err
	}
	raft := raftfsm.Options{
		Peers:            s.peers,
		Observers:        s.observers,
		Words:            s.words,
		PeerInsecure:     s.peerInsecure,
		HeartbeatTimeout: s.heartbeat,
		LogStore:         s.logStore,
		SnapshotEntries:  s.snapshotEntries,
		SnapshotInterval: s.snapshotInterval,
		SnapshotRetain:   s.more.snapshotRetain,
		SnapshotBytes:    s.more.snapshotBytes,
		SweepInterval:    time.Duration(s.containerCheck),
		NoTTL:            s.noTTL,
		ReadOnly:         s.readOnly,
		EnforceQuota:     s.enforceQuota,
		MaxNodes:         s.maxNodes,
		MaxBytes:         s.maxData << 20,
		DiskReserve:      cmp.Or(s.diskReserve<<20, -1),
	}
	if !s.dev {
		raft.DataDir = s.dataDir
	}
	if len(s.peers) > 0 {
		raft.PeerListen = s.peerAddr
	}
	if s.peerTLS.Cert != "" {
		if raft.PeerTLS, err = peer.LoadTLS(s.tlsFlags()[1].Names, log); err != nil {
			return server.Options{}, err
		}
	}
	o := server.Options{
		ID:         s.id,
		ClientAddr: orNone(s.clientAddr),
		SecureAddr: s.secureClientAddr,
		AdminAddr:  orNone(s.adminAddr),
		AdminTLS:   adminTLS, AdminClear: s.more.adminBoth,
		MetricsAddr: s.metricsAddr,
		AdminHosts:  strings.FieldsFunc(s.adminHosts, func(r rune) bool { return r == ',' || r == ' ' }),
		Raft:        raft,
		Backup:      backup.Schedule{Dir: s.backupDir, Interval: s.backupInterval, Keep: s.backupKeep},
		Version:     release.Version(),
		Built:       release.Built(),
		Clients: clients.Options{
			MinSessionTimeout: time.Duration(s.minSessionTimeout),
			MaxSessionTimeout: time.Duration(s.maxSessionTimeout),
			MaxFrame:          s.maxFrame,
			MaxConnsPerAddr:   orNoLimit(s.maxClientCnxns),
			MaxConns:          s.maxCnxns,
			SuperDigest:       s.superDigest,
			SASL:              mechanisms,
			SASLSuper:         s.saslSuper,
			X509Super:         s.x509Super,
			EnsembleNames:     s.names(),
			RequireAuth:       schemes(s.requireAuth),
			SkipACL:           s.skipACL,
			LinearizableReads: s.linearizable,
			TLSConfig:         clientTLS,
		},
		Reconfig: s.reconfig, LoneVoter: s.loneVoter,
		Logger:  log,
		LogLost: s.logLost, SlowRequest: s.slowRequest,
		Config: admin.Config{
			TickTime: time.Duration(s.tickTime),
			File:     s.more.text,
		},
		Admin: admin.Options{
			Whitelist: s.whitelist,
			Authorize: server.Authorizer(s.superDigest),
			Profiling: s.pprof,
			NoJVM:     !s.jvmMetrics,
			Log:       log,
		},
	}
	for _, f := range []*tlsfiles.Files{files, adminFiles} {
		if f != nil {
			o.TLSProblems = append(o.TLSProblems, f.Problem)
		}
	}
	return o, nil
}

// orNoLimit returns the number as package clients has it, where 0 is the default.
func orNoLimit(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// Change implements process.
func (r running) Change(s *settings, log *slog.Logger) (users bool, err error) {
	mechanisms, err := newSASL(s, log)
	if err != nil {
		return false, err
	}
	if err := r.Admin.SetWhitelist(s.whitelist); err != nil {
		return false, err
	}
	if r.audit != nil {
		r.audit.Reopen()
	}
	return r.Clients.Change(clients.Options{MaxConnsPerAddr: orNoLimit(s.maxClientCnxns), MaxConns: s.maxCnxns,
		SASL: mechanisms}), nil
}

func orNone(addr string) string {
	if addr == off {
		return ""
	}
	return addr
}

// Ready implements process.
func (r running) Ready(ctx context.Context) (readyLine, error) {
	if err := r.Instance.Ready(ctx); err != nil {
		return readyLine{}, err
	}
	return readyLine{
		client: orOff(r.ClientAddr()),
		secure: r.SecureAddr(),
		peer:   orOff(r.Node().PeerAddr()),
		admin:  orOff(r.AdminAddr()),
		mode:   string(r.Status(0).Mode),
	}, nil
}

// Line implements process.
func (r running) Line() string {
	s := r.Status(0)
	line := fmt.Sprintf("mode %s, %d connections", s.Mode, s.Conns)
	switch {
	case !s.Serving:
		line = "does not serve clients: " + s.Reason
	case s.Leader != 0 && s.Mode != admin.Standalone:
		line += fmt.Sprintf(", server %d leads", s.Leader)
	}
	return line
}

func orOff(addr string) string {
	if addr == "" {
		return off
	}
	return addr
}
