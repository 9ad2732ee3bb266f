package clients

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree/acl"
)

// tell() sends `text` and returns everything that comes back.
func tell(t *testing.T, c *wire.Conn, text string, half bool) string {
	t.Helper()
	must.OK(t, c.WriteRaw([]byte(text)))
	if half {
		must.OK(t, c.Conn.(*net.TCPConn).CloseWrite())
	}
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := must.Get(io.ReadAll(c))(t)
	return string(b)
}

func TestFourLetterWordIsAnsweredAndTheConnectionClosed(t *testing.T) {
	r := newRig(t, options.Options{})
	for _, text := range []string{"ruok", "srvr\n", "stmk12345678", "mntr and much more that nobody reads"} {
		for _, half := range []bool{false, true} {
			expect.Equal(t, tell(t, r.dial(), text, half), "word "+text[:4], "%q", text)
		}
	}
	for _, text := range []string{"help", "RUOK", "lsnp"} {
		expect.Equal(t, tell(t, r.dial(), text, false), "", "%q", text)
	}
}

func TestFourLetterWordMayTrickle(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.dial()
	for _, b := range []byte("ruo") {
		must.OK(t, c.WriteRaw([]byte{b}))
		time.Sleep(time.Millisecond)
	}
	expect.Equal(t, tell(t, c, "k", true), "word ruok")
}

func TestHTTPIsTurnedAway(t *testing.T) {
	r := newRig(t, options.Options{})
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST /x HTTP/1.1\r\n\r\nbody",
		"HEAD / HTTP/1.0\r\n\r\n", "PUT /x HTTP/1.1\r\n\r\n"} {
		got := tell(t, r.dial(), text, false)
		expect.That(t, strings.HasPrefix(got, "HTTP/1.0 400 "), "%q: %q", text, got)
		expect.Has(t, got, "http://127.0.0.1:8181/", "%q", text)
	}
	eventually(t, "counted", func() bool { return r.measured("foreign_connections_total") == 4 })
}

// certificate returns a self-signed certificate for name.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	return certificateOf(t, pkix.Name{CommonName: name})
}

func certificateOf(t *testing.T, subject pkix.Name) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	leaf := must.Get(x509.ParseCertificate(der))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, leaf
}

func TestTLSClientsAreServedOnTheirPort(t *testing.T) {
	serverCert, serverLeaf := certificate(t, "server")
	clientCert, clientLeaf := certificate(t, "client")
	pool := func(c *x509.Certificate) *x509.CertPool {
		p := x509.NewCertPool()
		p.AddCert(c)
		return p
	}
	r := newRig(t, options.Options{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{serverCert},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(clientLeaf)},
	})
	secure := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var served sync.WaitGroup
	served.Go(func() {
		expect.OK(t, r.srv.ServeTLS(secure))
	})
	t.Cleanup(served.Wait)
	t.Cleanup(r.srv.CutOff)
	dial := func() *wire.Conn {
		nc, err := tls.Dial("tcp", secure.Addr().String(), &tls.Config{RootCAs: pool(serverLeaf),
			Certificates: []tls.Certificate{clientCert}})
		must.OK(t, err)
		return wire.New(nc)
	}
	if got, err := io.ReadAll(func() io.Reader { c := dial(); c.WriteRaw([]byte("ruok")); return c }()); string(
		got) != "word ruok" {
		t.Errorf("ruok: %q, %v", got, err)
	}
	a := r.client()
	c := dial()
	defer c.Close()
	must.OK(t, c.Connect(wire.NewSession(10000)))
	ids := who(t, c)
	expect.That(t, ids[jute.ID{Scheme: "x509", ID: "CN=client"}], "identities %v", ids)
	// Events and outcomes reach a connection that cannot be written without blocking.
	create(t, c, "/a", strings.Repeat("x", 300_000), 0)
	for range 20 {
		call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/a", true))
		call(t, a, jute.OK, jute.OpSetData, wire.SetData("/a", make([]byte, 300_000), -1))
		wantKinds(t, c, "NodeDataChanged /a")
	}
	call(t, c, jute.OK, jute.OpCloseSession, nil)
	must.OK(t, c.Closed())
}

func TestTLSBytesOnThePlainPortAreClosed(t *testing.T) {
	r := newRig(t, options.Options{})
	nc := must.Get(net.Dial("tcp", r.ln.Addr().String()))(t)
	defer nc.Close()
	expect.Fails(t, tls.Client(nc, &tls.Config{InsecureSkipVerify: true}).Handshake(),
		"a TLS handshake succeeded")
	expect.Equal(t, r.measured("foreign_connections_total"), 1, "counted")
}

// Heard empties the list of connections that have sent bytes. Without a leader a server never calls Heard, so
// a read-only connection must leave the list when it ends.
func TestReadOnlyConnectionsAreNotRemembered(t *testing.T) {
	s := must.Get(New(options.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	defer func() {
		must.OK(t, s.Shutdown(t.Context()))
		must.OK(t, <-served)
	}()
	s.UseMeanwhile(still{state.New("test")})
	s.ReadOnly(true)
	for range 20 {
		c := must.Get(wire.Dial(ln.Addr().String()))(t)
		hello := wire.NewSession(30000)
		hello.ReadOnly = true
		must.OK(t, c.Connect(hello))
		call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/", true))
		must.Get(c.Drop())(t)
	}
	eventually(t, "no connection is left", func() bool { return len(s.conns.All()) == 0 })
	n := len(s.Heard(nil, false))
	expect.That(t, n <= 0, "%d connections that have ended are remembered", n)
}

func TestReconfigAsksTheHookAndSaysWhoAsks(t *testing.T) {
	var asked []options.ReconfigRequest
	var r *rig
	r = newRig(t, options.Options{
		Super: identity.Super{Digest: acl.DigestID("root:secret").ID},
		Reconfigure: func(q options.ReconfigRequest) (jute.ErrCode, bool) {
			asked = append(asked, q)
			owed := r.srv.conns.All()[0].Account().Owed()
			expect.That(t, owed >= request.ReconfigSteps, "the address owes %d steps", owed)
			switch q.Version {
			case 5:
				return jute.BadVersion, true
			case 6:
				return 0, false
			}
			return jute.OK, true
		},
	})
	c := r.client()
	body := func(version int64) wire.Body { return wire.Body{}.Str("server.2=x").Null().Null().Long(version) }
	call(t, c, jute.BadVersion, jute.OpReconfig, body(5))
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "root:secret"))
	f := call(t, c, jute.OK, jute.OpReconfig, body(-1))
	d := jute.NewDecoder(f.Body)
	d.Buffer()
	d.Stat()
	expect.OK(t, d.Err(), "reply %x", f.Body)
	expect.Equal(t, len(d.Rest()), 0, "reply %x: len(d.Rest())", f.Body)
	call(t, c, jute.MarshallingError, jute.OpReconfig, wire.Body{}.Str("x"))
	if expect.Equal(t, len(asked), 2, "asked %+v: len(asked)", asked) {
		expect.That(t, !asked[0].May, "asked %+v: want !asked[0].May", asked)
		expect.That(t, asked[1].May, "asked %+v: want asked[1].May", asked)
		expect.Equal(t, asked[1].Joining, "server.2=x", "asked %+v: asked[1].Joining", asked)
		expect.That(t, asked[1].Patience > 0, "asked %+v: want asked[1].Patience > 0", asked)
	}
	// If the outcome is unknown, the server closes the connection and sends no reply.
	must.Get(c.Send(jute.OpReconfig, body(6)))(t)
	must.OK(t, c.Closed())
}
