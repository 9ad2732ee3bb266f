package look

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// compare compares the servers with each other, and with the members that they list. `wrong` has the problems
// that it finds, and `worth` has remarks.
func compare(ctx context.Context, found []finding, list []string) (wrong, worth []string) {
	versions := map[string][]string{}
	config := ""
	for _, f := range found {
		if f.unreachable {
			continue
		}
		if f.Version != "" {
			versions[f.Version] = append(versions[f.Version], f.Server)
		}
		config = cmp.Or(config, f.config)
	}
	if len(versions) > 1 {
		var parts []string
		for v, servers := range versions {
			parts = append(parts, v+" ("+strings.Join(servers, ", ")+")")
		}
		slices.Sort(parts)
		worth = append(worth, "the servers do not run the same version: "+strings.Join(parts, ", "))
	}
	members := clientAddrs(config)
	if len(members) == 0 {
		return wrong, worth
	}
	// The list of members has no TLS ports. If a server was asked over TLS, its port is not in the list, so
	// compare only the hosts.
	secure := slices.ContainsFunc(found, func(f finding) bool { return f.Certificate != nil })
	same := sameServer(ctx, secure)
	for _, server := range list {
		if !slices.ContainsFunc(members, func(m string) bool { return same(server, m) }) {
			what := "is not a member's port for clients"
			if strings.Contains(config, "="+server+":") {
				what = "is a port at which members talk to each other"
			}
			wrong = append(wrong, fmt.Sprintf("%s %s: clients are served at %s", server, what,
				strings.Join(members, ", ")))
		}
	}
	for _, m := range members {
		if !slices.ContainsFunc(list, func(server string) bool { return same(server, m) }) {
			worth = append(worth, fmt.Sprintf("%s is a member, but --servers does not name it", m))
		}
	}
	return wrong, worth
}

// clientAddrs reads the members' addresses for clients from the data of /zookeeper/config. It returns none if
// a member lacks such an address.
func clientAddrs(data string) (list []string) {
	for line := range strings.Lines(data) {
		if !strings.HasPrefix(line, "server.") {
			continue
		}
		member, err := config.ParseServer(strings.TrimSpace(line))
		host, port, none := net.SplitHostPort(member.Client)
		if err != nil || none != nil {
			return nil
		}
		if net.ParseIP(host).IsUnspecified() {
			// The member listens on all its addresses: take the host at which its peers reach it.
			host, _, _ = net.SplitHostPort(member.Peer)
		}
		list = append(list, net.JoinHostPort(host, port))
	}
	return list
}

// sameServer returns a function that reports whether two addresses can be the same server's. It looks the
// hosts up, because one address may have a name and the other a number. The ports must be equal, too, unless
// `anyPort` is true.
func sameServer(ctx context.Context, anyPort bool) func(a, b string) bool {
	known := map[string][]string{}
	look := func(host string) []string {
		ips, ok := known[host]
		if !ok {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			ips, _ = net.DefaultResolver.LookupHost(ctx, host)
			ips = append(ips, host)
			known[host] = ips
		}
		return ips
	}
	return func(a, b string) bool {
		aHost, aPort, _ := net.SplitHostPort(a)
		bHost, bPort, _ := net.SplitHostPort(b)
		return (anyPort || aPort == bPort) && slices.ContainsFunc(look(aHost), func(ip string) bool {
			return slices.Contains(look(bHost), ip)
		})
	}
}
