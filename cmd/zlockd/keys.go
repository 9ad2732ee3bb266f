package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
)

// rule maps one key of a zoo.cfg. It returns an error if the server must not start: otherwise
// the server would silently drop what the key asks for.
type rule func(z *zoo, key, value string) error

// zooRules lists the keys known by their whole names. The method rule knows the prefixes.
var zooRules = map[string]rule{
	"tickTime":               toFlag("tick-time"),
	"dataDir":                toFlag("data-dir"),
	"maxClientCnxns":         toFlag("max-client-cnxns"),
	"minSessionTimeout":      timeout("min-session-timeout"),
	"maxSessionTimeout":      timeout("max-session-timeout"),
	"snapCount":              toFlag("snapshot-entries"),
	"4lw.commands.whitelist": whitelist,
	"jute.maxbuffer":         maxBuffer,
	"skipACL":                yes("skip-acl"),
	"superUser":              superUser,
	"letAnySaslUserDoX": ignored(
		"what an ACL gives to one SASL user is for that one alone; name each of them in it"),
	"java.security.auth.login.config": toFlag("sasl-users"),

	"kerberos.removeHostFromPrincipal":         onlyTrue("kerberos-remove-host"),
	"kerberos.removeRealmFromPrincipal":        onlyTrue("kerberos-remove-realm"),
	"security.auth_to_local":                   toFlag("kerberos-rules"),
	"DigestAuthenticationProvider.superDigest": toFlag("super-digest"),
	"X509AuthenticationProvider.superUser":     toFlag("x509-super"),
	"ensembleAuthName":                         toFlag("ensemble-names"),

	"maxCnxns":                        toFlag("max-cnxns"),
	"autopurge.snapRetainCount":       number(func(s *settings, n int64) { s.more.snapshotRetain = int(n) }),
	"snapSizeLimitInKb":               number(func(s *settings, n int64) { s.more.snapshotBytes = n << 10 }),
	"extendedTypesEnabled":            no("no-ttl"),
	"enforceQuota":                    yes("enforce-quota"),
	"znode.container.checkIntervalMs": sweep,

	"metricsProvider.exportJvmInfo": yes("jvm-metrics"),

	// Read together with other keys, once all are known.
	"metricsProvider.className": later, "metricsProvider.httpPort": later, "metricsProvider.httpHost": later,
	"clientPort": later, "clientPortAddress": later,
	"secureClientPort": later, "secureClientPortAddress": later,
	"admin.enableServer": later, "admin.serverAddress": later, "admin.serverPort": later,
	"standaloneEnabled": later, "quorumListenOnAllIPs": later, "dynamicConfigFile": later,

	"ssl.keyStore.location":          pemFile("tls-cert", "tls-key"),
	"ssl.trustStore.location":        pemFile("tls-ca", ""),
	"ssl.quorum.keyStore.location":   pemFile("peer-tls-cert", "peer-tls-key"),
	"ssl.quorum.trustStore.location": pemFile("peer-tls-ca", ""),
	"ssl.keyStore.type":              storeType, "ssl.trustStore.type": storeType,
	"ssl.quorum.keyStore.type": storeType, "ssl.quorum.trustStore.type": storeType,
	"ssl.trustStore.password": ignored("certificates need none"), "ssl.trustStore.passwordPath": ignored(
		"certificates need none"),
	"ssl.quorum.trustStore.password":     ignored("certificates need none"),
	"ssl.quorum.trustStore.passwordPath": ignored("certificates need none"),
	"ssl.clientAuth":                     clientAuth,
	"ssl.quorum.clientAuth":              only("need", "peers always show certificates to each other"),
	"ssl.protocol":                       protocols,
	"ssl.enabledProtocols":               protocols,
	"ssl.quorum.protocol":                ignored("peers speak TLS 1.3"),
	"ssl.quorum.enabledProtocols":        ignored("peers speak TLS 1.3"),
	"ssl.crl":                            later,
	"ssl.ocsp":                           refusedWhen("true", "OCSP is not asked"),
	"ssl.quorum.crl":                     later,
	"ssl.quorum.ocsp":                    refusedWhen("true", "OCSP is not asked"),
	"ssl.hostnameVerification": ignored(
		"clients are known by their certificate's authority, never by name"),
	"ssl.quorum.hostnameVerification": ignored("peers are known by the name zlockd-ID in their certificate"),
	"sslQuorum":                       sslQuorum,

	"dataLogDir":                  dataLogDir,
	"portUnification":             ignoredUnless("false", "clear text and TLS have a port each"),
	"sslQuorumPortUnification":    refusedWhen("true", "the peer port is TLS or clear text, never both"),
	"initLimit":                   ignored("followers catch up as long as they need; see --heartbeat-timeout"),
	"syncLimit":                   ignored("see --heartbeat-timeout"),
	"connectToLearnerMasterLimit": ignored("see --heartbeat-timeout"),
	"cnxTimeout":                  ignored("see --heartbeat-timeout"),
	"electionAlg":                 ignoredUnless("3", "raft elects"),
	"clientPortListenBacklog":     ignoredUnless("-1", "the system's backlog is used"),
	"autopurge.purgeInterval":     ignored("old snapshots and logs are always removed"),
	"preAllocSize":                ignored("the log allocates in segments"),
	"fsync.warningthresholdms":    ignored("slow syncs are logged and measured as fsynctime"),
	"forceSync":                   ignoredUnless("yes", "every write is synced before it is acknowledged"),
	"globalOutstandingLimit":      ignored("a full server stops reading its sockets"),
	"readonlymode.enabled":        yes("read-only-mode"),
	"reconfigEnabled":             yes("reconfig"),
	"localSessionsEnabled": refusedWhen("true",
		"every session is replicated; clients would see other guarantees than they were promised"),
	"localSessionsUpgradingEnabled": ignored("there are no local sessions"),
	"peerType":                      later,
	"watchManagerName":              ignored("there is one way of keeping watches"),
	"serverCnxnFactory":             ignored("one server speaks clear text and TLS"),
	"enforce.auth.enabled":          later, "enforce.auth.schemes": later, "sessionRequireClientSASLAuth": later,
	"requireClientAuthScheme": ignoredUnless("",
		"it has none in ZooKeeper either: sessionRequireClientSASLAuth=true lets nobody in without SASL"),
	"allowSaslFailedClients": refusedWhen("true",
		"who fails to authenticate is closed; leave clients without SASL alone by not requiring it"),
	"quorum.auth.enableSasl": refusedWhen("true",
		"peers authenticate by TLS: --peer-tls-cert, --peer-tls-key, --peer-tls-ca"),
	"admin.forceHttps": later, "admin.portUnification": later, "admin.needClientAuth": later,
	"admin.commandURL":  ignoredUnless("/commands", "commands are at /commands"),
	"admin.idleTimeout": ignored("idle connections are closed after 30 s"),
}

