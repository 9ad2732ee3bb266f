package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// askTLS dials the TLS port with or without a client's certificate.
func askTLS(a *certs.Authority, addr, word, client string) (string, error) {
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	conf := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	if client != "" {
		pair, err := tls.LoadX509KeyPair(a.File(client+".pem"), a.File(client+".key"))
		if err != nil {
			return "", err
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", addr, conf)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestTLSPortAsksForCertificates(t *testing.T) {
	a := certs.New(t, t.TempDir())
	a.Sign(t, "server", nil)
	a.Sign(t, "client", nil)
	p := launch(t, "--dev", "--client-addr", settings.Off, "--secure-client-addr", "127.0.0.1:0", "--admin-addr", settings.Off,
		"--tls-cert", a.File("server.pem"), "--tls-key", a.File("server.key"), "--tls-ca", a.File("ca.pem"))
	expect.Equal(t, p.ready["client"], settings.Off, "ready: client")
	expect.Equal(t, p.ready["admin"], settings.Off, "ready: admin")
	expect.Equal(t, must.Get(askTLS(a, p.ready["secure"], "ruok", "client"))(t), "imok", "with a certificate")
	got, err := askTLS(a, p.ready["secure"], "ruok", "")
	expect.Fails(t, err, "without a certificate: %q", got)
}

// The test asks the admin port by https, with and without a certificate, and by http. A zoo.cfg with
// portUnification allows both https and http.
func TestAdminPortSpeaksTLS(t *testing.T) {
	a := &certs.Authority{Dir: t.TempDir(), Life: 60 * 24 * time.Hour} // so long that /health does not warn
	a.Cert, a.Key = a.Sign(t, "ca", nil)
	a.Sign(t, "server", nil)
	a.Sign(t, "client", nil)
	both := a.File("both.pem") // certificate and key in one file, as in a ZooKeeper's store
	var text []byte
	for _, f := range []string{"server.pem", "server.key"} {
		part := must.Get(os.ReadFile(a.File(f)))(t)
		text = append(text, part...)
	}
	pair := must.Get(tls.LoadX509KeyPair(a.File("client.pem"), a.File("client.key")))(t)
	cfg := a.File("zoo.cfg")
	for file, text := range map[string]string{
		both: string(text), cfg: "clientPort=0\nadmin.portUnification=true\n" +
			"ssl.quorum.keyStore.location=" + both + "\n"} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	files := []string{"--admin-tls-cert", a.File("server.pem"), "--admin-tls-key", a.File("server.key")}
	for _, tc := range []struct {
		name              string
		flags             []string
		http, bare, known bool // whether HTTP, HTTPS without a certificate, and HTTPS with one get an answer
	}{
		{"TLS", files, false, true, true},
		{"with certificates", append(files, "--admin-tls-ca", a.File("ca.pem")), false, false, true},
		{"both", []string{"--config", cfg}, true, true, true},
	} {
		p := launch(t, append([]string{"--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"},
			tc.flags...)...)
		ask := func(scheme string, certs ...tls.Certificate) bool {
			return answers(scheme+"://"+p.ready["admin"]+"/health", `"status"`, a.Trust().RootCAs, certs)
		}
		plain, bare, known := ask("http"), ask("https"), ask("https", pair)
		expect.Equal(t, plain, tc.http, "%s: plain", tc.name)
		expect.Equal(t, bare, tc.bare, "%s: bare", tc.name)
		expect.Equal(t, known, tc.known, "%s: known", tc.name)
	}
}

// answers() reports whether a GET with these certificates gets an answer with this text.
func answers(url, text string, roots *x509.CertPool, certs []tls.Certificate) bool {
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}}
	r, err := c.Get(url)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return err == nil && r.StatusCode == http.StatusOK && strings.Contains(string(body), text)
}

// TestMetricsPortSpeaksTLS asks --metrics-addr like a scraper. The admin port of the same server has no TLS.
func TestMetricsPortSpeaksTLS(t *testing.T) {
	a := certs.New(t, t.TempDir())
	a.Sign(t, "server", nil)
	a.Sign(t, "client", nil)
	pair := must.Get(tls.LoadX509KeyPair(a.File("client.pem"), a.File("client.key")))(t)
	files := []string{"--metrics-tls-cert", a.File("server.pem"), "--metrics-tls-key", a.File("server.key")}
	for _, c := range []struct {
		name              string
		flags             []string
		http, bare, known bool // whether HTTP, HTTPS without a certificate, and HTTPS with one get an answer
	}{
		{"clear text", nil, true, false, false},
		{"TLS", files, false, true, true},
		{"with certificates", append(files, "--metrics-tls-ca", a.File("ca.pem")), false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := must.Get(cluster.FreePorts(1))(t)[0]
			p := launch(t, append([]string{"--dev", "--client-addr", "127.0.0.1:0",
				"--admin-addr", "127.0.0.1:0", "--metrics-addr", addr}, c.flags...)...)
			const metric = "zlockd_certificate_expiry_seconds{use=\"metrics\"}"
			ask := func(scheme, text string, certs ...tls.Certificate) bool {
				return answers(scheme+"://"+addr+"/metrics", text, a.Trust().RootCAs, certs)
			}
			expect.Equal(t, ask("http", "zlockd_"), c.http, "clear text is answered")
			expect.Equal(t, ask("https", metric), c.bare, "a caller without a certificate is answered")
			expect.Equal(t, ask("https", metric, pair), c.known, "a caller with a certificate is answered")
			expect.That(t, answers("http://"+p.ready["admin"]+"/metrics", "zlockd_", nil, nil),
				"the admin port does not answer in clear text")
		})
	}
}

