package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// If the port belongs to another program, doctor does not advise the user to give up the cluster.
func TestWrongPortIsNoLostMajority(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	out, errs, code := runIn(t, nil, "doctor", "-S", web.Listener.Addr().String(), "--connect-timeout", "5")
	expect.Equal(t, code, call.ExitNo, "exit code; it says %s", errs)
	expect.Has(t, out, "no usable session", "exit code: standard output")
	expect.Lacks(t, errs, "recover")
	gone := must.Refused(t)
	_, errs, _ = runIn(t, nil, "doctor", "-S", gone, "--connect-timeout", "20")
	expect.Lacks(t, errs, "recover")
	expect.Has(t, errs, "name all servers", "standard error")
	_, errs, _ = runIn(t, nil, "doctor", "-S", gone+",127.0.0.2:1", "--connect-timeout", "20")
	expect.Has(t, errs, "Start them", "standard error")
	expect.Has(t, errs, "recover", "standard error")
}

// doctor names the actual cause, and gives no harmful advice.
func TestDoctorNamesTheCause(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections but never answers
	must.OK(t, err)
	defer silent.Close()
	full := must.Get(faultproxy.New(server(t)))(t)
	defer full.Close()
	full.Add(faultproxy.Rule{Kind: faultproxy.Reply, Match: func(f faultproxy.Frame) bool {
		return strings.Contains(f.Path, "zlock-doctor")
	}, Do: faultproxy.Fail, Code: -127})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-S", silent.Addr().String(), "--connect-timeout", "5"},
			"the server accepts connections but has not answered: its process is stopped"},
		{[]string{"-S", silent.Addr().String(), "--connect-timeout", "5", "--tls"},
			"accepts connections but does not answer within"},
		{[]string{"-S", server(t), "--tls"}, "does not speak TLS: leave out --tls"},
		{[]string{"-S", full.Addr(), "--chroot", "/"}, "below --disk-reserve"},
	} {
		out, errs, code := runIn(t, nil, append([]string{"doctor", "--connect-timeout", "20"}, c.args...)...)
		expect.Equal(t, code, call.ExitNo, "%v: exit code; it says %s", c.args, errs)
		expect.Has(t, out, c.want, "%v: standard output", c.args)
		expect.Lacks(t, errs, "recover", "%v", c.args)
	}
}
