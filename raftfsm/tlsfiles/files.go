// Package tlsfiles reads a certificate, its key, an authority and its revocation lists from PEM
// files, and reads them again when they change, so that a certificate is renewed or revoked
// without a restart.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/secretfile"
)

// MaxFile bounds every file that an operator names: certificates, keys, and configuration.
const MaxFile = 1 << 20

// lookAgain is the shortest time between two checks of the files.
const lookAgain = 100 * time.Millisecond

// Loaded is the content of the files.
type Loaded struct {
	Pair tls.Certificate
	CA   *x509.CertPool // nil: no file with authorities is given
	// Until is when the certificate expires. If the certificate of the authority that signed it is among the
	// files and expires sooner, Until is that time.
	Until time.Time
	// CAUntil is when the last of the authorities in the file expires; zero: there is no file.
	CAUntil time.Time
	crl     []*x509.RevocationList
}

// Files are a certificate, its key, and perhaps an authority and revocation lists. While the files on disk
// cannot be used, the last good files stay in use.
type Files struct {
	n   Names
	log *slog.Logger

	mu      sync.Mutex
	current *Loaded
	looked  time.Time // when the files were last looked at
	stamp   [4]stamp  // stamps of the files whose content is in `current`
	problem string    // why the files on disk cannot be used
}

// stamp distinguishes two states of a file.
type stamp struct {
	changed time.Time
	size    int64
	mode    os.FileMode
}

// Open reads the files.
func Open(n Names, log *slog.Logger) (*Files, error) {
	f := &Files{n: n, log: log}
	f.stamp = f.stamps()
	var err error
	f.current, err = f.load()
	return f, err
}

// Get returns the content of the files now.
func (f *Files) Get(now time.Time) *Loaded {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) < lookAgain {
		return f.current
	}
	f.looked = now
	stamps := f.stamps()
	if stamps == f.stamp {
		f.problem = "" // the operator has put the old files back
		return f.current
	}
	fresh, err := f.load()
	switch {
	case err != nil:
	case valid(fresh, now):
		err = f.n.forPeers(fresh.Pair, fresh.CA, now)
	case valid(f.current, now):
		leaf := fresh.Pair.Leaf
		err = fmt.Errorf("--%s-cert %s is valid from %s until %s only", f.n.Flag, f.n.Cert,
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	// Files that cannot be used are read again at each check. They may become valid or readable, and their last
	// bytes may arrive within the same tick of the file system's clock.
	if err != nil {
		if text := err.Error(); text != f.problem {
			f.log.Error("TLS files have changed and cannot be used; the old ones stay", "err", err)
			f.problem = text
		}
		return f.current
	}
	f.log.Info("TLS files read again", "cert", f.n.Cert)
	f.problem, f.current, f.stamp = "", fresh, stamps
	return fresh
}

// valid() reports whether the certificate's dates include now.
func valid(l *Loaded, now time.Time) bool {
	return !now.Before(l.Pair.Leaf.NotBefore) && !now.After(l.Pair.Leaf.NotAfter)
}

// Problem says that the files on disk cannot be used, or that a revocation list is out of date. It returns ""
// if all is well.
func (f *Files) Problem() string {
	now := time.Now()
	l := f.Get(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != "" {
		return "TLS files have changed and cannot be used; the old ones stay: " + f.problem
	}
	for _, list := range l.crl {
		if !list.NextUpdate.IsZero() && now.After(list.NextUpdate) {
			return fmt.Sprintf("the list of %s in --tls-crl %s is out of date since %s; certificates revoked later "+
				"are let in", list.Issuer, f.n.CRL, list.NextUpdate.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

func (f *Files) stamps() (list [4]stamp) {
	for i, file := range []string{f.n.Cert, f.n.Key, f.n.CA, f.n.CRL} {
		if info, err := os.Stat(file); err == nil {
			list[i] = stamp{info.ModTime(), info.Size(), info.Mode()}
		}
	}
	return list
}

func (f *Files) load() (*Loaded, error) {
	n := f.n
	cert, err := read(n.Flag+"-cert", n.Cert)
	if err != nil {
		return nil, err
	}
	key, err := read(n.Flag+"-key", n.Key)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(n.Key); err != nil {
		return nil, fmt.Errorf("--%s-key: %w", n.Flag, err)
	} else if err := secretfile.Check(n.Key, info); err != nil {
		return nil, fmt.Errorf("--%s-key: %w", n.Flag, err)
	}
	l := new(Loaded)
	if l.Pair, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("--%s-cert %s, --%s-key %s: %w", n.Flag, n.Cert, n.Flag, n.Key, err)
	}
	l.Until = l.Pair.Leaf.NotAfter
	if n.CA == "" {
		return l, nil
	}
	text, err := read(n.Flag+"-ca", n.CA)
	if err != nil {
		return nil, err
	}
	l.CA = x509.NewCertPool()
	if !l.CA.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--%s-ca %s holds no certificate in PEM", n.Flag, n.CA)
	}
	l.CAUntil = LastEnd(text)
	if chains, err := chainsOf(l.Pair, l.CA, time.Now()); err == nil {
		l.Until = endOf(chains)
	}
	if n.CRL != "" {
		l.crl, err = ReadCRL(n.CRL)
	}
	return l, err
}

func read(flag, path string) ([]byte, error) {
	b, err := ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return b, nil
}

// ReadFile is os.ReadFile for a file that an operator names. It refuses a file longer than MaxFile, because
// such a file must be the wrong one.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(b) > MaxFile {
		err = fmt.Errorf("%s is longer than %d bytes, which is too long for a TLS file", path, MaxFile)
	}
	return b, err
}
