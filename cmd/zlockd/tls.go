package main

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// newClientTLS returns the TLS configuration of the port for clients, and its files, which it
// reads again when they change. It returns nil if the settings ask for none.
func newClientTLS(s *settings, log *slog.Logger) (*tls.Config, *tlsfiles.Files, error) {
	if s.secureClientAddr == "" {
		return nil, nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert}
	if s.more.tls13 {
		conf.MinVersion = tls.VersionTLS13
	}
	ca := s.tlsCA
	switch {
	case s.tlsCA == "" || s.more.tlsClientAuth == "none":
		conf.ClientAuth, ca = tls.NoClientCert, ""
	case s.more.tlsClientAuth == "want":
		conf.ClientAuth = tls.VerifyClientCertIfGiven
	}
	files, err := tlsfiles.Open("tls", s.tlsCert, s.tlsKey, ca, log)
	if err != nil {
		return nil, nil, err
	}
	// The port needs a certificate to open; no connection uses this one.
	conf.Certificates = []tls.Certificate{files.Get(time.Now()).Pair}
	var last *tls.Config
	var of *tlsfiles.Loaded
	var mu sync.Mutex
	conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := files.Get(time.Now())
		mu.Lock()
		defer mu.Unlock()
		if of != now { // one configuration for all connections: it has the keys of their tickets
			of, last = now, &tls.Config{MinVersion: conf.MinVersion, ClientAuth: conf.ClientAuth,
				Certificates: []tls.Certificate{now.Pair}, ClientCAs: now.CA}
		}
		return last, nil
	}
	return conf, files, nil
}
