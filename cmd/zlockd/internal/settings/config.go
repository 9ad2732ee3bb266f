package settings

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// zooTick is ZooKeeper's tick time if its configuration sets none.
const zooTick = "3000"

// applyConfig reads the zoo.cfg that s.Config names. It sets every flag that the file covers and the
// command line does not set.
func applyConfig(s *Settings, flags *pflag.FlagSet) error {
	text, err := tlsfiles.ReadFile(s.Config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	z := &zoo{s: s, flags: flags, seen: make(map[string]string), raw: make(map[string]bool),
		given: make(map[string]bool)}
	flags.Visit(func(f *pflag.Flag) { z.given[f.Name] = true })
	props := parseProperties(string(text))
	s.ConfigText = withoutSecrets(string(text))
	for _, p := range props {
		z.raw[p.key] = true
		key := z.bare(p.key)
		if before, twice := z.seen[key]; twice && before != p.value {
			s.Fault("%s, line %d: %s and zookeeper.%s have different values: keep one of them", s.Config, p.line,
				key, key)
		}
		z.seen[key] = p.value
	}
	if file := z.seen["dynamicConfigFile"]; file != "" {
		members, err := tlsfiles.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: dynamicConfigFile: %w", s.Config, err)
		}
		for _, p := range parseProperties(string(members)) {
			if p.key != "version" {
				props = append(props, p)
				z.seen[z.bare(p.key)] = p.value
			}
		}
	}
	for _, p := range props {
		key := z.bare(p.key)
		if why := ruleOf(key).apply(z, key, p.value); why != nil {
			s.Fault("%s, line %d: %s: %w", s.Config, p.line, p.key, why)
		}
	}
	z.finish()
	return nil
}

// finish() maps the settings that come from several keys.
func (z *zoo) finish() {
	if _, ok := z.seen["tickTime"]; !ok {
		z.put("tick-time", zooTick)
	}
	z.addresses()
	z.cluster()
	z.requiredAuth()
	z.adminTLS()
	for _, key := range []string{"ssl.crl", "ssl.quorum.crl"} {
		if z.is(key, "true") && !z.given["tls-crl"] {
			z.wrong("%s: revocation lists are not fetched: name a file with them by --tls-crl", key)
		}
	}
}

// addresses() maps the ports. Without an address ZooKeeper listens on all addresses.
func (z *zoo) addresses() {
	if z.seen["secureClientPort"] == "0" { // "0" means the same as a missing key
		delete(z.seen, "secureClientPort")
	}
	z.address("secure-client-addr", "secureClientPort", "secureClientPortAddress", "")
	p := z.seen["clientPort"]
	switch none := p == "" || p == "0"; {
	case !none:
		z.address("client-addr", "clientPort", "clientPortAddress", "")
	case z.seen["secureClientPort"] != "":
		z.put("client-addr", Off)
	case len(z.servers) == 0 && !z.given["client-addr"]:
		z.wrong("clientPort is missing")
	}
	if strings.HasSuffix(z.seen["metricsProvider.className"], ".PrometheusMetricsProvider") {
		z.seen["metricsProvider.httpPort"] = cmp.Or(z.seen["metricsProvider.httpPort"], "7000")
		z.address("metrics-addr", "metricsProvider.httpPort", "metricsProvider.httpHost", "0.0.0.0")
	}
	port, host := z.seen["admin.serverPort"], z.seen["admin.serverAddress"]
	switch {
	case z.seen["admin.enableServer"] == "false": // for ZooKeeper any other word means true
		z.put("admin-addr", Off)
		return
	case port != "" && host == "":
		z.s.Note("admin.serverPort",
			"the admin port listens on loopback only; name another admin.serverAddress to open it")
	case port == "" && host != "":
		z.seen["admin.serverPort"] = "8080"
	}
	z.address("admin-addr", "admin.serverPort", "admin.serverAddress", "127.0.0.1")
}

// address() turns the port of portKey into a flag. The host comes from hostKey. If the file lacks hostKey, it
// is the parameter `host`.
func (z *zoo) address(flag, portKey, hostKey, host string) {
	port := z.seen[portKey]
	if port == "" {
		return
	}
	read := decimal
	if portKey == "admin.serverPort" {
		read = decoded
	}
	text, err := read(port)
	if n, _ := strconv.Atoi(text); err != nil || n < 0 || n > math.MaxUint16 {
		z.wrong("%s: %q is not a port", portKey, port)
		return
	}
	z.put(flag, net.JoinHostPort(cmp.Or(z.seen[hostKey], host), text))
}

// cluster() maps the server lines and the file myid.
func (z *zoo) cluster() {
	z.s.LoneVoter = z.is("standaloneEnabled", "false")
	switch {
	case len(z.servers) == 0:
		return
	case len(z.servers) == 1 && !z.s.LoneVoter:
		z.s.Note("server."+strconv.Itoa(int(z.servers[0].ID)), "no other server is listed: this one runs "+
			"as a single server")
		return
	}
	var parts []string
	for _, sv := range z.servers {
		part := fmt.Sprintf("%d=%s", sv.ID, sv.Peer)
		if !sv.Voter {
			part += asObserver
		}
		parts = append(parts, part)
	}
	z.put("peers", strings.Join(parts, ","))
	if !z.given["id"] {
		file := filepath.Join(z.s.DataDir, "myid")
		text, err := tlsfiles.ReadFile(file)
		if err != nil {
			z.wrong("it is not known which server line is this server: %w (write its number there, or give "+
				"--id)",
				err)
			return
		}
		if z.s.ID, err = zooID(string(text)); err != nil {
			z.wrong("%s: %w", file, err)
			return
		}
	}
	z.s.PeerWords = map[uint32]config.Server{}
	for _, sv := range z.servers {
		z.s.PeerWords[sv.ID] = sv
		if sv.ID != z.s.ID {
			continue
		}
		if z.is("peerType", "observer") && sv.Voter {
			z.s.Note("peerType", "the line server.%d says participant, and takes precedence", sv.ID)
		}
		if sv.Client != "" && z.seen["clientPort"] == "" {
			z.put("client-addr", strings.TrimPrefix(sv.Client, "0.0.0.0"))
		}
		if z.is("quorumListenOnAllIPs", "true") {
			_, port, _ := net.SplitHostPort(sv.Peer)
			z.put("peer-addr", net.JoinHostPort("", port))
		}
	}
}