// rule returns the rule of a key.
func (z *zoo) rule(key string) (rule, bool) {
	if r, ok := zooRules[key]; ok {
		return r, true
	}
	for _, p := range []struct {
		prefix string
		rule   rule
	}{
		{"server.", serverLine},
		{"group.", refused("quorums have no hierarchy: a majority of all servers decides")},
		{"weight.", refused("every server has one vote")},
		{"superUser.", ignored(
			"one SASL user may do everything, the one of superUser; others come in by addauth digest with the " +
				"password of --super-digest")},
		{"authProvider.", authProvider},
		{"ssl.quorum.", sslOther},
		{"ssl.", sslOther},
		{"metricsProvider.", ignored(
			"there is no such setting; metrics are served at /metrics of --admin-addr and of --metrics-addr")},
		{"znode.container.", ignored("see znode.container.checkIntervalMs")},
		{"quorum.auth.", ignored("see quorum.auth.enableSasl")},
		{"quorum.", ignored("peers authenticate by TLS")},
		{"kerberos.", ignored("there is no such setting of Kerberos")},
		{"netty.", ignored("threads and buffers need no tuning")},
		{"nio.", ignored("threads and buffers need no tuning")},
		{"commitProcessor.", ignored("threads and buffers need no tuning")},
		{"connection", ignored("connections are limited by --max-client-cnxns")},
		{"requestThrottle", ignored("a full server stops reading its sockets")},
		{"throttledOp", ignored("a full server stops reading its sockets")},
		{"snapshot.", ignored("snapshots have their own form and checksum")},
		{"admin.", ignored("there is no such admin command")},
	} {
		if strings.HasPrefix(key, p.prefix) {
			return p.rule, true
		}
	}
	return nil, false
}

