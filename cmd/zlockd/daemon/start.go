package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/release"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/report"
)

// running makes a server a process, as the daemon knows it.
type running struct {
	*server.Instance
	audit *audit.Log // nil: there is no audit log
}

// startServer starts a server with the settings.
func startServer(ctx context.Context, s *settings.Settings, log *slog.Logger) (process, error) {
	tuneGC()
	o, err := serverOptions(s, log)
	if err != nil {
		return nil, err
	}
	if s.AuditLog != "" {
		if o.Audit, err = audit.Open(auditOptions(s)); err != nil {
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

// auditOptions returns the options of the audit log. On the disk of the data directory the audit log must not
// use up the space that the server reserves for itself, because the server would then refuse writes. So it
// stops when the free space is a quarter above that reserve.
func auditOptions(s *settings.Settings) audit.Options {
	o := audit.Options{Name: s.AuditLog, Size: s.AuditMiB << 20, Keep: s.AuditKeep}
	reserve := s.ReserveMiB << 20
	if s.Dev || reserve == 0 || s.AuditLog == "stderr" || s.AuditLog == "syslog" ||
		!disk.Same(s.DataDir, filepath.Dir(s.AuditLog)) {
		return o
	}
	o.Room = func() error {
		free, err := disk.FreeBytes(s.DataDir)
		if least := reserve + reserve/4; err == nil && free < least {
			return fmt.Errorf("the disk of %s has %d MiB free, but the audit log must leave %d MiB free "+
				"(--disk-reserve)", s.DataDir,
				free>>20, least>>20)
		}
		return nil
	}
	return o
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
func serverOptions(s *settings.Settings, log *slog.Logger) (server.Options, error) {
	clientTLS, files, err := newClientTLS(s, log)
	if err != nil {
		return server.Options{}, err
	}
	all := s.TLSFlags()
	adminTLS, adminFiles, err := newHTTPTLS(all[2], s.AdminAddr, tls.RequireAndVerifyClientCert, log)
	if err != nil {
		return server.Options{}, err
	}
	metricsTLS, metricsFiles, err := newHTTPTLS(all[3], s.MetricsAddr, tls.RequireAndVerifyClientCert, log)
	if err != nil {
		return server.Options{}, err
	}
	o := s.Options
	o.TicketAddr, o.TicketAnyPort = ticketAddr(s)
	// Callers may show a certificate, but need not: a token identifies them, too.
	ticketTLS, ticketFiles, err := newHTTPTLS(all[4], o.TicketAddr, tls.VerifyClientCertIfGiven, log)
	if err != nil {
		return server.Options{}, err
	}
	tokens, err := ticketTokens(s)
	if err != nil {
		return server.Options{}, err
	}
	mechanisms, err := newSASL(s, log)
	if err != nil {
		return server.Options{}, err
	}
	o.TicketTLS, o.TicketTokens = ticketTLS, tokens
	o.ClientAddr, o.AdminAddr = settings.OrNone(o.ClientAddr), settings.OrNone(o.AdminAddr)
	o.ClientTLS, o.AdminTLS, o.MetricsTLS = clientTLS, adminTLS, metricsTLS
	o.PeerTLS, o.SASL = all[1].Names, mechanisms
	if s.Dev {
		o.DataDir = ""
	}
	if len(o.Peers) == 0 {
		o.PeerListen = ""
	}
	o.MaxConnsPerAddr = orNoLimit(o.MaxConnsPerAddr)
	o.MaxBytes, o.DiskReserve = s.DataMiB<<20, cmp.Or(s.ReserveMiB<<20, -1)
	o.EnsembleNames, o.RequireAuth = ensembleNames(s), settings.Words(s.AuthSchemes)
	o.AdminHosts = settings.Words(s.AdminNames)
	o.NoJVM = !s.JVMMetrics
	o.Version, o.Built, o.Logger = release.Version(), release.Built(), log
	o.TLSAuthorities = map[string]func() time.Time{}
	for use, f := range map[string]*tlsfiles.Files{"clients": files, "admin": adminFiles,
		"metrics": metricsFiles, "tickets": ticketFiles} {
		if f == nil {
			continue
		}
		o.TLSProblems = append(o.TLSProblems, f.Problem)
		if !f.Get(time.Now()).CAUntil.IsZero() {
			o.TLSAuthorities[use] = func() time.Time { return f.Get(time.Now()).CAUntil }
		}
	}
	return o, nil
}

// orNoLimit converts a limit for package clients. In the settings 0 means no limit. In package clients it
// means the default limit, and -1 means no limit.
func orNoLimit(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// Change implements process.
func (r running) Change(s *settings.Settings, log *slog.Logger) (users bool, err error) {
	mechanisms, err := newSASL(s, log)
	if err != nil {
		return false, err
	}
	tokens, err := ticketTokens(s)
	if err != nil {
		return false, err
	}
	if err := r.Admin.SetWhitelist(s.FourLetterWords); err != nil {
		return false, err
	}
	r.SetTicketTokens(tokens)
	if r.audit != nil {
		r.audit.Reopen()
	}
	return r.Clients.Change(options.Options{MaxConnsPerAddr: orNoLimit(s.MaxConnsPerAddr), MaxConns: s.MaxConns,
		SASL: mechanisms}), nil
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
	case s.Leader != 0 && s.Mode != report.Standalone:
		line += fmt.Sprintf(", server %d leads", s.Leader)
	}
	return line
}

func orOff(addr string) string {
	if addr == "" {
		return settings.Off
	}
	return addr
}
