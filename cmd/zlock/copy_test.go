package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// If a backup ends too early, zlock says that its file was not written, or that its output is incomplete.
func TestBackupToOutputCutShortIsSaidToBe(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "no backup")
	}))
	defer srv.Close()
	env := map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")}
	for file, want := range map[string]string{"-": "the output is incomplete: ",
		filepath.Join(t.TempDir(), "f"): "nothing was written: "} {
		_, errs, code := runIn(t, env, "backup", file)
		expect.Equal(t, code, call.ExitNo, "%s: exit code; it says %s", file, errs)
		expect.Has(t, errs, want, "%s: standard error", file)
	}
}

// A backup replaces a file only if the user asks for that. It never replaces anything but a regular file: the
// rename would remove a device or a pipe.
func TestBackupReplacesNothing(t *testing.T) {
	asked, comes := 0, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if comes != "" { // another program makes the file while the backup arrives
			expect.OK(t, os.WriteFile(comes, []byte("good"), 0o600))
		}
		must.OK(t, state.New("c").StartSnapshot(state.Position{Index: 7, Term: 3}).Write(w, func(read func()) { read() }))
	}))
	defer srv.Close()
	env := map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")}
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	must.OK(t, os.WriteFile(file, []byte("good"), 0o600))
	for _, tc := range []struct {
		name, says string
		args       []string
		code       int
	}{
		{"a file", "is there already; --force replaces it", []string{file}, call.ExitNo},
		{"a directory", "is not a regular file", []string{"--force", dir}, call.ExitNo},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, errs, code := runIn(t, env, append([]string{"backup"}, tc.args...)...)
			expect.Equal(t, code, tc.code, "exit code")
			expect.Has(t, errs, tc.says, "what it says")
			expect.Equal(t, asked, 0, "requests for the state")
			expect.Equal(t, string(must.Get(os.ReadFile(file))(t)), "good", "the file")
		})
	}
	comes = filepath.Join(dir, "other")
	_, errs, code := runIn(t, env, "backup", comes)
	expect.Equal(t, code, call.ExitNo, "exit code for a file that appears meanwhile")
	expect.Has(t, errs, "nothing was written: "+comes+" is there already; --force replaces it")
	expect.Equal(t, string(must.Get(os.ReadFile(comes))(t)), "good", "the file that appears")
	comes = ""
	expect.Equal(t, len(must.Get(os.ReadDir(dir))(t)), 2, "files")
	_, errs, code = runIn(t, env, "backup", filepath.Join(dir, "new"))
	expect.Equal(t, code, call.ExitOK, "exit code for a new file, which says %s", errs)
	_, errs, code = runIn(t, env, "backup", "--force", file)
	expect.Equal(t, code, call.ExitOK, "exit code with --force, which says %s", errs)
	expect.That(t, string(must.Get(os.ReadFile(file))(t)) != "good", "the file was not replaced")
}

