package main

import (
	"context"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// sessionKey holds what the guard needs to close zlock's session.
type sessionKey struct {
	Servers string
	Session zk.Session
	Files   tlsFiles
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
	cfg, err := k.Files.tlsConfig()
	if err != nil {
		return err
	}
	conn, err := zk.Dial(ctx, k.Servers, zk.Options{Resume: k.Session, TLS: cfg})
	if err != nil {
		return nil // the session has ended, or will
	}
	return conn.Close(ctx)
}