func toFlag(flag string) rule {
	return func(z *zoo, _, value string) error {
		err := z.set(flag, value)
		if err == nil {
			return nil
		}
		why := strings.TrimPrefix(flagError(err).Error(), "--"+flag+" ")
		if flag == "super-digest" {
			why = "wrong form"
		}
		return errors.New(why)
	}
}

// timeout sets a bound of the session timeout; it ignores -1, ZooKeeper's default.
func timeout(flag string) rule {
	return func(z *zoo, key, value string) error {
		if value == "-1" {
			return nil
		}
		return toFlag(flag)(z, key, value)
	}
}

func yes(flag string) rule {
	return func(z *zoo, _, value string) error {
		on := strings.EqualFold(value, "yes") || strings.EqualFold(value, "true")
		return z.set(flag, strconv.FormatBool(on))
	}
}

// onlyTrue maps keys that ZooKeeper compares with exactly "true".
func onlyTrue(flag string) rule {
	return func(z *zoo, _, value string) error { return z.set(flag, strconv.FormatBool(value == "true")) }
}

func number(put func(*settings, int64)) rule {
	return func(z *zoo, _, value string) error {
		n, err := strconv.ParseInt(value, 10, 40)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", value)
		}
		put(z.s, max(n, 0))
		return nil
	}
}

// no sets a flag that switches off what the key switches on.
func no(flag string) rule {
	return func(z *zoo, _, value string) error {
		return z.set(flag, strconv.FormatBool(!strings.EqualFold(value, "true")))
	}
}

func sweep(z *zoo, _, value string) error {
	d, err := z.millis(value)
	if err != nil {
		return err
	}
	return z.set("container-check-interval", d.String())
}

// maxBuffer accepts what Java's Integer.decode accepts.
func maxBuffer(z *zoo, _, value string) error {
	n, err := strconv.ParseInt(value, 0, 32)
	if err != nil {
		return fmt.Errorf("%q is not a number", value)
	}
	return z.set("max-frame", strconv.FormatInt(n, 10))
}

// whitelist leaves out the words that only ZooKeeper has.
func whitelist(z *zoo, key, value string) error {
	var known []string
	for w := range strings.SplitSeq(value, ",") {
		w = strings.TrimSpace(w)
		if w == "*" || len(w) == 4 && admin.IsWord([4]byte([]byte(w))) {
			known = append(known, w)
		} else if w != "" {
			z.note(key, "there is no four-letter word %s", w)
		}
	}
	// An empty list allows srvr, which is always allowed.
	return z.set("4lw-whitelist", strings.Join(append(known, "srvr"), ","))
}

func later(*zoo, string, string) error { return nil }

func serverLine(z *zoo, key, value string) error {
	id, err := zooID(strings.TrimPrefix(key, "server."))
	if err != nil {
		return err
	}
	sv, err := state.ParseAddresses(id, value)
	if err != nil {
		return err
	}
	z.servers = append(z.servers, sv)
	return nil
}

func ignored(why string) rule {
	return func(z *zoo, key, _ string) error {
		z.note(key, "%s", why)
		return nil
	}
}

// ignoredUnless notes that a key has no effect, unless the file asks for what the server does
// anyway.
func ignoredUnless(same, why string) rule {
	return func(z *zoo, key, value string) error {
		if !strings.EqualFold(value, same) {
			z.note(key, "%s", why)
		}
		return nil
	}
}

func refused(why string) rule {
	return func(*zoo, string, string) error { return errors.New(why) }
}

func refusedWhen(bad, why string) rule {
	return func(_ *zoo, _, value string) error {
		if strings.EqualFold(value, bad) {
			return errors.New(why)
		}
		return nil
	}
}

