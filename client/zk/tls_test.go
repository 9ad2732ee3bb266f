package zk_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/must"
)

// secured returns the address of a TLS front for addr, and who signed for it.
func secured(t *testing.T, addr string) (string, *x509.CertPool) {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	pool := x509.NewCertPool()
	pool.AddCert(must.Get(x509.ParseCertificate(der))(t))
	ln := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{
		{Certificate: [][]byte{der}, PrivateKey: key}}}))(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				in.Close()
				continue
			}
			wg.Go(func() { io.Copy(out, in); out.Close() })
			wg.Go(func() { io.Copy(in, out); in.Close() })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return net.JoinHostPort("localhost", port), pool
}

func TestTLS(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		front, pool := secured(t, addr)
		c, ctx := dial(t, front, zk.Options{TLS: &tls.Config{RootCAs: pool}}), within(t)
		node(t, c, "/tls", "x")
		c.Reconnect()
		must.Get(c.Get(ctx, "/tls"))(t)
		must.OK(t, c.Close(ctx))

		// A certificate nobody vouches for is trouble that is told.
		told := make(chan error, 100)
		bad := must.Get(zk.Open(front, zk.Options{
			TLS: &tls.Config{}, OnTrouble: func(_ string, err error) {
				select {
				case told <- err:
				default:
				}
			}}))(t)
		must.Fails(t, soon(t, "the trouble", told), "no error")
		must.OK(t, bad.Close(ctx))
	})
}
