package server

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// member is a server as a line of /zookeeper/config describes it.
type member struct {
	id     uint32
	peer   string // host:port
	client string // host:port, empty if it is not told
	voter  bool
}

// members are the servers of a configuration by id.
type members map[uint32]member

// parseConfig reads the text of /zookeeper/config.
func parseConfig(text string) (m members, version int64) {
	m = members{}
	for line := range strings.Lines(text) {
		if s, err := parseMember(strings.TrimSpace(line)); err == nil {
			m[s.id] = s
		}
	}
	return m, configVersion([]byte(text))
}

// parseMember reads server.N=host:port:port[:role][;[host:]port]. The second
// port, of ZooKeeper's elections, has no use here.
func parseMember(s string) (member, error) {
	key, value, ok := strings.Cut(s, "=")
	number, isServer := strings.CutPrefix(strings.TrimSpace(key), "server.")
	if !ok || !isServer {
		return member{}, fmt.Errorf("%q is not server.N=host:port:port;port", s)
	}
	id, err := parseServerID(number)
	if err != nil {
		return member{}, err
	}
	m := member{id: id, voter: true}
	peer, client, hasClient := strings.Cut(strings.TrimSpace(value), ";")
	host, rest := splitHost(peer)
	fields := strings.Split(rest, ":")
	if host == "" || len(fields) < 2 || len(fields) > 3 || !isPort(fields[0]) || !isPort(fields[1]) {
		return m, fmt.Errorf("server %d: %q is not host:port:port", id, peer)
	}
	m.peer = net.JoinHostPort(host, fields[0])
	if len(fields) == 3 {
		switch strings.ToLower(fields[2]) {
		case "participant":
		case "observer":
			m.voter = false
		default:
			return m, fmt.Errorf("server %d: %q is neither participant nor observer", id, fields[2])
		}
	}
	if hasClient {
		host, port := splitHost(client)
		if port == "" {
			host, port = "", client
		}
		if !isPort(port) {
			return m, fmt.Errorf("server %d: %q is not [host:]port", id, client)
		}
		m.client = net.JoinHostPort(host, port)
	}
	return m, nil
}

// splitHost cuts at the first colon after the host, which may be in brackets.
func splitHost(s string) (host, rest string) {
	if end := strings.Index(s, "]:"); strings.HasPrefix(s, "[") && end > 0 {
		return s[1:end], s[end+2:]
	}
	host, rest, _ = strings.Cut(s, ":")
	return host, rest
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func parseServerID(s string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	if err != nil || n < 1 || n > 254 {
		return 0, fmt.Errorf("server id %q is not a number from 1 to 254", s)
	}
	return uint32(n), nil
}

// next returns the configuration that r makes of m: of the whole list of new
// members, or else of those who leave and then those who join.
func (m members) next(r *ReconfigRequest) (members, error) {
	var joining []string
	to := members{}
	if r.Members != "" {
		joining = splitList(strings.ReplaceAll(r.Members, "\n", ","))
	} else {
		maps.Copy(to, m)
		for _, s := range splitList(r.Leaving) {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("leaving server %q is not a number", s)
			}
			delete(to, uint32(max(n, 0))) // who is no member has left already
		}
		joining = splitList(r.Joining)
	}
	for _, s := range joining {
		if r.Members != "" && strings.HasPrefix(s, "version=") {
			continue // a copy of the text that was read
		}
		j, err := parseMember(s)
		if err != nil {
			return nil, err
		}
		if r.Members == "" && j.client == "" {
			return nil, fmt.Errorf("server %d: the client port is missing", j.id)
		}
		to[j.id] = j
	}
	return to, to.check()
}

// reaches says why to cannot be reached from m, though ZooKeeper could: servers
// are added, promoted and removed, nothing else.
func (m members) reaches(to members) error {
	for _, id := range to.ids(0) {
		is, ok := m[id]
		switch j := to[id]; {
		case !ok:
		case is.peer != j.peer:
			return fmt.Errorf("server %d is at %s; to move it, let it leave first", id, is.peer)
		case is.voter && !j.voter:
			return fmt.Errorf("server %d votes; to take its vote away, let it leave first", id)
		}
	}
	return nil
}

// check says what is wrong with a configuration.
func (m members) check() error {
	if m.voters() == 0 {
		return errors.New("nobody would be left to vote")
	}
	at := map[string]uint32{}
	for _, s := range m {
		for _, addr := range []string{s.peer, s.client} {
			if host, _, _ := net.SplitHostPort(addr); host == "" || host == "0.0.0.0" || host == "::" {
				continue // an address of every server
			}
			if other, taken := at[addr]; taken {
				return fmt.Errorf("servers %d and %d have the same address %s", min(s.id, other), max(s.id, other), addr)
			}
			at[addr] = s.id
		}
	}
	return nil
}

func (m members) voters() (n int) {
	for _, s := range m {
		if s.voter {
			n++
		}
	}
	return n
}

// ids are the ids in order, last put at the end: who carries out a change
// leaves last.
func (m members) ids(last uint32) []uint32 {
	ids := slices.Sorted(maps.Keys(m))
	if i := slices.Index(ids, last); i >= 0 {
		ids = append(slices.Delete(ids, i, i+1), last)
	}
	return ids
}

// same reports whether two configurations have the same servers in the same
// roles.
func (m members) same(o members) bool {
	return maps.EqualFunc(m, o, func(a, b member) bool { return a.voter == b.voter && a.peer == b.peer })
}

func splitList(s string) (list []string) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// plan decides about a request as far as it can be done without asking others,
// in ZooKeeper's order.
func plan(text string, r *ReconfigRequest) (from, to members, code jute.ErrCode, why error) {
	from, version := parseConfig(text)
	if r.Version != -1 && r.Version != version {
		return nil, nil, jute.BadVersion, fmt.Errorf("the configuration is version %x", version)
	}
	to, why = from.next(r)
	switch {
	case why != nil:
		return nil, nil, jute.BadArguments, why
	case !r.May:
		return nil, nil, jute.NoAuth, errors.New("the client may not write " + configPath)
	}
	if why = from.reaches(to); why != nil {
		return nil, nil, jute.BadArguments, why
	}
	return from, to, jute.OK, nil
}
