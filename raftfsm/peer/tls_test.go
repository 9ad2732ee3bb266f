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
)

// ownTLS is that of a cluster whose servers all have the same certificate.
func ownTLS(t *testing.T, id uint32) *TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{certName(id)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, private := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, private: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secure, err := LoadTLS(tlsfiles.Names{Flag: "peer-tls", Cert: cert, Key: private, CA: cert}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return secure
}

// A server that stands still once it has shaken hands keeps no caller longer than
// one that stands still before: who calls a leader has no other goroutine to find
// the next one.
func TestSilenceAfterTheHandshakeIsNotWaitedFor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-called:
		if err == nil {
			t.Error("who did not answer has let us in")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the caller goes on waiting")
	}
}
