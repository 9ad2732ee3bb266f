package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// doctor at a port of another kind does not advise the user to give the cluster up.
func TestWrongPortIsNoLostMajority(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	out, errs, code := runIn(t, nil, "doctor", "-S", web.Listener.Addr().String(), "--connect-timeout", "5")
	if code != call.ExitNo || !strings.Contains(out, "no usable session") || strings.Contains(errs, "recover") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	gone := must.Refused(t)
	if _, errs, _ = runIn(t, nil, "doctor", "-S", gone, "--connect-timeout", "20"); strings.Contains(errs,
		"recover") || !strings.Contains(errs, "name all servers") {
		t.Errorf("one server of perhaps several is refused:\n%s", errs)
	}
	if _, errs, _ = runIn(t, nil, "doctor", "-S", gone+",127.0.0.2:1", "--connect-timeout",
		"20"); !strings.Contains(errs, "Start them") || !strings.Contains(errs, "recover") {
		t.Errorf("no server runs, and the way out is not told:\n%s", errs)
	}
}

// doctor names the actual cause, and gives no harmful advice.
func TestDoctorNamesTheCause(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // silent like a stopped process
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
		if code != call.ExitNo || !strings.Contains(out, c.want) || strings.Contains(errs, "recover") {
			t.Errorf("%v: exit code %d, no %q in\n%s%s", c.args, code, c.want, out, errs)
		}
	}
}
