package daemon

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
)

// checkReady asks the server with these settings, on this machine, whether it serves clients.
func (d *daemon) checkReady(s *settings.Settings) int {
	fail := func(format string, args ...any) int {
		fmt.Fprintf(d.stderr, "zlockd: not ready: "+format+"\n", args...)
		return exitFailed
	}
	host, port, err := net.SplitHostPort(s.AdminAddr)
	if err != nil || s.AdminAddr == settings.Off {
		return fail("--check-ready asks the admin port, which is %s: set --admin-addr", s.AdminAddr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme, conf := "http", &tls.Config{InsecureSkipVerify: true} // a port of this machine, which gets no secret
	if s.AdminFiles.Cert != "" {
		scheme = "https"
		own, err := tls.LoadX509KeyPair(s.AdminFiles.Cert, s.AdminFiles.Key)
		if err != nil {
			return fail("%v", err)
		}
		conf.Certificates = []tls.Certificate{own}
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: conf}}
	answer, err := client.Get(scheme + "://" + net.JoinHostPort(host, port) + "/ready")
	if err != nil {
		return fail("%v", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return fail("%s", why)
	}
	return exitOK
}
