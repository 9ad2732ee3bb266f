package main

import (
	"context"
	"strconv"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/zk"
)

// sessionKey holds what the guard needs to close zlock's session.
type sessionKey struct {
	Servers string
	Session zk.Session
	Files   tlsFiles
}

func newSessionKey(servers string, conn *connectFlags, cl *client.Client) *sessionKey {
	return &sessionKey{servers, cl.SessionKey(), conn.tlsFiles}
}

func (k *sessionKey) words() []string {
	f := k.Files
	return []string{k.Servers, word(k.Session.ID), string(k.Session.Password), word(k.Session.Timeout),
		strconv.FormatBool(f.TLS), f.Cert, f.Key, f.CA, f.ServerName}
}

func sessionKeyOf(w []string) *sessionKey {
	session := zk.Session{ID: number[int64](w[1]), Password: []byte(w[2]), Timeout: number[time.Duration](w[3])}
	return &sessionKey{w[0], session,
		tlsFiles{TLS: w[4] == "true", Cert: w[5], Key: w[6], CA: w[7], ServerName: w[8]}}
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
