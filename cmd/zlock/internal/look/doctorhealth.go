package look

import (
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// health is the health report of a zlockd. The server itself decides what is wrong, and says what to do.
type health struct {
	Reasons []string `json:"reasons"`
	Notices []string `json:"notices"`
	Uptime  int64    `json:"uptime_ms"`
}

// adminsOf returns the admin listener of each server. `named` is a list of them, or a single one: then every
// server has its listener on its own host, at the same port.
func adminsOf(servers []string, named string) ([]string, error) {
	list := strings.Split(named, ",")
	switch {
	case len(list) == len(servers):
		return list, nil
	case len(list) > 1:
		return nil, cli.Usagef("--admin-addr names %d admin listeners for %d servers: name one for each "+
			"server, or only one",
			len(list), len(servers))
	}
	scheme, addr := "", named
	if u, err := url.Parse(named); err == nil && u.Host != "" {
		scheme, addr = u.Scheme+"://", u.Host
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, cli.Usagef("--admin-addr: %v", err)
	}
	list = nil
	for _, s := range servers {
		host, _, _ := net.SplitHostPort(s)
		list = append(list, scheme+net.JoinHostPort(host, port))
	}
	return list, nil
}

// healthTimeout bounds the wait for a health report.
const healthTimeout = 5 * time.Second

// askHealth adds the health report of a zlockd to its finding.
func askHealth(ctx context.Context, c *call.Call, f *finding, flags *connect.AdminFlags, addr string) error {
	if f.Kind != "zlockd" {
		return nil
	}
	admin, err := flags.Client(c, addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	var h health
	err = admin.Health(ctx, &h)
	switch {
	case err != nil:
		f.note("its health report was not read: %v (name its admin listener with --admin-addr)", err)
	case !f.runsFor(time.Duration(h.Uptime) * time.Millisecond):
		f.note("its health report was not read: another server answers at %s (name its admin listener "+
			"with --admin-addr)", addr)
	default:
		if len(h.Reasons) > 0 {
			f.Problem = strings.TrimPrefix(f.Problem+"; "+strings.Join(h.Reasons, "; "), "; ")
		}
		for _, n := range h.Notices {
			f.note("%s", n)
		}
	}
	return nil
}

// runsFor reports whether a server that has run for `uptime` can be the server of this finding. On a host
// with several servers, the admin listener may belong to another one.
func (f *finding) runsFor(uptime time.Duration) bool {
	const round = time.Second // both times since the start are rounded to a second
	return uptime >= f.uptime && uptime <= f.uptime+time.Since(f.asked)+round
}
