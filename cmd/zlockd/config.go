package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// zooTick is ZooKeeper's tick if its configuration sets none.
const zooTick = "3000"

// maxFile bounds every file that an operator names: configuration, certificates and keys.
const maxFile = 1 << 20

func tooLarge(path string) error {
	return fmt.Errorf("%s is longer than %d bytes: that is no such file", path, maxFile)
}

// readFile is os.ReadFile with the bound maxFile.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = tooLarge(path)
	}
	return b, err
}

// applyConfig reads the zoo.cfg that s names. It sets every flag that the file covers and the
// command line does not set.
func applyConfig(s *settings, flags *pflag.FlagSet) error {
	text, err := readFile(s.config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	z := &zoo{s: s, flags: flags, seen: make(map[string]string), given: make(map[string]bool)}
	flags.Visit(func(f *pflag.Flag) { z.given[f.Name] = true })
	props := parseProperties(string(text))
	s.ConfigText = withoutSecrets(string(text))
	for _, p := range props {
		z.seen[z.bare(p.key)] = p.value
	}
	if file := z.seen["dynamicConfigFile"]; file != "" {
		members, err := readFile(file)
		if err != nil {
			return fmt.Errorf("%s: dynamicConfigFile: %w", s.config, err)
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
			z.fail("%s, line %d: %s: %w", s.config, p.line, p.key, why)
		}
	}
	z.finish()
	return errors.Join(z.errs...)
}

// zoo maps one zoo.cfg to settings.
type zoo struct {
	s       *settings
	flags   *pflag.FlagSet
	given   map[string]bool   // flags of the command line
	seen    map[string]string // every key of the file
	servers []state.Server
	errs    []error
}

// bare returns a key without the prefix that makes it a Java system property.
func (z *zoo) bare(key string) string { return strings.TrimPrefix(key, "zookeeper.") }

func (z *zoo) fail(format string, args ...any) { z.errs = append(z.errs, fmt.Errorf(format, args...)) }

// note records that a key has no effect; the server logs one line for it.
func (z *zoo) note(key, format string, args ...any) {
	z.s.more.notes = append(z.s.more.notes, note{key, fmt.Sprintf(format, args...)})
}

// set sets a flag unless the command line has set it.
func (z *zoo) set(flag, value string) error {
	if z.given[flag] {
		return nil
	}
	return z.flags.Set(flag, value)
}

// finish maps settings that need several keys.
func (z *zoo) finish() {
	must := func(err error) {
		if err != nil {
			z.fail("%s: %w", z.s.config, err)
		}
	}
	if _, ok := z.seen["tickTime"]; !ok {
		must(z.set("tick-time", zooTick))
	}
	must(z.addresses())
	must(z.cluster())
	must(z.requiredAuth())
	must(z.adminTLS())
	for _, key := range []string{"ssl.crl", "ssl.quorum.crl"} {
		if strings.EqualFold(z.seen[key], "true") && !z.given["tls-crl"] {
			z.fail("%s: %s: revocation lists are not fetched: name a file with them by --tls-crl", z.s.config, key)
		}
	}
}

// addresses maps the ports; another key holds the address of each.
func (z *zoo) addresses() error {
	addr := func(flag, portKey, hostKey, host string) error {
		port := z.seen[portKey]
		if port == "" {
			return nil
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("%s: %q is not a port", portKey, port)
		}
		if h := z.seen[hostKey]; h != "" {
			host = h
		}
		return z.set(flag, net.JoinHostPort(host, port))
	}
	// Without an address ZooKeeper listens on all addresses.
	if err := addr("secure-client-addr", "secureClientPort", "secureClientPortAddress", ""); err != nil {
		return err
	}
	if p := z.seen["clientPort"]; p == "" || p == "0" {
		switch {
		case z.seen["secureClientPort"] != "":
			if err := z.set("client-addr", off); err != nil {
				return err
			}
		case len(z.servers) == 0 && !z.given["client-addr"]:
			return errors.New("clientPort is missing")
		}
	} else if err := addr("client-addr", "clientPort", "clientPortAddress", ""); err != nil {
		return err
	}
	if err := z.metricsPort(addr); err != nil {
		return err
	}
	if strings.EqualFold(z.seen["admin.enableServer"], "false") {
		return z.set("admin-addr", off)
	}
	if z.seen["admin.serverPort"] != "" && z.seen["admin.serverAddress"] == "" {
		z.note("admin.serverPort",
			"the admin port listens on loopback only; name another admin.serverAddress to open it")
	}
	if z.seen["admin.serverPort"] == "" && z.seen["admin.serverAddress"] != "" {
		z.seen["admin.serverPort"] = "8080"
	}
	return addr("admin-addr", "admin.serverPort", "admin.serverAddress", "127.0.0.1")
}

// adminTLS maps the keys of the admin port's TLS. ZooKeeper takes its certificate and authority
// from the stores of the quorum.
func (z *zoo) adminTLS() error {
	on := func(key string) bool { return strings.EqualFold(z.seen[key], "true") }
	force, store := on("admin.forceHttps"), z.seen["ssl.quorum.keyStore.location"]
	if !force && !on("admin.portUnification") {
		return nil
	}
	z.s.AdminClear = !force
	if !z.given["admin-tls-cert"] {
		if store == "" {
			return errors.New("admin.forceHttps and admin.portUnification need ssl.quorum.keyStore.location, or " +
				"--admin-tls-cert and --admin-tls-key")
		}
		if err := errors.Join(z.set("admin-tls-cert", store), z.set("admin-tls-key", store)); err != nil {
			return err
		}
	}
	ca := z.seen["ssl.quorum.trustStore.location"]
	if len(z.s.Peers) == 0 { // the stores are for this port alone
		z.s.peerTLS.Cert, z.s.peerTLS.Key, z.s.peerTLS.CA = "", "", ""
	}
	if !on("admin.needClientAuth") {
		return nil
	}
	if ca == "" && !z.given["admin-tls-ca"] {
		return errors.New("admin.needClientAuth needs ssl.quorum.trustStore.location, or --admin-tls-ca")
	}
	return z.set("admin-tls-ca", ca)
}

// metricsPort maps the port of ZooKeeper's exporter for Prometheus. ZooKeeper's exporter
// listens on all addresses.
func (z *zoo) metricsPort(addr func(flag, portKey, hostKey, host string) error) error {
	if !strings.HasSuffix(z.seen["metricsProvider.className"], ".PrometheusMetricsProvider") {
		return nil
	}
	if z.seen["metricsProvider.httpPort"] == "" {
		z.seen["metricsProvider.httpPort"] = "7000"
	}
	return addr("metrics-addr", "metricsProvider.httpPort", "metricsProvider.httpHost", "0.0.0.0")
}

// cluster maps the server lines and the file myid.
func (z *zoo) cluster() error {
	z.s.LoneVoter = strings.EqualFold(z.seen["standaloneEnabled"], "false")
	alone := len(z.servers) == 1 && !strings.EqualFold(z.seen["standaloneEnabled"], "false")
	if len(z.servers) == 0 || alone {
		if alone {
			z.note("server."+strconv.Itoa(int(z.servers[0].ID)), "a cluster of one is a single server")
		}
		return nil
	}
	var parts []string
	for _, sv := range z.servers {
		part := fmt.Sprintf("%d=%s", sv.ID, sv.Peer)
		if !sv.Voter {
			part += asObserver
		}
		parts = append(parts, part)
	}
	if err := z.set("peers", strings.Join(parts, ",")); err != nil {
		return err
	}
	if !z.given["id"] {
		file := filepath.Join(z.s.DataDir, "myid")
		text, err := readFile(file)
		if err != nil {
			return fmt.Errorf("there are server lines, but which of them is this? %w (write the number there, or "+
				"give --id)", err)
		}
		id, err := zooID(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		z.s.ID = id
	}
	z.s.PeerWords = map[uint32]state.Server{}
	for _, sv := range z.servers {
		z.s.PeerWords[sv.ID] = sv
		if sv.ID != z.s.ID {
			continue
		}
		if strings.EqualFold(z.seen["peerType"], "observer") && sv.Voter {
			z.note("peerType", "the line server.%d says participant, which counts", sv.ID)
		}
		if sv.Client != "" && z.seen["clientPort"] == "" {
			if err := z.set("client-addr", strings.TrimPrefix(sv.Client, "0.0.0.0")); err != nil {
				return err
			}
		}
		if strings.EqualFold(z.seen["quorumListenOnAllIPs"], "true") {
			_, port, _ := net.SplitHostPort(sv.Peer)
			return z.set("peer-addr", net.JoinHostPort("", port))
		}
	}
	return nil
}

// withoutSecrets returns the text of a zoo.cfg for operators to see: without the values of
// keys, commented out or not, whose names are those of secrets.
func withoutSecrets(text string) string {
	secret := func(s string) bool {
		s = strings.ToLower(s)
		return strings.Contains(s, "passw") || strings.Contains(s, "digest") || strings.Contains(s, "secret")
	}
	lines := strings.SplitAfter(text, "\n")
	hide := false // the line continues a hidden one
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		key, _ := splitProperty(trimmed)
		switch {
		case hide:
			lines[i] = ""
		case strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "!"):
			if secret(trimmed) {
				lines[i] = "# (not shown)\n"
			}
			continue // comments have no continuation
		case secret(key):
			lines[i] = key + "=(not shown)\n"
		default:
			continue
		}
		hide = continued(strings.TrimRight(line, "\r\n"))
	}
	return strings.Join(lines, "")
}
