package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// zooTick is ZooKeeper's tick when its configuration names none.
const zooTick = "3000"

// applyConfig reads the zoo.cfg that s names and sets every flag that it
// speaks of and the command line does not.
func applyConfig(s *settings, flags *pflag.FlagSet) error {
	text, err := os.ReadFile(s.config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	z := &zoo{s: s, flags: flags, seen: make(map[string]string), given: make(map[string]bool)}
	flags.Visit(func(f *pflag.Flag) { z.given[f.Name] = true })
	props := parseProperties(string(text))
	s.more.text = withoutSecrets(string(text))
	for _, p := range props {
		z.seen[z.bare(p.key)] = p.value
	}
	if file := z.seen["dynamicConfigFile"]; file != "" {
		members, err := os.ReadFile(file)
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
		if why := z.apply(z.bare(p.key), p.value); why != nil {
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
	servers []zooServer
	errs    []error
}

// bare is a key without the prefix that makes a Java system property of it.
func (z *zoo) bare(key string) string { return strings.TrimPrefix(key, "zookeeper.") }

func (z *zoo) fail(format string, args ...any) { z.errs = append(z.errs, fmt.Errorf(format, args...)) }

// note remembers that a key has no effect, for one line in the log.
func (z *zoo) note(key, format string, args ...any) {
	z.s.more.notes = append(z.s.more.notes, note{key, fmt.Sprintf(format, args...)})
}

// set sets a flag, unless the command line did.
func (z *zoo) set(flag, value string) error {
	if z.given[flag] {
		return nil
	}
	return z.flags.Set(flag, value)
}

// apply maps one key, or says why the server must not start with it.
func (z *zoo) apply(key, value string) error {
	if m, ok := z.rule(key); ok {
		return m(z, key, value)
	}
	z.note(key, "unknown key")
	return nil
}

// finish maps what needs several keys at once.
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
	must(z.zooData())
}

// addresses maps the ports, which have their address in another key.
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
	// Without an address ZooKeeper listens on all.
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
	if strings.EqualFold(z.seen["admin.enableServer"], "false") {
		return z.set("admin-addr", off)
	}
	if z.seen["admin.serverPort"] != "" && z.seen["admin.serverAddress"] == "" {
		z.note("admin.serverPort", "the admin port listens on loopback only; name another admin.serverAddress to open it")
	}
	if z.seen["admin.serverPort"] == "" && z.seen["admin.serverAddress"] != "" {
		z.seen["admin.serverPort"] = "8080"
	}
	return addr("admin-addr", "admin.serverPort", "admin.serverAddress", "127.0.0.1")
}

// cluster maps the server lines and the file myid.
func (z *zoo) cluster() error {
	alone := len(z.servers) == 1 && !strings.EqualFold(z.seen["standaloneEnabled"], "false")
	if len(z.servers) == 0 || alone {
		if alone {
			z.note("server."+strconv.Itoa(int(z.servers[0].id)), "a cluster of one is a single server")
		}
		return nil
	}
	var parts []string
	for _, sv := range z.servers {
		parts = append(parts, fmt.Sprintf("%d=%s", sv.id, sv.peer))
	}
	if err := z.set("peers", strings.Join(parts, ",")); err != nil {
		return err
	}
	if !z.given["id"] {
		file := filepath.Join(z.s.dataDir, "myid")
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("there are server lines, but which of them is this? %w (write the number there, or give --id)", err)
		}
		id, err := parseID(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		z.s.id = id
	}
	for _, sv := range z.servers {
		if sv.id != z.s.id {
			continue
		}
		if sv.client != "" && z.seen["clientPort"] == "" {
			if err := z.set("client-addr", sv.client); err != nil {
				return err
			}
		}
		if strings.EqualFold(z.seen["quorumListenOnAllIPs"], "true") {
			_, port, _ := net.SplitHostPort(sv.peer)
			return z.set("peer-addr", net.JoinHostPort("", port))
		}
	}
	return nil
}

// zooData warns of a ZooKeeper's data, which is not read: the server would
// start empty without a word.
func (z *zoo) zooData() error {
	if _, err := os.Stat(filepath.Join(z.s.dataDir, "version-2")); err == nil {
		z.note("dataDir", "%s holds data of a ZooKeeper; it is neither read nor touched, and zlockd starts with its own",
			filepath.Join(z.s.dataDir, "version-2"))
	}
	return nil
}

// zooServer is one server.N line.
type zooServer struct {
	id           uint32
	peer, client string // host:port
}

// parseServer reads host:port:port[:role][;[host:]port], of which only the
// first port is used: raft needs one.
func parseServer(id uint32, value string) (zooServer, error) {
	sv := zooServer{id: id}
	if strings.Contains(value, "|") {
		return sv, errors.New("several addresses for one server are not supported: name one")
	}
	value, client, hasClient := strings.Cut(value, ";")
	host, rest := cutHost(value)
	fields := strings.Split(rest, ":")
	if host == "" || len(fields) < 1 || len(fields) > 3 {
		return sv, errors.New("want host:port:port, such as lock1:2888:3888")
	}
	for i, port := range fields[:min(len(fields), 2)] {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return sv, fmt.Errorf("port %d, %q, is not a number", i+1, port)
		}
	}
	if len(fields) == 3 && !strings.EqualFold(fields[2], "participant") {
		return sv, fmt.Errorf("role %s: start the voters only, then add this one with: zlock member add", fields[2])
	}
	sv.peer = net.JoinHostPort(host, fields[0])
	if hasClient {
		h, port := cutHost(client)
		if port == "" {
			h, port = "", client
		}
		if h == "0.0.0.0" {
			h = ""
		}
		sv.client = net.JoinHostPort(h, port)
	}
	return sv, nil
}

// cutHost cuts at the first colon after the host, which may be in brackets.
func cutHost(s string) (host, rest string) {
	if strings.HasPrefix(s, "[") {
		if end := strings.Index(s, "]:"); end > 0 {
			return s[1:end], s[end+2:]
		}
		return "", ""
	}
	host, rest, _ = strings.Cut(s, ":")
	return host, rest
}

// millis sets a flag that has no bare numbers from a key in milliseconds.
func (z *zoo) millis(value string) (time.Duration, error) {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a number of milliseconds", value)
	}
	return time.Duration(n) * time.Millisecond, nil
}

// withoutSecrets is the file as an operator may be shown it: without the value
// of any key, commented out or not, whose name is that of a secret.
func withoutSecrets(text string) string {
	secret := func(s string) bool {
		s = strings.ToLower(s)
		return strings.Contains(s, "passw") || strings.Contains(s, "digest") || strings.Contains(s, "secret")
	}
	lines := strings.SplitAfter(text, "\n")
	hide := false // the line continues one that is not shown
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
