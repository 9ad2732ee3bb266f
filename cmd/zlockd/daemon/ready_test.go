package daemon

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/expect"
)

// zlockd --check-ready, the health check of the image, reports the answer of /ready.
func TestCheckReadyAsksTheAdminPort(t *testing.T) {
	for _, c := range []struct {
		status, code int
		told         string
	}{{200, exitOK, ""}, {503, exitFailed, "no leader"}} {
		// The certificate has expired, as it may while a server runs. That does not matter to --check-ready.
		dir := t.TempDir()
		ca := certs.New(t, dir)
		ca.Life = -time.Hour
		ca.Sign(t, "server", nil)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			expect.Equal(t, r.URL.Path, "/ready", "asked")
			w.WriteHeader(c.status)
			w.Write([]byte("no leader"))
		}))
		var out, errs bytes.Buffer
		d := &daemon{stdout: &out, stderr: &errs}
		if code := d.program().Main([]string{"--check-ready", "--admin-addr", srv.Listener.Addr().String(),
			"--secure-client-addr", "127.0.0.1:0", "--tls-cert", ca.File("server.pem"), "--tls-key",
			ca.File("server.key")}); code != c.code ||
			!strings.Contains(errs.String(), c.told) || c.told == "" && errs.Len() > 0 {
			t.Errorf("status %d: exit code %d, %q", c.status, code, errs.String())
		}
		srv.Close()
	}
}
