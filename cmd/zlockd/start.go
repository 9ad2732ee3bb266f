package main

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/admin"
)

// running is a server as the daemon sees it.
type running struct{ *server.Instance }

// startServer starts what the settings ask for.
func startServer(ctx context.Context, s *settings, log *slog.Logger) (process, error) {
	o, err := serverOptions(s, log)
	if err != nil {
		return nil, err
	}
	i, err := server.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return running{i}, nil
}

// serverOptions says the settings in the words of package server.
func serverOptions(s *settings, log *slog.Logger) (server.Options, error) {
	clientTLS, err := newClientTLS(s, log)
	if err != nil {
		return server.Options{}, err
	}
	raft := raftfsm.Options{
		Peers:            s.peers,
		PeerInsecure:     s.peerInsecure,
		HeartbeatTimeout: s.heartbeat,
		LogStore:         s.logStore,
		SnapshotEntries:  s.snapshotEntries,
		SnapshotInterval: s.snapshotInterval,
		SnapshotRetain:   s.more.snapshotRetain,
		SnapshotBytes:    s.more.snapshotBytes,
		SweepInterval:    s.more.sweepInterval,
		NoTTL:            s.more.noTTL,
		NoQuota:          s.more.noQuota,
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
	if s.peerTLSCert != "" {
		if raft.PeerTLS, err = raftfsm.LoadPeerTLS(s.peerTLSCert, s.peerTLSKey, s.peerTLSCA); err != nil {
			return server.Options{}, err
		}
	}
	o := server.Options{
		ID:                s.id,
		ClientAddr:        orNone(s.clientAddr),
		SecureAddr:        s.secureClientAddr,
		AdminAddr:         orNone(s.adminAddr),
		Raft:              raft,
		Version:           version(),
		Built:             buildTime(),
		MinSessionTimeout: time.Duration(s.minSessionTimeout),
		MaxSessionTimeout: time.Duration(s.maxSessionTimeout),
		MaxFrame:          s.maxFrame,
		MaxConnsPerAddr:   s.maxClientCnxns,
		MaxConns:          s.more.maxConns,
		SuperDigest:       s.superDigest,
		SkipACL:           s.skipACL,
		Reconfig:          s.reconfig,
		LinearizableReads: s.linearizable,
		TLSConfig:         clientTLS,
		Logger:            log,
		Config: admin.Config{
			TickTime: time.Duration(s.tickTime),
			File:     s.more.text,
		},
		Admin: admin.Options{
			Whitelist: s.whitelist,
			Authorize: server.Authorizer(s.superDigest),
			Profiling: s.pprof,
			Log:       log,
		},
	}
	if s.maxClientCnxns == 0 {
		o.MaxConnsPerAddr = -1
	}
	return o, nil
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

func orOff(addr string) string {
	if addr == "" {
		return off
	}
	return addr
}