// zlock reports a finished restore in one line or in JSON. It repeats a refusal in the server's words.
func TestRestoreTellsWhatCameOfIt(t *testing.T) {
	refuses, breaks := false, false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/members":
			io.WriteString(w, `{"v":1,"cluster":"0123456789abcdef","members":{}}`)
		case refuses:
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"error":"another restore is under way"}`)
		case breaks:
			panic(http.ErrAbortHandler)
		default:
			_, err := io.Copy(io.Discard, r.Body)
			if expect.OK(t, err, "asked for %s", r.URL) {
				expect.Equal(t, r.URL.Path, "/commands/restore", "asked for %s: path", r.URL)
				expect.Equal(t, r.URL.RawQuery, "keep-sessions=true", "asked for %s: query", r.URL)
			}
			io.WriteString(w, `{"v":1,"last_zxid":"0x100000007","nodes":5,"sessions":2,"ended":3}`)
		}
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "backup")
	f := must.Get(os.Create(file))(t)
	must.OK(t, state.New("c").StartSnapshot(state.Position{Index: 5, Term: 2}).Write(f, func(read func()) {
		read()
	}))
	must.OK(t, f.Close())
	restore := func(options ...string) (out, errs string, code int) {
		env := map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")}
		return runIn(t, env, append([]string{"restore", "--keep-sessions", "--yes", "01234567", file},
			options...)...)
	}
	out, errs, code := restore()
	expect.That(t, regexp.MustCompile(
		`^zlock: restored: 5 nodes, zxid 0x100000007, in \S+; 3 sessions ended, 2 continue\n$`).MatchString(
		errs), "%q %q %d", out, errs, code)
	expect.Equal(t, out, "", "standard output")
	expect.Equal(t, code, 0, "exit code; it says %s", errs)
	out, errs, code = restore("-o", "json")
	expect.That(t, regexp.MustCompile(`"zxid":"0x100000007","nodes":5,"sessions":2,"ended":3,"seconds":\d`).MatchString(
		out), "%q %q %d", out, errs, code)
	expect.Equal(t, errs, "", "standard error")
	expect.Equal(t, code, 0, "exit code; it says %s", errs)
	refuses = true
	out, errs, code = restore()
	expect.Equal(t, code, call.ExitNo, "refused: exit code; it says %s", errs)
	expect.Has(t, errs, "another restore is under way", "refused: standard error")
	expect.Equal(t, out, "", "refused: standard output")
	refuses, breaks = false, true
	_, errs, code = restore()
	expect.Equal(t, code, call.ExitNoSession, "the answer is lost: exit code; it says %s", errs)
	expect.Has(t, errs, "the restore may still take place", "the answer is lost: standard error")
}

// zlock ca signs the certificates that servers and clients need. Only their owner can read the keys, and no
// file is overwritten.
func TestCAMakesCertificatesForACluster(t *testing.T) {
	dir := t.TempDir()
	ca := func(code int, args ...string) string {
		t.Helper()
		out, errs, got := runIn(t, nil, append([]string{"ca", "--dir", dir}, args...)...)
		must.Equal(t, got, code, "%v: exit %d: %s%s", args, got, out, errs)
		return out + errs
	}
	expect.Has(t, ca(call.ExitFailed, "server", "1", "--host", "a"), "zlock ca init", "without an authority")
	ca(call.ExitOK, "init")
	ca(call.ExitOK, "server", "2", "--host", "b,10.0.0.2")
	ca(call.ExitOK, "client", "ann")
	roots := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	must.OK(t, err)
	must.That(t, roots.AppendCertsFromPEM(text), "ca.pem: %v", err)
	for _, tc := range []struct {
		file, name string
		use        x509.ExtKeyUsage
	}{
		{"peer2", "zlockd-2", x509.ExtKeyUsageServerAuth}, {"peer2", "zlockd-2", x509.ExtKeyUsageClientAuth},
		{"server2", "b", x509.ExtKeyUsageServerAuth}, {"server2", "10.0.0.2", x509.ExtKeyUsageServerAuth},
		{"ann", "", x509.ExtKeyUsageClientAuth},
	} {
		pair := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, tc.file+".pem"),
			filepath.Join(dir, tc.file+".key")))(t)
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: tc.name,
			KeyUsages: []x509.ExtKeyUsage{tc.use}}); err != nil {
			t.Errorf("%s as %s: %v", tc.file, tc.name, err)
		}
		info, err := os.Stat(filepath.Join(dir, tc.file+".key"))
		if expect.OK(t, err, "the key of %s", tc.file) {
			expect.Equal(t, info.Mode().Perm(), 0o600, "the key of %s: mode", tc.file)
		}
		names := pair.Leaf.DNSNames
		expect.That(t, tc.file != "peer2" || len(names) == 1, "a peer has one name, not %q", names)
	}
	before := string(text)
	expect.Has(t, ca(call.ExitFailed, "init"), "nothing was overwritten", "a second authority")
	if text, _ := os.ReadFile(filepath.Join(dir, "ca.pem")); string(text) != before {
		t.Error("the authority was overwritten")
	}
	for _, args := range [][]string{{"server", "0", "--host", "a"}, {"server", "255", "--host", "a"},
		{"server", "1"},
		{"server"}, {"init", "x"}, {"client", "../x"}, {"other", "x"}} {
		ca(call.ExitFailed, args...)
	}
}

// A client's certificate replaces no other certificate. zlock ca makes no certificate that would already have
// expired.
func TestCAReplacesNoOtherCertificate(t *testing.T) {
	dir := t.TempDir()
	ca := func(args ...string) (string, int) {
		t.Helper()
		out, errs, code := runIn(t, nil, append([]string{"ca", "--dir", dir}, args...)...)
		return out + errs, code
	}
	for _, args := range [][]string{{"init"}, {"server", "1", "--host", "a"}, {"client", "ann"}} {
		text, code := ca(args...)
		must.Equal(t, code, call.ExitOK, "%v: %s", args, text)
	}
	for _, name := range []string{"ca", "server1", "peer1"} {
		file := filepath.Join(dir, name+".pem")
		before := must.Get(os.ReadFile(file))(t)
		text, code := ca("client", name, "--renew")
		expect.Equal(t, code, call.ExitFailed, "exit code of client %s --renew", name)
		expect.Has(t, text, "another name")
		expect.Equal(t, string(must.Get(os.ReadFile(file))(t)), string(before), "%s.pem", name)
	}
	_, code := ca("client", "server9")
	expect.Equal(t, code, call.ExitFailed, "exit code: server 9 may come later")
	for _, days := range []string{"0", "-1", "99999999999"} {
		text, code := ca("client", "bob", "--days", days)
		expect.Equal(t, code, call.ExitFailed, "exit code with --days %s", days)
		expect.Has(t, text, "--days "+days+" is not a number from 1 to ")
	}
}

// If some of the files cannot be made, zlock ca removes the others, so that the same command works later.
func TestCALeavesNoPartOfItsFiles(t *testing.T) {
	dir := t.TempDir()
	ca := func(args ...string) int {
		t.Helper()
		_, _, code := runIn(t, nil, append([]string{"ca", "--dir", dir}, args...)...)
		return code
	}
	files := func() (names []string) {
		for _, e := range must.Get(os.ReadDir(dir))(t) {
			names = append(names, e.Name())
		}
		return names
	}
	must.Equal(t, ca("init"), call.ExitOK)
	in := filepath.Join(dir, "server1.pem") // the last file that the command makes
	must.OK(t, os.WriteFile(in, []byte("other"), 0o600))
	expect.Equal(t, ca("server", "1", "--host", "a"), call.ExitFailed)
	expect.List(t, files(), []string{"ca.key", "ca.pem", "server1.pem"})
	expect.Equal(t, string(must.Get(os.ReadFile(in))(t)), "other", "the file that was there")
	must.OK(t, os.Remove(in))
	expect.Equal(t, ca("server", "1", "--host", "a"), call.ExitOK)
	expect.List(t, files(), []string{"ca.key", "ca.pem", "peer1.key", "peer1.pem", "server1.key", "server1.pem"})
	for name, mode := range map[string]os.FileMode{"server1.key": 0o600, "server1.pem": 0o644} {
		expect.Equal(t, must.Get(os.Stat(filepath.Join(dir, name)))(t).Mode().Perm(), mode, "mode of %s", name)
	}
}

// A certificate ends no later than its authority. zlock tells the user whether to renew the certificate or
// the authority.
func TestCACertificatesEndWithTheirAuthority(t *testing.T) {
	const day = 24 * time.Hour
	for name, tc := range map[string]struct {
		left time.Duration // time until the authority ends
		days string
		code int
		want string
	}{
		"before it":    {20 * day, "10", call.ExitOK, ""},
		"with it":      {20 * day, "30", call.ExitOK, "peer1.pem ends with its authority, on "},
		"it has ended": {-time.Minute, "10", call.ExitFailed, "the authority ended on "},
	} {
		t.Run(name, func(t *testing.T) {
			a := &certs.Authority{Dir: t.TempDir(), Life: tc.left}
			a.Cert, a.Key = a.Sign(t, "ca", nil)
			_, errs, code := runIn(t, nil, "ca", "--dir", a.Dir, "server", "1", "--host", "a", "--days",
				tc.days)
			must.Equal(t, code, tc.code, "exit code: %s", errs)
			expect.Has(t, errs, tc.want)
			expect.Equal(t, errs == "", tc.want == "", "whether nothing is told: %s", errs)
			if code == call.ExitOK {
				leaf := must.Get(tls.LoadX509KeyPair(a.File("peer1.pem"), a.File("peer1.key")))(t).Leaf
				expect.That(t, !leaf.NotAfter.After(a.Cert.NotAfter), "it ends at %v, its authority at %v",
					leaf.NotAfter, a.Cert.NotAfter)
			}
		})
	}
}

// A renewed certificate has the names and the key of the old one, a new end, and the same authority.
func TestCARenewsCertificates(t *testing.T) {
	dir := t.TempDir()
	ca := func(code int, args ...string) string {
		t.Helper()
		out, errs, got := runIn(t, nil, append([]string{"ca", "--dir", dir}, args...)...)
		must.Equal(t, got, code, "exit code of %v: %s%s", args, out, errs)
		return out + errs
	}
	read := func(name string) tls.Certificate {
		t.Helper()
		return must.Get(tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")))(t)
	}
	ca(call.ExitOK, "init")
	ca(call.ExitOK, "server", "2", "--host", "b,10.0.0.2", "--days", "9")
	ca(call.ExitOK, "client", "ann", "--days", "9")
	expect.Has(t, ca(call.ExitFailed, "server", "3", "--renew"), "server3.pem",
		"what is not there to be renewed")
	expect.Has(t, ca(call.ExitFailed, "server", "2", "--host", "b"), "--renew", "a second certificate")
	old := map[string]tls.Certificate{}
	for _, name := range []string{"peer2", "server2", "ann", "ca"} {
		old[name] = read(name)
	}
	ca(call.ExitOK, "server", "2", "--renew")
	ca(call.ExitOK, "client", "ann", "--renew")
	ca(call.ExitOK, "init", "--renew")
	roots := x509.NewCertPool()
	roots.AddCert(read("ca").Leaf)
	for name, was := range old {
		t.Run(name, func(t *testing.T) {
			is := read(name)
			expect.Equal(t, string(is.Leaf.RawSubject), string(was.Leaf.RawSubject), "subject")
			expect.Equal(t, strings.Join(is.Leaf.DNSNames, " "), strings.Join(was.Leaf.DNSNames, " "), "DNS names")
			expect.Equal(t, len(is.Leaf.IPAddresses), len(was.Leaf.IPAddresses), "addresses")
			expect.Equal(t, string(is.Leaf.RawSubjectPublicKeyInfo), string(was.Leaf.RawSubjectPublicKeyInfo), "key")
			expect.That(t, is.Leaf.SerialNumber.Cmp(was.Leaf.SerialNumber) != 0, "the certificate is the old one")
			for _, c := range []*x509.Certificate{is.Leaf, was.Leaf} {
				if c.IsCA {
					continue // a renewed certificate keeps its authority
				}
				_, err := c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
				expect.OK(t, err, "the renewed authority signs it")
			}
		})
	}
	ca(call.ExitOK, "server", "2", "--renew", "--host", "c")
	expect.Equal(t, strings.Join(read("server2").Leaf.DNSNames, " "), "c", "DNS names after --renew --host c")
}
