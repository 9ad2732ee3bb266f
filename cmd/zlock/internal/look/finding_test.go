package look

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestServersAreComparedWithTheMembers(t *testing.T) {
	const config = "server.1=127.0.0.1:2888:3888:participant;127.0.0.1:2181\n" +
		"server.2=127.0.0.2:2888:3888:participant;0.0.0.0:2182\n" +
		"server.3=127.0.0.3:2888:3888;2183\nversion=100000000"
	if got, want := clientAddrs(config), []string{"127.0.0.1:2181", "127.0.0.2:2182",
		"127.0.0.3:2183"}; !slices.Equal(got, want) {
		t.Fatalf("the members serve at %q, not %q", got, want)
	}
	got := clientAddrs("server.1=a:1:2;127.0.0.1:2181\nserver.2=b:1:2:participant\n")
	expect.That(t, got == nil, "not all members say where: %q", got)
	found := []finding{
		{Server: "127.0.0.1:2181", Version: "1.0.0", config: config},
		{Server: "127.0.0.2:2182", Version: "1.1.0"},
		{Server: "127.0.0.9:2181", unreachable: true},
	}
	list := []string{"localhost:2181", "127.0.0.2:2182", "127.0.0.9:2181"}
	wrong, worth := compare(t.Context(), found, list)
	if expect.Equal(t, len(wrong), 1, "wrong: %v", wrong) {
		expect.That(t, strings.HasPrefix(wrong[0], "127.0.0.9:2181 is not a member"), "wrong: %q", wrong)
	}
	if expect.Equal(t, len(worth), 2, "worth knowing: length of %v", worth) {
		expect.Has(t, worth[0], "1.0.0 (127.0.0.1:2181), 1.1.0 (127.0.0.2:2182)", "worth knowing: worth")
		expect.That(t, strings.HasPrefix(worth[1], "127.0.0.3:2183 is a member, but"), "worth knowing: %q", worth)
	}
}

func TestPortForServersIsNoPortForClients(t *testing.T) {
	const config = "server.1=127.0.0.1:2888:3888:participant;127.0.0.1:2181\n"
	wrong, _ := compare(t.Context(), []finding{{Server: "127.0.0.1:2181", config: config},
		{Server: "127.0.0.1:2888", unreachable: true}}, []string{"127.0.0.1:2181", "127.0.0.1:2888"})
	if expect.Equal(t, len(wrong), 1, "of a peer port: length of %v", wrong) {
		expect.Has(t, wrong[0], "127.0.0.1:2888 is a port at which members talk to each other",
			"of a peer port: wrong")
	}
}

// The list of members has one port of each server, and TLS is served at another one. So only the hosts are
// compared.
func TestServersWithTLSAreComparedByTheirHosts(t *testing.T) {
	const config = "server.1=127.0.0.1:2888:3888;127.0.0.1:2181\nserver.2=127.0.0.2:2888:3888;127.0.0.2:2181\n"
	end := time.Now().Add(time.Hour)
	found := []finding{{Server: "127.0.0.1:2281", config: config, Certificate: &end}, {Server: "127.0.0.9:2281",
		Certificate: &end}}
	wrong, worth := compare(t.Context(), found, []string{"127.0.0.1:2281", "127.0.0.9:2281"})
	if expect.Equal(t, len(wrong), 1, "wrong: %v", wrong) {
		expect.That(t, strings.HasPrefix(wrong[0], "127.0.0.9:2281 is not a member"), "wrong: %q", wrong)
	}
	if expect.Equal(t, len(worth), 1, "worth knowing: length of %v", worth) {
		expect.That(t, strings.HasPrefix(worth[0], "127.0.0.2:2181 is a member, but"), "worth knowing: %q", worth)
	}
}

func TestFindingsAreJudged(t *testing.T) {
	var f finding
	f.readSrvr("Zookeeper version: 3.9.3-zlockd-1.2.0, built on 11/21/2026 05:00 GMT\nLatency min/avg/max: " +
		"0/0.0/0\nMode: follower\n")
	f.readMntr("zk_version\t3.9.3\nzk_avg_fsynctime\t312.5\n" +
		"zk_open_file_descriptor_count\t900\nzk_max_file_descriptor_count\t1000\n")
	expect.Equal(t, f.Kind, "zlockd", "kind")
	expect.Equal(t, f.Version, "1.2.0", "version")
	expect.Equal(t, f.Mode, "follower", "mode")
	expect.Equal(t, *f.Sync, 312.5, "sync")
	soon := time.Now().Add(73 * time.Hour)
	f.Containers, f.Offset, f.Certificate = true, -7, &soon
	f.judge(false, 0)
	for _, want := range []string{"clock is 7.0s behind", "certificate ends in 3 days"} {
		expect.Has(t, f.Note, want, "does not say")
	}
	table, plain := f.cells(false), f.cells(true)
	expect.Equal(t, table[len(table)-1], plain[9], "table")
	expect.Equal(t, len(table), len(plain), "length of %v", table)
	well := finding{Containers: true, Kind: "zlockd", OpenFiles: 900, MaxFiles: 1000, Sync: f.Sync}
	if well.judge(false, 0); well.Note != "" {
		t.Errorf("a note on nothing: %s", well.Note)
	}
	table = (&finding{Kind: "zlockd", Server: "h:1", Mode: "leader"}).cells(false)
	expect.Equal(t, fmt.Sprint(table[:3]...), "h:1zlockdleader", "first cells")
}

