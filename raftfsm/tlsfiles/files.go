// Package tlsfiles reads a certificate, its key and an authority from PEM files,
// and reads them again when they change, so that a certificate is renewed
// without a restart.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// maxFile bounds what is read of a file.
const maxFile = 1 << 20

// lookAgain is how often the files are looked at, at most.
const lookAgain = time.Second

// Loaded is what the files hold.
type Loaded struct {
	Pair tls.Certificate
	CA   *x509.CertPool // nil without a file for it
}

// Files are a certificate, its key and, unless empty, an authority. While the files on disk cannot
// be used, the last good ones stay.
type Files struct {
	flag, cert, key, ca string
	log                 *slog.Logger

	mu      sync.Mutex
	current *Loaded
	looked  time.Time // when the files were last looked at
	stamp   [3]time.Time
	problem error // why the files as they are cannot be used
}

// Open reads the files. Errors name them by their flags: flag-cert, flag-key and flag-ca.
func Open(flag, cert, key, ca string, log *slog.Logger) (*Files, error) {
	f := &Files{flag: flag, cert: cert, key: key, ca: ca, log: log}
	f.stamp = f.stamps()
	var err error
	f.current, err = f.load()
	return f, err
}

// Get returns the files as they are now.
func (f *Files) Get(now time.Time) *Loaded {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) < lookAgain {
		return f.current
	}
	f.looked = now
	stamp := f.stamps()
	if stamp == f.stamp {
		return f.current
	}
	f.stamp = stamp
	fresh, err := f.load()
	if f.problem = err; err != nil {
		f.log.Error("TLS files have changed and cannot be used; the old ones stay", "err", err)
		return f.current
	}
	f.log.Info("TLS files read again", "cert", f.cert)
	f.current = fresh
	return fresh
}

// Problem returns why the files on disk cannot be used; empty: they can.
func (f *Files) Problem() string {
	f.Get(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == nil {
		return ""
	}
	return f.problem.Error()
}

// stamps returns when each file was changed.
func (f *Files) stamps() (t [3]time.Time) {
	for i, file := range []string{f.cert, f.key, f.ca} {
		if info, err := os.Stat(file); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

func (f *Files) load() (*Loaded, error) {
	cert, err := f.read("cert", f.cert)
	if err != nil {
		return nil, err
	}
	key, err := f.read("key", f.key)
	if err != nil {
		return nil, err
	}
	l := new(Loaded)
	if l.Pair, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("--%s-cert %s, --%s-key %s: %w", f.flag, f.cert, f.flag, f.key, err)
	}
	if f.ca == "" {
		return l, nil
	}
	text, err := f.read("ca", f.ca)
	if err != nil {
		return nil, err
	}
	l.CA = x509.NewCertPool()
	if !l.CA.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--%s-ca %s holds no certificate in PEM", f.flag, f.ca)
	}
	return l, nil
}

func (f *Files) read(what, path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("--%s-%s: %w", f.flag, what, err)
	}
	return b, nil
}
