package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// clientTLS is the configuration of the TLS port for clients. The files are
// read again when they change, so that a certificate can be renewed without a
// restart; while what is there cannot be used, the last good one stays.
type clientTLS struct {
	cert, key, ca string
	auth          tls.ClientAuthType
	least         uint16
	log           *slog.Logger

	mu      sync.Mutex
	current *tls.Config
	looked  time.Time // when the files were last looked at
	stamp   [3]time.Time
}

// lookAgain is how often the files are looked at, at most.
const lookAgain = time.Second

// newClientTLS returns the configuration the settings ask for, nil for none.
func newClientTLS(s *settings, log *slog.Logger) (*tls.Config, error) {
	if s.secureClientAddr == "" {
		return nil, nil
	}
	c := &clientTLS{cert: s.tlsCert, key: s.tlsKey, ca: s.tlsCA, least: tls.VersionTLS12, log: log}
	if s.more.tls13 {
		c.least = tls.VersionTLS13
	}
	switch {
	case s.tlsCA == "" || s.more.tlsClientAuth == "none":
		c.auth, c.ca = tls.NoClientCert, ""
	case s.more.tlsClientAuth == "want":
		c.auth = tls.VerifyClientCertIfGiven
	default:
		c.auth = tls.RequireAndVerifyClientCert
	}
	c.stamp = c.stamps()
	var err error
	if c.current, err = c.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         c.least,
		Certificates:       c.current.Certificates, // so that the port can be opened; never used
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.get(time.Now()), nil },
	}, nil
}

// get returns the configuration of the files as they are.
func (c *clientTLS) get(now time.Time) *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) < lookAgain {
		return c.current
	}
	c.looked = now
	stamp := c.stamps()
	if stamp == c.stamp {
		return c.current
	}
	c.stamp = stamp
	fresh, err := c.load()
	if err != nil {
		c.log.Error("TLS files have changed and cannot be used; the old ones stay", "err", err)
		return c.current
	}
	c.log.Info("TLS files read again", "cert", c.cert)
	c.current = fresh
	return fresh
}

// stamps tells when each file was changed.
func (c *clientTLS) stamps() (t [3]time.Time) {
	for i, file := range []string{c.cert, c.key, c.ca} {
		if info, err := os.Stat(file); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

func (c *clientTLS) load() (*tls.Config, error) {
	cert, err := readFile(c.cert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := readFile(c.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", c.cert, c.key, err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: c.least, ClientAuth: c.auth}
	if c.ca != "" {
		text, err := readFile(c.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		conf.ClientCAs = x509.NewCertPool()
		if !conf.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--tls-ca %s holds no certificate in PEM", c.ca)
		}
	}
	return conf, nil
}