func TestReadableKeysAreRefused(t *testing.T) {
	a := certs.New(t, t.TempDir())
	a.Sign(t, "server", nil)
	args := []string{"--dev", "--secure-client-addr", "127.0.0.1:0", "--tls-cert", a.File("server.pem"),
		"--tls-key", a.File("server.key")}
	expect.OK(t, expect.Err(settings.Read(args, nil)))
	for mode, ok := range map[os.FileMode]bool{0o640: true, 0o644: false, 0o604: false} {
		os.Chmod(a.File("server.key"), mode)
		if _, err := settings.Read(args, nil); (err == nil) != ok || err != nil &&
			!strings.Contains(err.Error(), "chmod o-rwx ") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// Each port that asks for certificates watches the authority that signs them. If a file has several
// authorities, the one that ends last counts.
func TestAuthorityOfEachPortIsWatched(t *testing.T) {
	const day = 24 * time.Hour
	a := certs.New(t, t.TempDir())
	a.Sign(t, "server", nil)
	next := &certs.Authority{Dir: t.TempDir(), Life: 4000 * day}
	next.Cert, next.Key = next.Sign(t, "ca", nil)
	args := []string{"--dev", "--secure-client-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0",
		"--admin-addr", "127.0.0.1:0", "--ticket-addr", "127.0.0.1:0"}
	for _, flag := range []string{"tls", "admin-tls", "metrics-tls", "ticket-tls"} {
		args = append(args, "--"+flag+"-cert", a.File("server.pem"), "--"+flag+"-key", a.File("server.key"),
			"--"+flag+"-ca", a.File("ca.pem"))
	}
	authorities := func(auth string) map[string]func() time.Time {
		t.Helper()
		s := must.Get(settings.Read(args, nil))(t)
		s.TLSClientAuth = auth
		return must.Get(serverOptions(s, slog.New(slog.DiscardHandler)))(t).TLSAuthorities
	}
	both := must.Get(os.ReadFile(next.File("ca.pem")))(t)
	both = append(both, must.Get(os.ReadFile(a.File("ca.pem")))(t)...)
	must.OK(t, os.WriteFile(a.File("ca.pem"), both, 0o600))
	all := authorities("need")
	expect.List(t, slices.Sorted(maps.Keys(all)), []string{"admin", "clients", "metrics", "tickets"})
	for use, until := range all {
		expect.That(t, until().Equal(next.Cert.NotAfter), "%s: %v", use, until())
	}
	none := authorities("none") // without an authority for clients
	expect.List(t, slices.Sorted(maps.Keys(none)), []string{"admin", "metrics", "tickets"})
}

func TestThreeServersOverTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes")
	}
	var wrong []string
	for range 5 { // on a busy machine the leader may change during an attempt
		if wrong = threeServersOverTLS(t); wrong == nil {
			return
		}
		t.Log(wrong)
	}
	t.Errorf("%q", wrong)
}

// threeServersOverTLS returns what three servers report wrongly about their modes.
func threeServersOverTLS(t *testing.T) (wrong []string) {
	a := certs.New(t, t.TempDir())
	ports := must.Get(cluster.FreePorts(3))(t)
	var peers []string
	for id := 1; id <= 3; id++ {
		peers = append(peers, strconv.Itoa(id)+"="+ports[id-1])
		a.Sign(t, "peer"+strconv.Itoa(id), []string{"zlockd-" + strconv.Itoa(id)})
	}
	var servers []*daemonProcess
	for id := 1; id <= 3; id++ {
		name := "peer" + strconv.Itoa(id)
		servers = append(servers, begin(t, "--id", strconv.Itoa(id), "--peers", strings.Join(peers, ","),
			"--data-dir", a.File("data"+strconv.Itoa(id)),
			"--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
			"--peer-tls-cert", a.File(name+".pem"), "--peer-tls-key", a.File(name+".key"), "--peer-tls-ca",
			a.File("ca.pem")))
	}
	modes := map[string]int{}
	for _, p := range servers {
		p.wait(t)
		modes[p.ready["mode"]]++
		expect.Has(t, p.word(t, "conf"), "membership: \nserver.1=127.0.0.1:", "conf of an ensemble")
		if srvr := p.word(t, "srvr"); !strings.Contains(srvr, "\nMode: "+p.ready["mode"]+"\n") {
			wrong = append(wrong, fmt.Sprintf("srvr of a %s: %s", p.ready["mode"], srvr))
		}
		mntr := p.word(t, "mntr")
		if strings.Contains(mntr, "zk_synced_followers") != (p.ready["mode"] == "leader") ||
			!strings.Contains(mntr, "zk_quorum_size\t3\n") {
			wrong = append(wrong, fmt.Sprintf("mntr of a %s: %s", p.ready["mode"], mntr))
		}
	}
	if modes["leader"] != 1 || modes["follower"] != 2 {
		wrong = append(wrong, fmt.Sprintf("modes %v", modes))
	}
	return wrong
}

