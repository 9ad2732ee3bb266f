package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// In FIPS 140 mode a server refuses settings that need MD5, and in strict mode also those that need SHA-1. It
// says why. It still serves clients over TLS.
func TestFIPSModeRefusesWhatItCannotDo(t *testing.T) {
	for _, test := range []struct {
		// Name of the case; the cryptographic module for a new build, or "" for this test's binary.
		name, module string
	}{{"mode", ""}, {"GOFIPS140=v1.0.0", "v1.0.0"}} {
		t.Run(test.name, func(t *testing.T) {
			program := os.Args[0]
			if test.module != "" {
				if testing.Short() {
					t.Skip("builds the cryptography of Go again")
				}
				program = filepath.Join(t.TempDir(), "zlockd")
				build := exec.Command("go", "build", "-o", program, "..")
				build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFIPS140="+test.module)
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			fipsMode(t, program)
		})
	}
}

func fipsMode(t *testing.T, program string) {
	a := certs.New(t, t.TempDir())
	a.Sign(t, "server", nil)
	users := a.File("users")
	must.OK(t, os.WriteFile(users, []byte("ann:1\n"), 0o600))
	in := func(mode string, args ...string) *daemonProcess {
		p := prepare(append(args, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", settings.Off)...)
		p.cmd.Path = program
		p.cmd.Env = append(p.cmd.Env, "GODEBUG=fips140="+mode)
		return p
	}
	for _, test := range []struct {
		mode string
		args []string
		want []string
	}{
		{"on", []string{"--sasl-users", users}, []string{"--sasl-users", "DIGEST-MD5 is off", "no MD5"}},
		{"only", []string{"--sasl-users", users}, []string{"--sasl-users", "DIGEST-MD5 is off"}},
		{"only", []string{"--super-digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=", "--require-auth", "digest"},
			[]string{"--super-digest needs SHA-1", "--require-auth digest needs SHA-1", "--x509-super"}},
	} {
		for _, command := range [][]string{nil, {"check"}} {
			p := in(test.mode, append(command, test.args...)...)
			p.cmd.Stderr = nil
			out, err := p.cmd.CombinedOutput()
			expect.Fails(t, err, "fips140=%s %v: it starts", test.mode, test.args)
			for _, w := range test.want {
				if !strings.Contains(string(out), w) {
					t.Errorf("fips140=%s %q %v: no %q in\n%s", test.mode, command, test.args, w, out)
				}
			}
		}
	}

	p := in("only", "--secure-client-addr", "127.0.0.1:0", "--tls-cert", a.File("server.pem"), "--tls-key",
		a.File("server.key"))
	p.begin(t)
	p.wait(t)
	c := must.Get(wire.Open(p.ready["client"]))(t)
	defer c.Close()
	expect.Is(t, c.Auth("digest", "ann:1"), jute.AuthFailed, "scheme digest")
	must.Await(t, "the log tells why", time.Minute, func() bool {
		return strings.Contains(p.stderr.String(), "the scheme digest needs SHA-1")
	})
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	nc := must.Get(tls.Dial("tcp", p.ready["secure"], &tls.Config{RootCAs: roots}))(t)
	s := wire.New(nc)
	defer s.Close()
	must.OK(t, s.Connect(wire.NewSession(10_000)))
	must.Get(s.Create("/a", []byte("x"), jute.FlagEphemeral))(t)
	b, _, err := s.GetData("/a", false)
	expect.OK(t, err)
	expect.Equal(t, string(b), "x", "over TLS")
	must.OK(t, s.CloseSession())
	code := p.stop(t)
	expect.Equal(t, code, exitOK, "exit code")
	expect.Lacks(t, p.stderr.String(), "panic")
}
