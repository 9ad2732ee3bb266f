package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// secured starts three servers with TLS on the ports for clients, peers and administration.
func secured(t *testing.T, a *authority, more ...string) (servers []*daemonProcess) {
	t.Helper()
	var peers []string
	for id := 1; id <= 3; id++ {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		peers = append(peers, fmt.Sprintf("%d=%s", id, l.Addr()))
		l.Close()
	}
	for id := 1; id <= 3; id++ {
		a.renew(t, id)
		peer, cert := a.file(fmt.Sprintf("peer%d", id)), a.file(fmt.Sprintf("server%d", id))
		servers = append(servers,
			begin(t, append([]string{"--id", fmt.Sprint(id), "--peers", strings.Join(peers, ","),
				"--data-dir", a.file(fmt.Sprintf("data%d", id)), "--client-addr", off, "--secure-client-addr",
				"127.0.0.1:0",
				"--admin-addr", "127.0.0.1:0", "--tls-cert", cert + ".pem", "--tls-key", cert + ".key",
				"--admin-tls-cert", cert + ".pem", "--admin-tls-key", cert + ".key",
				"--peer-tls-cert", peer + ".pem", "--peer-tls-key", peer + ".key", "--peer-tls-ca", a.file("ca.pem")},
				more...)...))
	}
	for _, p := range servers {
		p.wait(t)
	}
	return servers
}

// renew writes new certificates of a server.
func (a *authority) renew(t *testing.T, id int) (clients, peers *x509.Certificate) {
	t.Helper()
	clients, _ = a.sign(t, fmt.Sprintf("server%d", id), nil)
	peers, _ = a.sign(t, fmt.Sprintf("peer%d", id), []string{fmt.Sprintf("zlockd-%d", id)})
	return clients, peers
}

func (a *authority) trust() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots}
}

// shows waits until the port shows a certificate.
func shows(t *testing.T, addr string, conf *tls.Config, want *x509.Certificate) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 20 * time.Second}, "tcp", addr, conf)
		must.OK(t, err, "%s", addr)
		seen := c.ConnectionState().PeerCertificates[0]
		c.Close()
		if seen.Equal(want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s still shows the certificate %x, not %x", addr, seen.SerialNumber, want.SerialNumber)
		}
	}
}

// TestCertificatesRenewedUnderLoadLoseNoRequest renews the certificates of three servers a hundred
// times. A session writes, sessions begin and end, and the members are asked for, which servers ask
// each other; nothing fails.
func TestCertificatesRenewedUnderLoadLoseNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes")
	}
	a := newAuthority(t, t.TempDir())
	servers := secured(t, a)
	var clients []string
	for _, p := range servers {
		clients = append(clients, p.ready["secure"])
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var done [3]atomic.Int64
	failed := make(chan error, 10)
	load := func(n int, what string, once func() error) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := once(); err != nil && ctx.Err() == nil {
					failed <- fmt.Errorf("%s, after %d: %w", what, done[n].Load(), err)
					return
				}
				done[n].Add(1)
			}
		})
	}
	writer := must.Get(zk.Dial(ctx, strings.Join(clients, ","), zk.Options{TLS: a.trust()}))(t)
	defer writer.Close(context.Background())
	must.Get(writer.Create(ctx, zk.Create{Path: "/a"}))(t)
	load(0, "write", func() error { _, err := writer.Set(ctx, "/a", []byte("x"), -1); return err })
	load(1, "session", func() error {
		c, err := zk.Dial(ctx, strings.Join(clients, ","), zk.Options{TLS: a.trust()})
		if err != nil {
			return err
		}
		_, err = c.Get(ctx, "/a")
		return errors.Join(err, c.Close(ctx))
	})
	asker := &http.Client{Transport: &http.Transport{TLSClientConfig: a.trust(), DisableKeepAlives: true}}
	load(2, "members", func() error {
		r, err := asker.Get("https://" + servers[done[2].Load()%3].ready["admin"] + "/members")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		_, err = io.Copy(io.Discard, r.Body)
		return err
	})
	before := writer.Session()
	for n := range 100 {
		id := n%3 + 1
		forClients, forPeers := a.renew(t, id)
		p, peer := servers[id-1], a.trust()
		pair := must.Get(tls.LoadX509KeyPair(a.file("peer1.pem"), a.file("peer1.key")))(t)
		peer.ServerName, peer.Certificates = fmt.Sprintf("zlockd-%d", id), []tls.Certificate{pair}
		shows(t, p.ready["secure"], a.trust(), forClients)
		shows(t, p.ready["admin"], a.trust(), forClients)
		shows(t, p.ready["peer"], peer, forPeers)
		select {
		case err := <-failed:
			t.Fatalf("renewal %d: %v", n, err)
		default:
		}
	}
	stop()
	wg.Wait()
	expect.Equal(t, writer.Session().ID, before.ID, "the session of the writer was lost")
	t.Logf("%d writes, %d sessions, %d answers of the admin port", done[0].Load(), done[1].Load(),
		done[2].Load())
	for n := range done {
		expect.That(t, done[n].Load() != 0, "load %d did nothing", n)
	}
}

// TestSubjectOfACertificateIsTheSuperUser: the subject that the flag names may do everything,
// another of the same authority may not.
func TestSubjectOfACertificateIsTheSuperUser(t *testing.T) {
	a := newAuthority(t, t.TempDir())
	for _, name := range []string{"server", "admin", "other"} {
		a.sign(t, name, nil)
	}
	p := launch(t, "--dev", "--client-addr", off, "--secure-client-addr", "127.0.0.1:0", "--admin-addr", off,
		"--tls-cert", a.file("server.pem"), "--tls-key", a.file("server.key"), "--tls-ca", a.file("ca.pem"),
		"--x509-super", "CN=admin")
	for _, name := range []string{"other", "admin"} {
		conf := a.trust()
		pair := must.Get(tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key")))(t)
		conf.Certificates = []tls.Certificate{pair}
		c := must.Get(zk.Dial(t.Context(), p.ready["secure"], zk.Options{TLS: conf}))(t)
		defer c.Close(context.Background())
		must.Get(c.Create(t.Context(), zk.Create{Path: "/" + name, ACL: zk.DigestACL(1, "third", "x")}))(t)
		if _, err := c.Get(t.Context(), "/"+name); (err == nil) != (name == "admin") {
			t.Errorf("%s reads a node of a third user: %v", name, err)
		}
	}
}
