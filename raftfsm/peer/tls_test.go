package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// ownTLS is that of a cluster whose servers all have the same certificate.
func ownTLS(t *testing.T, id uint32) *TLS {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{certName(id)}, IsCA: true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	secret := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	cert, private := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, private: {
		Type: "PRIVATE KEY", Bytes: secret}} {
		must.OK(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	secure := must.Get(LoadTLS(tlsfiles.Names{Flag: "peer-tls", Cert: cert, Key: private, CA: cert},
		slog.New(slog.DiscardHandler)))(t)
	return secure
}

// A server that stands still once it has shaken hands keeps no caller longer than
// one that stands still before: who calls a leader has no other goroutine to find
// the next one.
func TestSilenceAfterTheHandshakeIsNotWaitedFor(t *testing.T) {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	secure := ownTLS(t, 1)
	shaken := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			defer c.Close()
			_, _, err = secure.server(c)
		}
		shaken <- err
		<-t.Context().Done()
	}()
	p := open(t, 2, &host{})
	p.o.TLS = secure
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	called := make(chan error, 1)
	go func() {
		c, err := p.Call(ctx, Link, 1, ln.Addr().String())
		if err == nil {
			c.Close()
		}
		called <- err
	}()
	must.OK(t, <-shaken)
	select {
	case err := <-called:
		expect.Fails(t, err, "who did not answer has let us in")
	case <-time.After(20 * time.Second):
		t.Fatal("the caller goes on waiting")
	}
}