// only refuses every value but good.
func only(good, why string) rule {
	return func(_ *zoo, _, value string) error {
		if !strings.EqualFold(value, good) {
			return errors.New(why)
		}
		return nil
	}
}

// superUser maps a SASL user or, as in ZooKeeper for the scheme digest, a user and hash.
func superUser(z *zoo, key, value string) error {
	if strings.Contains(value, ":") {
		return toFlag("super-digest")(z, key, value)
	}
	return z.set("sasl-super", value)
}

// authProvider knows the built-in schemes. Without SASL users no client gets a sasl identity,
// which opens nothing, so the server may start.
func authProvider(z *zoo, key, value string) error {
	if strings.HasSuffix(value, ".SASLAuthenticationProvider") {
		if z.seen["java.security.auth.login.config"] == "" && !z.given["sasl-users"] &&
			!z.given["kerberos-keytab"] {
			z.note(key, "there are no users: name a JAAS file by java.security.auth.login.config, --sasl-users, or "+
				"--kerberos-keytab")
		}
		return nil
	}
	for _, known := range []string{"DigestAuthenticationProvider", "IPAuthenticationProvider",
		"EnsembleAuthenticationProvider", "X509AuthenticationProvider"} {
		if strings.HasSuffix(value, "."+known) {
			return nil
		}
	}
	return fmt.Errorf("%s cannot be loaded: the schemes are world, auth, digest, ip, x509, sasl and ensemble", value)
}

const asPEM = "only PEM files are read; convert with: keytool -importkeystore -srckeystore store.jks " +
	"-destkeystore store.p12 " +
	"-deststoretype PKCS12 && openssl pkcs12 -in store.p12 -nodes -out store.pem"

// pemFile accepts a store if it is a PEM file. A key store holds certificate and key.
func pemFile(cert, key string) rule {
	return func(z *zoo, _, value string) error {
		if z.given[cert] {
			return nil
		}
		if !strings.HasSuffix(strings.ToLower(value), ".pem") {
			return errors.New(asPEM)
		}
		if key != "" {
			if err := z.set(key, value); err != nil {
				return err
			}
		}
		return z.set(cert, value)
	}
}

func storeType(_ *zoo, _, value string) error {
	if !strings.EqualFold(value, "PEM") {
		return errors.New(asPEM)
	}
	return nil
}

func clientAuth(z *zoo, _, value string) error {
	switch v := strings.ToLower(value); v {
	case "none", "want", "need":
		z.s.more.tlsClientAuth = v
		return nil
	}
	return fmt.Errorf("%q is none of none, want, need", value)
}

// protocols keeps the oldest protocol that the file asks for; the server speaks none older
// than 1.2.
func protocols(z *zoo, _, value string) error {
	has12, has13 := false, false
	for p := range strings.SplitSeq(value, ",") {
		switch strings.TrimSpace(p) {
		case "TLSv1.2":
			has12 = true
		case "TLSv1.3":
			has13 = true
		case "TLS":
			has12, has13 = true, true
		}
	}
	switch {
	case has12:
	case has13:
		z.s.more.tls13 = true
	default:
		return errors.New("TLS 1.2 and 1.3 are spoken, nothing older")
	}
	return nil
}

func sslQuorum(z *zoo, _, value string) error {
	_, store := z.seen["ssl.quorum.keyStore.location"]
	if strings.EqualFold(value, "true") && !store && !z.given["peer-tls-cert"] {
		return errors.New("give --peer-tls-cert, --peer-tls-key and --peer-tls-ca")
	}
	return nil
}

// sslOther refuses every setting of TLS that the server does not honour.
func sslOther(_ *zoo, key, value string) error {
	if value == "" {
		return nil
	}
	if strings.Contains(key, "password") {
		return errors.New("keys with a password are not read: store the key without one, in a file that only " +
			"the server may read")
	}
	return errors.New("this setting of TLS cannot be honoured")
}

// dataLogDir has no effect, but must not hide existing logs.
func dataLogDir(z *zoo, key, value string) error {
	z.s.more.dataLogDir = value
	z.note(key, "the log is kept under dataDir")
	return nil
}