// secured() starts three servers with TLS on the ports for clients, peers and administration.
func secured(t *testing.T, a *certs.Authority, more ...string) (servers []*daemonProcess) {
	t.Helper()
	ports := must.Get(cluster.FreePorts(3))(t)
	var peers []string
	for id := 1; id <= 3; id++ {
		peers = append(peers, fmt.Sprintf("%d=%s", id, ports[id-1]))
	}
	for id := 1; id <= 3; id++ {
		renew(t, a, id)
		peer, cert := a.File(fmt.Sprintf("peer%d", id)), a.File(fmt.Sprintf("server%d", id))
		servers = append(servers,
			begin(t, append([]string{"--id", fmt.Sprint(id), "--peers", strings.Join(peers, ","),
				"--data-dir", a.File(fmt.Sprintf("data%d", id)), "--client-addr", settings.Off, "--secure-client-addr",
				"127.0.0.1:0",
				"--admin-addr", "127.0.0.1:0", "--tls-cert", cert + ".pem", "--tls-key", cert + ".key",
				"--admin-tls-cert", cert + ".pem", "--admin-tls-key", cert + ".key",
				"--peer-tls-cert", peer + ".pem", "--peer-tls-key", peer + ".key", "--peer-tls-ca", a.File("ca.pem")},
				more...)...))
	}
	for _, p := range servers {
		p.wait(t)
	}
	return servers
}

// renew() writes new certificates for a server.
func renew(t *testing.T, a *certs.Authority, id int) (clients, peers *x509.Certificate) {
	t.Helper()
	clients, _ = a.Sign(t, fmt.Sprintf("server%d", id), nil)
	peers, _ = a.Sign(t, fmt.Sprintf("peer%d", id), []string{fmt.Sprintf("zlockd-%d", id)})
	return clients, peers
}

// shows() waits until a port shows the certificate `want`.
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

// The certificates of three servers are renewed a hundred times. At the same time a session writes, sessions
// begin and end, and servers ask each other for the members. No request fails.
func TestCertificatesRenewedUnderLoadLoseNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes")
	}
	a := certs.New(t, t.TempDir())
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
	writer := must.Get(zk.Dial(ctx, strings.Join(clients, ","), zk.Options{TLS: a.Trust()}))(t)
	defer writer.Close(context.Background())
	must.Get(writer.Create(ctx, zk.Create{Path: "/a"}))(t)
	load(0, "write", func() error { _, err := writer.Set(ctx, "/a", []byte("x"), -1); return err })
	load(1, "session", func() error {
		c, err := zk.Dial(ctx, strings.Join(clients, ","), zk.Options{TLS: a.Trust()})
		if err != nil {
			return err
		}
		_, err = c.Get(ctx, "/a")
		return errors.Join(err, c.Close(ctx))
	})
	asker := &http.Client{Transport: &http.Transport{TLSClientConfig: a.Trust(), DisableKeepAlives: true}}
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
		forClients, forPeers := renew(t, a, id)
		p, peer := servers[id-1], a.Trust()
		pair := must.Get(tls.LoadX509KeyPair(a.File("peer1.pem"), a.File("peer1.key")))(t)
		peer.ServerName, peer.Certificates = fmt.Sprintf("zlockd-%d", id), []tls.Certificate{pair}
		shows(t, p.ready["secure"], a.Trust(), forClients)
		shows(t, p.ready["admin"], a.Trust(), forClients)
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

// A certificate with the subject that the flag names is the super user's. Another certificate of the same
// authority is not.
func TestSubjectOfACertificateIsTheSuperUser(t *testing.T) {
	a := certs.New(t, t.TempDir())
	for _, name := range []string{"server", "admin", "other"} {
		a.Sign(t, name, nil)
	}
	p := launch(t, "--dev", "--client-addr", settings.Off, "--secure-client-addr", "127.0.0.1:0", "--admin-addr", settings.Off,
		"--tls-cert", a.File("server.pem"), "--tls-key", a.File("server.key"), "--tls-ca", a.File("ca.pem"),
		"--x509-super", "CN=admin")
	for _, name := range []string{"other", "admin"} {
		conf := a.Trust()
		pair := must.Get(tls.LoadX509KeyPair(a.File(name+".pem"), a.File(name+".key")))(t)
		conf.Certificates = []tls.Certificate{pair}
		c := must.Get(zk.Dial(t.Context(), p.ready["secure"], zk.Options{TLS: conf}))(t)
		defer c.Close(context.Background())
		must.Get(c.Create(t.Context(), zk.Create{Path: "/" + name, ACL: zk.DigestACL(1, "third", "x")}))(t)
		_, err := c.Get(t.Context(), "/"+name)
		expect.Equal(t, err == nil, name == "admin", "%s reads a node of a third user: %v", name, err)
	}
}
