package look

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// certificateSoon is how long before its expiry doctor mentions a certificate.
const certificateSoon = 30 * 24 * time.Hour

// endsIn says when a certificate ends. `left` is the time until then.
func endsIn(left time.Duration) string {
	if left <= 0 {
		return "has expired"
	}
	if left < 48*time.Hour {
		return fmt.Sprintf("ends in %d hours", int(left.Hours()))
	}
	return fmt.Sprintf("ends in %d days", int(left.Hours()/24))
}

// word() sends a four-letter word to a server, and returns the answer. `ends` is when the server's
// certificate ends, or nil without TLS. If the server accepts the connection and does not answer, the answer
// is empty, and there is no error.
func word(ctx context.Context, f *connect.Flags, server, word string) (
	answer string, ends *time.Time, err error) {
	cfg, err := f.TLSConfig()
	if err != nil {
		return "", nil, err
	}
	limited, cancel := context.WithTimeout(ctx, f.ConnectTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(limited, "tcp", server)
	if err != nil {
		return "", nil, err
	}
	defer func() { conn.Close() }()
	if cfg != nil {
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(server)
		}
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(limited); err != nil {
			return "", nil, &handshakeError{err}
		}
		conn, ends = secure, &secure.ConnectionState().PeerCertificates[0].NotAfter
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, word); err != nil {
		return "", ends, nil
	}
	b, _ := io.ReadAll(io.LimitReader(conn, 256<<10))
	return string(b), ends, nil
}

// handshakeError is a failed TLS handshake with a server that accepts connections.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// `hangs` explains a port that accepts connections and stays silent.
const hangs = "its process is stopped or hangs, or another program listens there"

// plainCause returns why a server cannot be reached, without the address, which the user knows.
func plainCause(err error, limit time.Duration) string {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var sys syscall.Errno
	var record tls.RecordHeaderError
	var shake *handshakeError
	var late net.Error
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &dns):
		return "its name cannot be looked up: " + dns.Err
	case errors.As(err, &record), errors.As(err, &shake) && (errors.Is(err, io.EOF) || errors.As(err, &sys)):
		return "it accepts connections but does not speak TLS: leave out --tls, or name its port for TLS"
	case errors.As(err, &shake) && errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("it accepts connections but does not answer within %v: %s", limit, hangs)
	case errors.As(err, &unknown):
		return err.Error() + " (name the authority with --tls-ca)"
	case errors.As(err, &sys):
		return sys.Error()
	case errors.As(err, &late) && late.Timeout():
		return fmt.Sprintf("no answer within %v", limit)
	}
	return err.Error()
}

// readSrvr reads kind, version and mode from the answer to `srvr`.
func (f *finding) readSrvr(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "Zookeeper version: "); ok {
			f.Version, _, _ = strings.Cut(v, ",")
			f.Kind = "zookeeper"
			if _, ours, ok := strings.Cut(f.Version, "-zlockd-"); ok {
				f.Kind, f.Version = "zlockd", ours
			}
		}
		if m, ok := strings.CutPrefix(line, "Mode: "); ok {
			f.Mode = m
		}
	}
}

// readMntr reads the time of a sync, the number of open files and the time since the start from the answer
// to `mntr`.
func (f *finding) readMntr(text string) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "zk_avg_fsynctime":
			f.Sync = &n
		case "zk_open_file_descriptor_count":
			f.OpenFiles = int64(n)
		case "zk_max_file_descriptor_count":
			f.MaxFiles = int64(n)
		case "zk_uptime":
			f.uptime = time.Duration(n) * time.Millisecond
		}
	}
}
