package daemon

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// ticketPort returns the address of the port for tickets that the log of p names.
func (p *daemonProcess) ticketPort(t *testing.T) string {
	t.Helper()
	p.stderr.Await(t, "serving tickets")
	m := regexp.MustCompile(`serving tickets.*addr"?[=:]"?([0-9.:]+)`).FindStringSubmatch(p.stderr.String())
	must.That(t, m != nil, "the log names no port for tickets: %s", p.stderr)
	return m[1]
}

// askTickets sends a request and returns the code of its answer. It returns 0 if no answer comes.
func askTickets(t *testing.T, url, what, secret, bearer string, conf *tls.Config) int {
	t.Helper()
	method, path, _ := strings.Cut(what, " ")
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url+path, nil))(t)
	r.Header.Set("Zlock-Ticket", secret)
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: conf}}
	resp, err := c.Do(r)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// The port for tickets speaks only TLS, even if --dev chooses its address. It accepts a token or a
// certificate of the authority, and no certificate of another authority.
func TestTicketPortSpeaksTLS(t *testing.T) {
	a := certs.New(t, t.TempDir())
	for _, name := range []string{"server", "ann", "ben"} {
		a.Sign(t, name, nil)
	}
	stranger := certs.New(t, t.TempDir())
	stranger.Sign(t, "ann", nil)
	must.OK(t, os.WriteFile(a.File("tokens"), fmt.Appendf(nil, "ci %x /ci\n", sha256.Sum256([]byte("of-ci"))),
		0o600))
	as := func(by *certs.Authority, name string) *tls.Config {
		conf := a.Trust()
		pair := must.Get(tls.LoadX509KeyPair(by.File(name+".pem"), by.File(name+".key")))(t)
		// The test sends the certificate by itself. A client would not send one of an authority that the
		// server does not name.
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &pair, nil
		}
		return conf
	}
	files := []string{"--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", settings.Off,
		"--ticket-tls-cert", a.File("server.pem"), "--ticket-tls-key", a.File("server.key"),
		"--ticket-tls-ca", a.File("ca.pem"), "--ticket-tokens", a.File("tokens")}
	for name, more := range map[string][]string{"an address": {"--ticket-addr", "127.0.0.1:0"}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			addr := launch(t, append(more, files...)...).ticketPort(t)
			const one = "0123456789abcdefghijklmn"
			const post = "POST /v1/locks/ops"
			url := "https://" + addr
			expect.Equal(t, askTickets(t, "http://"+addr, post, one, "of-ci", nil), 400, "in clear text")
			expect.Equal(t, askTickets(t, url, post, one, "", a.Trust()), 401, "without an identity")
			expect.Equal(t, askTickets(t, url, post, one, "", as(stranger, "ann")), 0, "of another authority")
			expect.Equal(t, askTickets(t, url, post, one, "", as(a, "ann")), 201, "with a certificate")
			expect.Equal(t, askTickets(t, url, post, one, "", as(a, "ben")), 404, "another's ticket")
			give := "DELETE /v1/locks/ops"
			expect.Equal(t, askTickets(t, url, give, one, "", as(a, "ben")), 404, "another's end")
			expect.Equal(t, askTickets(t, url, post, one, "of-ci", a.Trust()), 403, "a path of others")
			expect.Equal(t, askTickets(t, url, post, one, "guess", as(a, "ann")), 401, "a wrong token")
			below := "POST /v1/locks/ci/a"
			expect.Equal(t, askTickets(t, url, below, one+"o", "of-ci", a.Trust()), 201, "a token")
			expect.Equal(t, askTickets(t, url, post, one, "", as(a, "ann")), 200, "the ticket lives")
		})
	}
}

// At SIGHUP the server reads the tokens again. From then on it refuses a caller whose line is gone. A file
// with a mistake changes nothing.
func TestTicketTokensAreReadAgain(t *testing.T) {
	file := t.TempDir() + "/tokens"
	write := func(lines ...string) {
		must.OK(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	line := func(name string) string { return fmt.Sprintf("%s %x /", name, sha256.Sum256([]byte("of-"+name))) }
	write(line("ci"))
	p := launch(t, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", settings.Off, "--ticket-addr", "127.0.0.1:0",
		"--ticket-tokens", file)
	url := "http://" + p.ticketPort(t)
	n := 0
	code := func(name string) int {
		n++
		secret := fmt.Sprintf("0123456789abcdefghijklmn%d", n)
		return askTickets(t, url, "POST /v1/locks/q", secret, "of-"+name, nil)
	}
	expect.Equal(t, code("ci"), 201, "ci before")
	expect.Equal(t, code("ops"), 401, "ops before")
	reload := func(says string) {
		t.Helper()
		p.cmd.Process.Signal(syscall.SIGHUP)
		p.stderr.Await(t, says)
	}
	write(line("ops"), "ci 12 /")
	reload("line 2: the hash of ci")
	expect.Equal(t, code("ci"), 202, "ci after a file with a mistake")
	expect.Equal(t, code("ops"), 401, "ops after a file with a mistake")
	write(line("ops"))
	reload("SIGHUP: the configuration was read again")
	expect.Equal(t, code("ci"), 401, "ci, whose line is gone")
	expect.Equal(t, code("ops"), 202, "ops, whose line is new")
	write("# none")
	p.cmd.Process.Signal(syscall.SIGHUP)
	for end := time.Now().Add(time.Minute); code("ops") != 401; time.Sleep(10 * time.Millisecond) {
		must.That(t, time.Now().Before(end), "a file without tokens lets callers in")
	}
	expect.That(t, !strings.Contains(p.stderr.String(), "of-ci"), "the log has a token")
}

// Servers for development can start at the same moment. One of them serves tickets at the documented port, if
// that port is free. Each of the others uses a port of its own.
func TestServersForDevelopmentStartTogether(t *testing.T) {
	t.Parallel()
	var all []*daemonProcess
	for range 8 {
		all = append(all, begin(t, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", settings.Off))
	}
	ports := map[string]bool{}
	for _, p := range all {
		p.wait(t)
		ports[p.ticketPort(t)] = true
	}
	expect.Equal(t, len(ports), len(all), "ports for tickets")
}
