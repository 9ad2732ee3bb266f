package members

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// Config holds the servers of a configuration, by id.
type Config map[uint32]config.Server

// ParseConfig reads the text of the node config.Path. It returns the servers and the version.
func ParseConfig(text string) (Config, int64) {
	m := Config{}
	list, version := config.Parse(text)
	for _, s := range list {
		m[s.ID] = s
	}
	return m, version
}

// wholeList reads a list of all members, such as the text of config.Path.
func wholeList(text string) (Config, error) {
	to := Config{}
	for _, s := range splitList(strings.ReplaceAll(text, "\n", ",")) {
		key, _, _ := strings.Cut(s, "=")
		switch key = strings.TrimSpace(key); {
		case key == "version":
			continue
		case !strings.HasPrefix(key, "server."):
			return nil, fmt.Errorf("%q is neither a server nor a version", s)
		}
		j, err := config.ParseServer(s)
		if err != nil {
			return nil, err
		}
		to[j.ID] = j
	}
	return to, nil
}

// collide returns an error if two servers claim the same address.
func collide(a, b *config.Server) error {
	if a.ID == b.ID {
		return nil
	}
	for _, x := range addresses(a) {
		if slices.Contains(addresses(b), x) {
			return fmt.Errorf("servers %d and %d have the same address %s", a.ID, b.ID, x)
		}
	}
	return nil
}

// addresses returns the addresses at which other machines reach a server. It leaves out those that mean the
// machine itself, such as localhost.
func addresses(s *config.Server) (list []string) {
	host, _, _ := net.SplitHostPort(s.Peer)
	for _, addr := range []string{s.Peer, net.JoinHostPort(host, s.Election), s.Client} {
		host, _, _ := net.SplitHostPort(addr)
		if ip := net.ParseIP(host); host == "" || host == "localhost" || ip != nil && (ip.IsLoopback() ||
			ip.IsUnspecified()) {
			continue
		}
		list = append(list, addr)
	}
	return list
}

// configOf makes a configuration of the members that raft has.
func configOf(list []status.Member) Config {
	now := Config{}
	for _, m := range list {
		now[m.ID] = config.Server{ID: m.ID, Peer: m.Peer, Voter: m.Voter}
	}
	return now
}

func (m Config) voters() int { return len(m.list(true)) }

// list returns the servers, or only those that vote, in the order of ids.
func (m Config) list(voters bool) (list []config.Server) {
	for _, id := range m.ids(0) {
		if m[id].Voter || !voters {
			list = append(list, m[id])
		}
	}
	return list
}

// ids returns the ids in order, but with `last` at the end, if it is among them. `last` is the server that
// carries out a change, which is removed after all others.
func (m Config) ids(last uint32) []uint32 {
	ids := slices.Sorted(maps.Keys(m))
	if i := slices.Index(ids, last); i >= 0 {
		ids = append(slices.Delete(ids, i, i+1), last)
	}
	return ids
}

// same() reports whether two configurations have the same servers in the same
// roles.
func (m Config) same(o Config) bool {
	return maps.EqualFunc(m, o, func(a, b config.Server) bool { return a.Voter == b.Voter && a.Peer == b.Peer })
}

// text returns the configuration as the cluster publishes it, without its version.
func (m Config) text() string { return config.Text(m.list(false)) }

func splitList(s string) (list []string) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
