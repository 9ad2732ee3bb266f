package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// certificateSoon is how long before its end a certificate is worth a word.
const certificateSoon = 30 * 24 * time.Hour

// days tells a time in days.
func days(d time.Duration) string {
	if d <= 0 {
		return "no time: it is over"
	}
	if d < 48*time.Hour {
		return fmt.Sprintf("%d hours", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// open opens a connection as the client would, with TLS if the flags say so.
func (f *connectFlags) open(ctx context.Context, server string, limit time.Duration) (net.Conn, error) {
	cfg, err := f.tlsConfig()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server)
	if err != nil || cfg == nil {
		return conn, err
	}
	secure := tlsClient(conn, cfg, server).(*tls.Conn)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &handshakeError{err}
	}
	return secure, nil
}

// handshakeError is why a server that takes connections does not speak TLS with us.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// reach tries whether a server can be reached at all, and tells when its
// certificate ends.
func (f *connectFlags) reach(ctx context.Context, server string) (*time.Time, error) {
	conn, err := f.open(ctx, server, f.connectTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if secure, ok := conn.(*tls.Conn); ok {
		if chain := secure.ConnectionState().PeerCertificates; len(chain) > 0 {
			return &chain[0].NotAfter, nil
		}
	}
	return nil, nil
}

// hangs is what it can mean that a port takes connections and says nothing.
const hangs = "its process is stopped or hangs, or another program listens there"

// plainCause is why a server cannot be reached, without what is known anyway.
func plainCause(err error, limit time.Duration) string {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var sys syscall.Errno
	var record tls.RecordHeaderError
	var shake *handshakeError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &dns):
		return "its name cannot be looked up: " + dns.Err
	case errors.As(err, &record), errors.As(err, &shake) && (errors.Is(err, io.EOF) || errors.As(err, &sys)):
		return "it takes connections but does not speak TLS: leave --tls out, or name its port for TLS"
	case errors.As(err, &shake) && errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("it takes connections but does not answer within %v: %s", limit, hangs)
	case errors.As(err, &unknown):
		return err.Error() + " (--tls-ca names the authority)"
	case errors.As(err, &sys):
		return sys.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %v", limit)
	}
	var net net.Error
	if errors.As(err, &net) && net.Timeout() {
		return fmt.Sprintf("no answer within %v", limit)
	}
	return err.Error()
}

// word asks a server by a four-letter word; "" if it does not answer.
func (f *connectFlags) word(ctx context.Context, server, word string) string {
	const patience = 5 * time.Second
	conn, err := f.open(ctx, server, min(f.connectTimeout, patience))
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte(word)); err != nil {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(conn, 256<<10))
	return string(b)
}

func withPort(server string) string {
	if _, _, err := net.SplitHostPort(server); err != nil {
		return net.JoinHostPort(server, "2181")
	}
	return server
}

// readSrvr finds kind, version and mode in the answer to srvr.
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

// readMntr finds what a sync takes and how many files are open.
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
		}
	}
}

// ownCertificate tells of the client's own certificate, if it ends soon.
func ownCertificate(conn *connectFlags) []string {
	cfg, err := conn.tlsConfig()
	if err != nil || cfg == nil || len(cfg.Certificates) == 0 {
		return nil
	}
	leaf, err := x509.ParseCertificate(cfg.Certificates[0].Certificate[0])
	if err != nil {
		return []string{fmt.Sprintf("--tls-cert: %v", err)}
	}
	if left := time.Until(leaf.NotAfter); left < certificateSoon {
		return []string{fmt.Sprintf("the certificate of --tls-cert ends in %s", days(left))}
	}
	return nil
}

// compare holds the servers against each other and against the members that
// they know: what is wrong, and what is only worth knowing.
func compare(ctx context.Context, found []finding, list []string) (wrong, worth []string) {
	versions := map[string][]string{}
	config := ""
	for _, f := range found {
		if f.unreachable {
			continue
		}
		if f.Version != "" {
			versions[f.Version] = append(versions[f.Version], f.Server)
		}
		config = cmp.Or(config, f.config)
	}
	if len(versions) > 1 {
		var parts []string
		for v, servers := range versions {
			parts = append(parts, v+" ("+strings.Join(servers, ", ")+")")
		}
		slices.Sort(parts)
		worth = append(worth, "the servers do not run the same version: "+strings.Join(parts, ", "))
	}
	members := clientAddrs(config)
	if len(members) == 0 {
		return wrong, worth
	}
	// Members are listed with their ports for clients in the clear.
	secure := slices.ContainsFunc(found, func(f finding) bool { return f.Certificate != nil })
	same := sameServer(ctx, secure)
	for _, server := range list {
		if !slices.ContainsFunc(members, func(m string) bool { return same(server, m) }) {
			what := "is not a member's port for clients"
			if strings.Contains(config, "="+server+":") {
				what = "is a port at which members talk to each other"
			}
			wrong = append(wrong, fmt.Sprintf("%s %s: clients are served at %s", server, what,
				strings.Join(members, ", ")))
		}
	}
	for _, m := range members {
		if !slices.ContainsFunc(list, func(server string) bool { return same(server, m) }) {
			worth = append(worth, fmt.Sprintf("%s is a member, but --servers does not name it", m))
		}
	}
	return wrong, worth
}

// clientAddrs finds where the members serve clients in the data of
// /zookeeper/config. It is empty unless all of them say so.
func clientAddrs(config string) (list []string) {
	for line := range strings.Lines(config) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if !strings.HasPrefix(name, "server.") {
			continue
		}
		peer, addr, ok := strings.Cut(value, ";")
		if !ok {
			return nil
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = "", addr // a port alone
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			// It listens everywhere: it is where its peers find it.
			if i := strings.LastIndexByte(peer, ':'); strings.HasSuffix(peer, ":participant") ||
				strings.HasSuffix(peer, ":observer") {
				peer = peer[:i]
			}
			peer = peer[:max(strings.LastIndexByte(peer, ':'), 0)] // the election port
			if host, _, err = net.SplitHostPort(peer); err != nil {
				return nil
			}
		}
		list = append(list, net.JoinHostPort(host, port))
	}
	return list
}

// sameServer compares addresses by what their hosts are found at, as a list may
// have names where members have numbers, and by their ports if they are ports of
// one kind.
func sameServer(ctx context.Context, anyPort bool) func(a, b string) bool {
	known := map[string][]string{}
	look := func(host string) []string {
		ips, ok := known[host]
		if !ok {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			ips, _ = net.DefaultResolver.LookupHost(ctx, host)
			ips = append(ips, host)
			known[host] = ips
		}
		return ips
	}
	return func(a, b string) bool {
		aHost, aPort, _ := net.SplitHostPort(a)
		bHost, bPort, _ := net.SplitHostPort(b)
		return (anyPort || aPort == bPort) && slices.ContainsFunc(look(aHost), func(ip string) bool {
			return slices.Contains(look(bHost), ip)
		})
	}
}
