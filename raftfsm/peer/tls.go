package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// TLS secures the peer port. Both sides show a certificate of the
// cluster's own authority, and the name in it must be that of the server that
// is meant: "zlockd-1" for the server with id 1. There is no fallback.
type TLS struct {
	config *tls.Config
}

// certName is the DNS name a server's certificate must carry.
func certName(id uint32) string { return fmt.Sprintf("zlockd-%d", id) }

// LoadTLS reads a server's certificate and key and the authority's
// certificate, all PEM.
func LoadTLS(cert, key, ca string) (*TLS, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("peer certificate: %w", err)
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("peer authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("peer authority: %s holds no certificate", ca)
	}
	return &TLS{&tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}}, nil
}

// Expires is when the server's own certificate ends. It is read at the start only.
func (t *TLS) Expires() time.Time {
	leaf := t.config.Certificates[0].Leaf
	if leaf == nil {
		return time.Time{}
	}
	return leaf.NotAfter
}

// server shakes hands as the one called and returns the caller's name.
func (t *TLS) server(c net.Conn) (net.Conn, string, error) {
	tc := tls.Server(c, t.config)
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
	config := t.config.Clone()
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