// doctor repeats a server's health report literally. It ignores a report that comes from another server.
func TestDoctorMergesWhatServersSayOfThemselves(t *testing.T) {
	text := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, text)
	}))
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	for _, tc := range []struct{ name, kind, addr, text, problem, note string }{
		{"ill", "zlockd", addr, `{"reasons":["disk full","x"],"notices":["one","two"],"uptime_ms":60500}`,
			"disk full; x", "one; two"},
		{"well", "zlockd", addr, `{"reasons":[],"notices":[],"uptime_ms":60500}`, "", ""},
		{"another server", "zlockd", addr, `{"reasons":["disk full"],"uptime_ms":50000}`, "",
			"another server answers"},
		{"a later server", "zlockd", addr, `{"reasons":["disk full"],"uptime_ms":90000}`, "",
			"another server answers"},
		{"no answer", "zlockd", must.Refused(t), "", "", "refused (name its admin listener"},
		{"another program", "zlockd", addr, "hello", "", "is not understood"},
		{"a ZooKeeper", "zookeeper", addr, `{"reasons":["disk full"],"uptime_ms":60500}`, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text = tc.text
			c := &call.Call{App: &call.App{Stderr: io.Discard, Getenv: func(string) string { return "" }}}
			f := finding{Kind: tc.kind, uptime: time.Minute, asked: time.Now().Add(-time.Second)}
			must.OK(t, askHealth(t.Context(), c, &f, &connect.AdminFlags{}, tc.addr))
			expect.Equal(t, f.Problem, tc.problem, "problem")
			expect.Has(t, f.Note, tc.note, "note")
			expect.Equal(t, f.Note == "", tc.note == "", "whether there is no note in %q", f.Note)
		})
	}
}

// If the user names one admin listener, doctor asks its port on the host of each server. If the user names
// several listeners, the first one belongs to the first server, and so on.
func TestAdminListenerOfEachServer(t *testing.T) {
	servers := []string{"a:2181", "[::1]:2181", "c:2281"}
	for named, want := range map[string]string{
		"127.0.0.1:8181": "a:8181 [::1]:8181 c:8181",
		"https://x:99":   "https://a:99 https://[::1]:99 https://c:99",
		"x:1,y:2,z:3":    "x:1 y:2 z:3",
		"x:1,y:2":        "--admin-addr names 2 admin listeners for 3 servers: name one for each server, or only one",
		"x":              "--admin-addr: address x: missing port in address",
	} {
		got, err := adminsOf(servers, named)
		said := strings.Join(got, " ")
		if err != nil {
			said = err.Error()
		}
		expect.Equal(t, said, want, "for %q", named)
	}
}

// doctor says in a few words why it cannot reach a server. If it can, it says when the server's certificate
// ends.
func TestCausesAndCertificates(t *testing.T) {
	dir := t.TempDir()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	ends := time.Now().Add(10 * 24 * time.Hour).Truncate(time.Second)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key))(t)
	ca := filepath.Join(dir, "ca.pem")
	must.OK(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		0o600))
	serve := func(cfg *tls.Config) string {
		ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		t.Cleanup(func() { ln.Close() })
		if cfg != nil {
			ln = tls.NewListener(ln, cfg)
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				if s, ok := c.(*tls.Conn); ok {
					_ = s.HandshakeContext(context.Background())
				} else {
					_, _ = c.Write([]byte("not TLS at all"))
				}
				c.Close()
			}
		}()
		return ln.Addr().String()
	}
	secure := serve(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	plain := serve(nil)

	const limit = time.Minute
	for _, test := range []struct {
		flags  connect.Flags
		server string
		want   string
	}{
		{connect.Flags{}, plain, ""},
		{connect.Flags{}, must.Refused(t), "connection refused"},
		{connect.Flags{TLSFiles: connect.TLSFiles{CA: ca}}, secure, ""},
		{connect.Flags{TLSFiles: connect.TLSFiles{CA: ca}}, plain, "but does not speak TLS"},
		{connect.Flags{TLSFiles: connect.TLSFiles{TLS: true}}, secure, "name the authority with --tls-ca"},
	} {
		test.flags.ConnectTimeout = limit
		_, expires, err := word(t.Context(), &test.flags, test.server, "srvr")
		if test.want == "" {
			expect.OK(t, err, "%s", test.server)
			if test.flags.CA != "" && (expires == nil || !expires.Equal(ends)) {
				t.Errorf("the certificate ends at %v, not %v", expires, ends)
			}
			continue
		}
		if expect.Fails(t, err, "%s", test.server) {
			expect.Has(t, plainCause(err, limit), test.want, "%s: plain cause", test.server)
		}
	}
	for want, err := range map[string]error{
		"no such host": &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x",
			IsNotFound: true}},
		"cannot be looked":  &net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", Name: "x"}},
		"no answer within ": &net.OpError{Op: "dial", Err: context.DeadlineExceeded},
	} {
		expect.Has(t, plainCause(err, limit), want, "%v is told as", err)
	}
}

// If a server sends more than doctor reads, doctor closes the connection.
func TestDoctorHangsUp(t *testing.T) {
	const most = 256 << 10
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.ReadFull(c, make([]byte, 4))
		_, err = c.Write(make([]byte, most))
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		ended <- err
	}()
	f := connect.Flags{ConnectTimeout: time.Minute}
	answer, _, err := word(t.Context(), &f, ln.Addr().String(), "mntr")
	must.OK(t, err)
	expect.Equal(t, len(answer), most, "bytes read")
	select {
	case err := <-ended:
		expect.That(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET),
			"the connection ends by %v", err)
	case <-time.After(20 * time.Second):
		t.Error("the connection stays open")
	}
}
