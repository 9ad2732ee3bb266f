package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// TLS secures the peer port. Both sides show a certificate of the cluster's own authority, which must carry
// the name of the right server: "zlockd-1" for the server with id 1. A connection without such certificates
// fails.
type TLS = tlsfiles.Files

// certName is the DNS name a server's certificate must carry.
func certName(id uint32) string { return fmt.Sprintf("zlockd-%d", id) }

func tlsConfig(t *TLS) *tls.Config {
	l := t.Get(time.Now())
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{l.Pair},
		RootCAs:      l.CA,
		ClientCAs:    l.CA,
		ClientAuth:   tls.RequireAndVerifyClientCert, VerifyConnection: l.NotRevoked,
		// A withdrawn certificate must not stay valid through session tickets.
		SessionTicketsDisabled: true,
	}
}

// tlsServer shakes hands as the called side and returns the caller's name.
func tlsServer(t *TLS, c net.Conn) (net.Conn, string, error) {
	tc := tls.Server(c, tlsConfig(t))
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

// tlsClient shakes hands as the caller of server id.
func tlsClient(t *TLS, c net.Conn, id uint32) (net.Conn, error) {
	config := tlsConfig(t)
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
