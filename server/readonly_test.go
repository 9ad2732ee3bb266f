package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Without a majority, a server serves only clients with read-only sessions, and these clients can only read.
// With a majority, it closes their connections and serves all clients.
func TestReadOnlyMode(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3, slog.New(slog.DiscardHandler), func(o *Options) { o.ReadOnlyMode = true })
	id, _ := e.leader()
	var others []uint32
	for other := range e.servers {
		if other != id {
			others = append(others, other)
		}
	}
	i := e.servers[id]
	e.write(i, "/a", 3)
	before := must.Get(wire.Open(i.ClientAddr()))(t)
	defer before.Close()
	for _, other := range others {
		must.OK(t, e.servers[other].Close(context.Background()))
	}
	must.Await(t, "not in read-only mode", time.Minute, func() bool {
		return i.Status(0).Mode == report.ReadOnly
	})
	s := i.Status(0)
	expect.That(t, !s.Serving, "read-only, and serving everybody")

	open := func(hello jute.ConnectRequest) *wire.Conn {
		c := must.Get(wire.Dial(i.ClientAddr()))(t)
		t.Cleanup(func() { c.Close() })
		if err := c.Connect(hello); err != nil {
			return nil
		}
		return c
	}
	readOnly := func(h jute.ConnectRequest) jute.ConnectRequest { h.ReadOnly = true; return h }
	expect.That(t, open(wire.NewSession(30000)) == nil, "a client that wants to write was let in")
	expect.That(t, open(readOnly(wire.Attach(before.Session, 1<<60))) == nil,
		"a client that has seen more was let in")
	wrong := before.Session
	wrong.Password = append([]byte{wrong.Password[0] + 1}, wrong.Password[1:]...)
	expect.That(t, open(readOnly(wire.Attach(wrong, 0))) == nil,
		"a client with a wrong password was let in")
	for name, hello := range map[string]jute.ConnectRequest{"new": readOnly(wire.NewSession(30000)),
		"attached": readOnly(wire.Attach(before.Session, 0))} {
		c := open(hello)
		must.That(t, c != nil, "%s: not let in", name)
		call := func(want jute.ErrCode, op jute.OpCode, body wire.Body) {
			t.Helper()
			f := must.Get(c.Call(op, body))(t)
			expect.Equal(t, f.Code, want, "%s: %v answers %v", name, op, f.Code)
		}
		call(jute.OK, jute.OpGetData, wire.PathWatch("/a2", true))
		call(jute.OK, jute.OpPing, nil)
		call(jute.NotReadOnly, jute.OpCreate, wire.Create("/b", nil, jute.WorldAnyone, 0))
		call(jute.NotReadOnly, jute.OpSync, wire.Body{}.Str("/a2"))
		call(jute.OK, jute.OpAuth, wire.Auth("digest", "u:p"))
		if name == "attached" {
			// The server must not end the session, which may go on at another server.
			call(jute.NotReadOnly, jute.OpCloseSession, nil)
		}
	}

	// With a majority again the server sends the readers away, and serves all clients.
	reader := open(readOnly(wire.NewSession(30000)))
	e.restart(others[0])
	must.OK(t, reader.Closed())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.OK(t, i.Ready(ctx))
	again := must.Get(wire.Dial(i.ClientAddr()))(t)
	defer again.Close()
	must.OK(t, again.Connect(readOnly(wire.Attach(before.Session, 0))))
	create(t, again, "/b", 0)
}

// Without the option ReadOnlyMode, a server that knows no leader serves no client.
func TestNoReadOnlyModeUnlessWanted(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3, slog.New(slog.DiscardHandler))
	id, i := e.leader()
	for other, s := range e.servers {
		if other != id {
			must.OK(t, s.Close(context.Background()))
		}
	}
	must.Await(t, "serves without a majority", time.Minute, func() bool { return !i.Status(0).Serving })
	for range 100 {
		must.That(t, i.Status(0).Mode != report.ReadOnly, "read-only mode although not wanted")
		time.Sleep(10 * time.Millisecond)
	}
}

// start runs a server with a client port until the test ends, and connects a client to it.
func start(t *testing.T, o Options) (*Instance, *wire.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.ClientAddr = "127.0.0.1:0"
	i := must.Get(Start(ctx, o))(t)
	t.Cleanup(func() { must.OK(t, i.Close(context.Background())) })
	must.OK(t, i.Ready(ctx))
	c := must.Get(wire.Open(i.ClientAddr()))(t)
	t.Cleanup(func() { c.Close() })
	return i, c
}

// create makes a node.
func create(t *testing.T, c *wire.Conn, path string, flags int32) {
	t.Helper()
	must.Get(c.Create(path, nil, flags))(t)
}

func TestStartServesOnTheAddressItTells(t *testing.T) {
	t.Parallel()
	_, c := start(t, Options{AdminAddr: "127.0.0.1:0"})
	create(t, c, "/a", 0)
}

func TestShutdownClosesClientsAndLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	i := must.Get(Start(t.Context(), Options{ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0"}))(t)
	must.OK(t, i.Ready(t.Context()))
	var conns []*wire.Conn
	for n := range 30 {
		c := must.Get(wire.Dial(i.ClientAddr()))(t)
		defer c.Close()
		if n%3 > 0 {
			must.OK(t, c.Connect(wire.NewSession(10000)))
			conns = append(conns, c)
		}
		if n%3 == 2 { // these clients have requests under way when the server stops
			for range 50 {
				must.Get(c.Send(jute.OpCreate, wire.Create("/s-", nil, jute.WorldAnyone, 2)))(t)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must.OK(t, i.Close(ctx))
	for _, c := range conns {
		for {
			if _, err := c.ReadFrame(); err == io.EOF {
				break
			} else if err != nil && !strings.Contains(err.Error(), "cut short") {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(
		time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines where there were %d", runtime.NumGoroutine(), before)
		}
	}
}

// until() makes a certificate and its files. The certificate is valid until the given time.
func until(t *testing.T, end time.Time) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"zlockd-1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end}
	der := must.Get(x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private))(t)
	secret := must.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	cert, key = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	must.OK(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must.OK(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	pair = must.Get(tls.LoadX509KeyPair(cert, key))(t)
	return pair, cert, key
}

// A server shows the certificate that clients get now, even if it was renewed after the start. It also shows
// the end of the peers' certificate. A certificate that ends soon has a notice.
func TestCertificatesAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	first, _, _ := until(t, time.Now().Add(20*day))
	second, _, _ := until(t, time.Now().Add(300*day))
	_, cert, key := until(t, time.Now().Add(21*day))
	now := &tls.Config{Certificates: []tls.Certificate{first}}
	conf := &tls.Config{Certificates: now.Certificates, GetConfigForClient: func(*tls.ClientHelloInfo) (
		*tls.Config, error) {
		return now, nil
	}}
	_, ended, endedKey := until(t, time.Now().Add(-day))
	var log bytes.Buffer
	_, err := Start(t.Context(), Options{ClientAddr: "127.0.0.1:0", LogStore: "paper",
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
		PeerTLS: tlsfiles.Names{Flag: "peer-tls", Cert: ended, Key: endedKey, CA: ended}})
	expect.Fails(t, err, "it has started")
	expect.Has(t, log.String(), "the certificate for peers has ended")
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", ClientTLS: conf,
		PeerTLS: tlsfiles.Names{Flag: "peer-tls", Cert: cert, Key: key, CA: cert}})

	ends := func(name string) bool {
		return slices.ContainsFunc(i.Status(0).Notices, func(n string) bool {
			return strings.Contains(n, "the certificate for "+name+" ends on ")
		})
	}
	for _, name := range []string{"clients", "peers"} {
		expect.That(t, ends(name), "no notice of the certificate for %s: %q", name, i.Status(0).Notices)
	}
	now = &tls.Config{Certificates: []tls.Certificate{second}} // the clients' certificate was renewed
	expect.That(t, !ends("clients"), "a notice of the renewed certificate: %q", i.Status(0).Notices)
	expect.That(t, ends("peers"), "no notice of the other certificate: %q", i.Status(0).Notices)
	list := i.certificates()
	if expect.Equal(t, len(list), 2, "shown are: length of %v", list) {
		expect.That(t, list[0].NotAfter.Equal(second.Leaf.NotAfter), "shown are %+v", list)
	}
	now = nil // without a function for it, clients get the certificate in the configuration
	expect.That(t, ends("clients"), "notices %q", i.Status(0).Notices)
	now = &tls.Config{Certificates: []tls.Certificate{first}}
	s := report.Status{Now: time.Now().Add(17*day + time.Hour)}
	i.certificateStatus(&s, false)
	if expect.Equal(t, len(s.Faults), 1, "within three days of one end: number of faults %v", s.Faults) {
		expect.Has(t, s.Faults[0], "the certificate for clients ends on ", "within three days of one end: faults")
		expect.Equal(t, len(s.Notices), 1, "within three days of one end: number of notices %v", s.Notices)
	}
	s = report.Status{Now: time.Now().Add(28 * day)}
	i.certificateStatus(&s, true)
	if expect.Equal(t, len(s.Faults), 2, "faults when it is too late: number of faults %v", s.Faults) {
		expect.Has(t, s.Faults[0], "the certificate for clients has ended: it was valid from ",
			"faults when it is too late: faults")
	}
	if expect.Equal(t, len(s.Extra), 2, "metrics: number of extra %v", s.Extra) {
		expect.Equal(t, s.Extra[1].Labels[0].Value, "peers", "metrics: value")
		expect.That(t, s.Extra[1].Value <= -6*day.Seconds(), "metrics: %+v", s.Extra)
		expect.That(t, s.Extra[1].Value >= -8*day.Seconds(), "metrics: %+v", s.Extra)
	}
	s = report.Status{Now: first.Leaf.NotBefore.Add(-time.Minute)}
	i.certificateStatus(&s, false)
	expect.That(t, len(s.Faults) >= 1, "faults when it is too early: %q", s.Faults)
	expect.Has(t, s.Faults[0], "the certificate for clients is not valid yet: it is valid from ",
		"faults when it is too early: faults")
	// The peers' certificate is renewed, and then the file breaks.
	_, newCert, newKey := until(t, time.Now().Add(200*day))
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		must.OK(t, os.Rename(from, to))
		must.OK(t, os.Chtimes(to, time.Now().Add(time.Hour), time.Now().Add(time.Hour)))
	}
	await(t, "the peers' certificate is the new one", func() bool { return !ends("peers") })
	must.OK(t, os.WriteFile(cert, []byte("half a fi"), 0o600))
	await(t, "the broken file is told", func() bool {
		return slices.ContainsFunc(i.Status(0).Notices, func(n string) bool {
			return strings.Contains(n, "the old ones stay: --peer-tls-cert "+cert)
		})
	})
}

// await waits until ok() returns true, for at most a minute.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
