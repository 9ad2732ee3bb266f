package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// TLS secures the peer port. Both sides show a certificate of the cluster's own authority, which
// must carry the name of the right server: "zlockd-1" for the server with id 1. There is no
// fallback.
type TLS struct {
	files *tlsfiles.Files
}

// certName is the DNS name a server's certificate must carry.
func certName(id uint32) string { return fmt.Sprintf("zlockd-%d", id) }

// LoadTLS reads a server's certificate and key and the authority's certificate.
// They are read again when they change; new connections use them then.
func LoadTLS(names tlsfiles.Names, log *slog.Logger) (*TLS, error) {
	files, err := tlsfiles.Open(names, log)
	if err != nil {
		return nil, err
	}
	return &TLS{files}, nil
}

// Leaf is this server's own certificate as it is now.
func (t *TLS) Leaf() *x509.Certificate { return t.files.Get(time.Now()).Pair.Leaf }

// Problem says why the files as they are now cannot be used; empty: they can.
func (t *TLS) Problem() string { return t.files.Problem() }

func (t *TLS) config() *tls.Config {
	l := t.files.Get(time.Now())
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{l.Pair},
		RootCAs:      l.CA,
		ClientCAs:    l.CA,
		ClientAuth:   tls.RequireAndVerifyClientCert, VerifyConnection: l.NotRevoked,
		// A certificate that was withdrawn must not live on in tickets.
		SessionTicketsDisabled: true,
	}
}

// server shakes hands as the called side and returns the caller's name.
func (t *TLS) server(c net.Conn) (net.Conn, string, error) {
	tc := tls.Server(c, t.config())
	ctx, cancel := context.WithTimeout(context.Background(), greetTime)
	defer cancel()
	if err := tc.HandshakeContext(ctx); err != nil {
		return c, "", err
	}
	names := tc.ConnectionState().PeerCertificates[0].DNSNames
	if len(names) != 1 {
		return tc, "", errors.New("a server's certificate must carry exactly one DNS name")
	}
	return tc, names[0], nil
}

// client shakes hands as the caller of server id.
func (t *TLS) client(c net.Conn, id uint32) (net.Conn, error) {
	config := t.config()
	config.ServerName = certName(id)
	tc := tls.Client(c, config)
	ctx, cancel := context.WithTimeout(context.Background(), greetTime)
	defer cancel()
	if err := tc.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS with server %d: %w", id, err)
	}
	return tc, nil
}
