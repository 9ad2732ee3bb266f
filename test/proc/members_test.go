package proc

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree/acl"
)

const password = "secret"

// certificates() makes an authority and a certificate for each server. It returns the flags for a server, in
// which {id} stands for the server's id.
func certificates(t *testing.T, servers int) []string {
	t.Helper()
	dir := t.TempDir()
	caKey, ca := certificate(t, dir, "ca", nil, nil)
	for id := 1; id <= servers; id++ {
		certificate(t, dir, fmt.Sprintf("zlockd-%d", id), ca, caKey)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	return []string{"--peer-tls-cert", file("zlockd-{id}.pem"), "--peer-tls-key", file("zlockd-{id}.key"),
		"--peer-tls-ca", file("ca.pem")}
}

// certificate() writes a key and its certificate. The authority `ca` signs the certificate. If `ca` is nil,
// the certificate is an authority itself.
func certificate(t *testing.T, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (
	*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{
		CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: ca == nil,
		BasicConstraintsValid: ca == nil,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ca == nil {
		ca, caKey = template, key
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey))(t)
	raw := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name +
		".key": {Type: "PRIVATE KEY", Bytes: raw}} {
		must.OK(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
	signed := must.Get(x509.ParseCertificate(der))(t)
	return key, signed
}

// ensemble is three servers that run and, from the fourth on, some that could join them.
type ensemble struct {
	*cluster.Ensemble
	t    *testing.T
	auth string // file with the super user's password
}

func startMembers(t *testing.T, spare int, flags ...string) *ensemble {
	t.Helper()
	e := cluster.Run(t, cluster.Options{Nodes: 3, Spare: spare,
		Flags: append([]string{"--super-digest", acl.DigestID("super:" + password).ID}, flags...)})
	auth := filepath.Join(e.Dir, "auth")
	must.OK(t, os.WriteFile(auth, []byte("digest:super:"+password+"\n"), 0o600))
	return &ensemble{e, t, auth}
}

// member() runs zlock member against a server.
func (e *ensemble) member(at *cluster.Server, args ...string) (out, errs string, code int) {
	e.t.Helper()
	return e.run(append([]string{"member", "--admin-addr", at.Admin, "--auth-file", e.auth}, args...)...)
}

func (e *ensemble) run(args ...string) (out, errs string, code int) {
	e.t.Helper()
	zlock := cluster.Zlock(e.t)
	cmd := exec.Command(zlock, args...)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	var o, s bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &s
	err := cmd.Run()
	var exit *exec.ExitError
	must.That(e.t, err == nil || errors.As(err, &exit), "%v", err)
	text := o.String() + s.String()
	expect.That(e.t, !strings.Contains(text, password), "zlock %v shows the password: %s", args, text)
	return o.String(), s.String(), cmd.ProcessState.ExitCode()
}

// must() runs zlock member and returns its output. The test ends if the command fails.
func (e *ensemble) must(at *cluster.Server, args ...string) string {
	e.t.Helper()
	out, errs, code := e.member(at, args...)
	must.Equal(e.t, code, 0, "zlock member %v: exit code; it says %s", args, errs)
	must.Lacks(e.t, errs, "zlock: member:", "zlock member %v", args)
	return out
}

// post() requests a change of the members as curl does. It does not wait until the change has taken effect.
func (e *ensemble) post(at *cluster.Server, body string) {
	e.t.Helper()
	req := must.Get(http.NewRequest(http.MethodPost, "http://"+at.Admin+"/members", strings.NewReader(body)))(
		e.t)
	req.Header.Set("Authorization", "Digest super:"+password)
	resp := must.Get(http.DefaultClient.Do(req))(e.t)
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	must.Equal(e.t, resp.StatusCode, http.StatusOK, "%s: %s", body, answer)
}

// roles() returns the id and role of each member, as a server lists them. The leader counts as a voter.
func (e *ensemble) roles(at *cluster.Server) string {
	e.t.Helper()
	var roles []string
	for line := range strings.Lines(e.must(at, "list", "-o", "plain")) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if f[3] == "leader" {
			f[3] = "voter"
		}
		roles = append(roles, f[0]+" "+f[3])
	}
	return strings.Join(roles, ", ")
}

// dialZK opens a session at the servers and, if `user` is not empty, logs in.
func dialZK(t *testing.T, user string, servers ...*cluster.Server) *zk.Conn {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Client)
	}
	c, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)),
		zk.WithLogInfo(false))
	must.OK(t, err)
	t.Cleanup(c.Close)
	for limit := time.After(20 * time.Second); ; {
		select {
		case ev := <-events:
			if ev.State != zk.StateHasSession {
				continue
			}
			if user != "" {
				must.OK(t, c.AddAuth("digest", []byte(user)))
			}
			return c
		case <-limit:
			t.Fatalf("no session with %v", addrs)
		}
	}
}

// shownConfig returns what a server has at /zookeeper/config: the servers with their roles, and the version.
func shownConfig(t *testing.T, at *cluster.Server) (roles, version string) {
	t.Helper()
	b, _ := must.Get2(dialZK(t, "", at).Get("/zookeeper/config"))(t)
	return configRoles(string(b))
}

func configRoles(text string) (roles, version string) {
	var list []string
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "version" {
			return strings.Join(list, ", "), value
		}
		role := "non-voter"
		if strings.Contains(value, ":participant") {
			role = "voter"
		}
		list = append(list, strings.TrimPrefix(key, "server.")+" "+role)
	}
	return strings.Join(list, ", "), ""
}
