package main

import (
	"context"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/zk"
)

// sessionKey holds what the guard needs to close zlock's session.
type sessionKey struct {
	Servers  string
	Session  zk.Session
	TLS      bool
	Cert     string
	Key      string
	CA       string
	TLSNamed string
}

func newSessionKey(servers string, conn *connectFlags, cl *client.Client) *sessionKey {
	return &sessionKey{servers, cl.SessionKey(), conn.tls, conn.cert, conn.key, conn.ca, conn.serverName}
}

// close ends the session, so that its locks move at once and not only after the session
// timeout. It does nothing without a key. A session that close cannot reach in time ends by
// its timeout.
func (k *sessionKey) close() error {
	if k == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(k.Session.Timeout, time.Second))
	defer cancel()
	cfg, err := (&connectFlags{tls: k.TLS, cert: k.Cert, key: k.Key, ca: k.CA,
		serverName: k.TLSNamed}).tlsConfig()
	if err != nil {
		return err
	}
	conn, err := zk.Dial(ctx, k.Servers, zk.Options{Resume: k.Session, TLS: cfg})
	if err != nil {
		return nil // the session has ended, or will
	}
	return conn.Close(ctx)
}
