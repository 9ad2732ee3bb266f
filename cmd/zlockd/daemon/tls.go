package daemon

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// newClientTLS returns the TLS configuration of the port for clients, and its files. Both are nil if there is
// no such port.
func newClientTLS(s *settings.Settings, log *slog.Logger) (*tls.Config, *tlsfiles.Files, error) {
	if s.SecureAddr == "" {
		return nil, nil, nil
	}
	f, auth, least := *s.TLSFlags()[0], tls.RequireAndVerifyClientCert, uint16(tls.VersionTLS12)
	if s.TLS13 {
		least = tls.VersionTLS13
	}
	switch {
	case s.TLSClientAuth == "none":
		f.CA = ""
	case s.TLSClientAuth == "want":
		auth = tls.VerifyClientCertIfGiven
	}
	return serverTLS(f, auth, least, log)
}

// newHTTPTLS is like newClientTLS(), for a port that speaks HTTP. `f` has the port's flags, `addr` its
// address.
func newHTTPTLS(f *settings.TLSFlags, addr string, auth tls.ClientAuthType, log *slog.Logger) (*tls.Config,
	*tlsfiles.Files, error) {
	if f.Cert == "" || settings.OrNone(addr) == "" {
		return nil, nil, nil
	}
	return serverTLS(*f, auth, tls.VersionTLS12, log)
}

// serverTLS returns a TLS configuration for a port. Each connection uses the certificates that are in the
// files at its time. Without a file of authorities it asks clients for no certificate.
func serverTLS(f settings.TLSFlags, auth tls.ClientAuthType, least uint16, log *slog.Logger) (
	*tls.Config, *tlsfiles.Files, error) {
	files, err := tlsfiles.Open(f.Names, log)
	if err != nil {
		return nil, nil, err
	}
	if f.CA == "" {
		auth = tls.NoClientCert
	}
	// A TLS port cannot be opened without a certificate in its configuration. But this one is never shown: each
	// connection gets its configuration from GetConfigForClient.
	conf := &tls.Config{MinVersion: least, Certificates: []tls.Certificate{files.Get(time.Now()).Pair}}
	var last *tls.Config
	var of *tlsfiles.Loaded
	var mu sync.Mutex
	conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := files.Get(time.Now())
		mu.Lock()
		defer mu.Unlock()
		if of != now { // a new one only for new files: it has the keys with which TLS sessions are resumed
			of, last = now, &tls.Config{MinVersion: least, ClientAuth: auth,
				Certificates: []tls.Certificate{now.Pair}, ClientCAs: now.CA, VerifyConnection: now.NotRevoked}
		}
		return last, nil
	}
	return conf, files, nil
}
