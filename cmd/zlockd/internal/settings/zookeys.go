package settings

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// zooRules are the rules of keys by name. For other keys, zooPrefixes has rules by the beginning of the name.
var zooRules = map[string]rule{
	"tickTime":               toFlag("tick-time"),
	"dataDir":                toFlag("data-dir"),
	"maxClientCnxns":         toFlag("max-client-cnxns", decimal),
	"minSessionTimeout":      unless("-1", toFlag("min-session-timeout")),
	"maxSessionTimeout":      unless("-1", toFlag("max-session-timeout")),
	"snapCount":              toFlag("snapshot-entries", decoded),
	"4lw.commands.whitelist": {"sets --4lw-whitelist", whitelist},
	"jute.maxbuffer":         toFlag("max-frame", decoded),
	"audit.enable": {"sets --audit-log to stderr", func(z *zoo, _, value string) error {
		if !strings.EqualFold(value, "true") {
			return nil
		}
		return z.set("audit-log", "stderr")
	}},
	"skipACL":   {"sets --skip-acl when it is yes", skipACL},
	"superUser": {"sets --sasl-super, or --super-digest when it is USER:HASH", superUser},
	"letAnySaslUserDoX": ignored(
		"an ACL grants rights only to the SASL user that it names; name each user"),
	"java.security.auth.login.config": toFlag("sasl-users"),

	"kerberos.removeHostFromPrincipal":         toFlag("kerberos-remove-host", exactly("true")),
	"kerberos.removeRealmFromPrincipal":        toFlag("kerberos-remove-realm", exactly("true")),
	"security.auth_to_local":                   toFlag("kerberos-rules"),
	"DigestAuthenticationProvider.superDigest": toFlag("super-digest"),
	"X509AuthenticationProvider.superUser":     toFlag("x509-super"),
	"ensembleAuthName":                         toFlag("ensemble-names"),

	"maxCnxns": toFlag("max-cnxns", decoded),
	"autopurge.snapRetainCount": number("snapshots kept, at least 3", decimal,
		func(s *Settings, n int64) { s.SnapshotRetain = max(int(n), 3) }),
	"snapSizeLimitInKb": number("a snapshot after this much log", decoded,
		func(s *Settings, n int64) { s.SnapshotBytes = n << 10 }),
	"extendedTypesEnabled": {"sets --no-ttl when it is not true", toFlag("no-ttl", notTrue).apply},
	"enforceQuota":         toFlag("enforce-quota", isTrue),
	"znode.container.checkIntervalMs": {
		"sets --container-check-interval, in milliseconds", toFlag("container-check-interval", decoded).apply},

	"metricsProvider.exportJvmInfo": toFlag("jvm-metrics", isTrue),

	// These keys have a meaning only together; finish() maps them.
	"metricsProvider.className": later("with the Prometheus provider: turns on --metrics-addr"),
	"metricsProvider.httpPort":  later("port of --metrics-addr, 7000 when missing"),
	"metricsProvider.httpHost":  later("address of --metrics-addr, all when missing"),
	"clientPort":                later("port of --client-addr"),
	"clientPortAddress":         later("address of --client-addr, all when missing"),
	"secureClientPort":          later("port of --secure-client-addr"),
	"secureClientPortAddress":   later("address of --secure-client-addr, all when missing"),
	"admin.enableServer":        later("false: --admin-addr off"),
	"admin.serverAddress":       later("address of --admin-addr, loopback when missing"),
	"admin.serverPort":          later("port of --admin-addr"),
	"standaloneEnabled":         strictly(later("false: a single server line makes a cluster of one")),
	"quorumListenOnAllIPs":      strictly(later("true: --peer-addr listens on all addresses")),
	"dynamicConfigFile":         later("a file of server lines, read once"),

	"ssl.keyStore.location":              pemFile("tls-cert", "tls-key"),
	"ssl.trustStore.location":            pemFile("tls-ca", ""),
	"ssl.quorum.keyStore.location":       pemFile("peer-tls-cert", "peer-tls-key"),
	"ssl.quorum.trustStore.location":     pemFile("peer-tls-ca", ""),
	"ssl.keyStore.type":                  storeType,
	"ssl.trustStore.type":                storeType,
	"ssl.quorum.keyStore.type":           storeType,
	"ssl.quorum.trustStore.type":         storeType,
	"ssl.trustStore.password":            ignored("PEM files have no password"),
	"ssl.trustStore.passwordPath":        ignored("PEM files have no password"),
	"ssl.quorum.trustStore.password":     ignored("PEM files have no password"),
	"ssl.quorum.trustStore.passwordPath": ignored("PEM files have no password"),
	"ssl.clientAuth":                     {"none, want or need: whether clients show certificates", clientAuth},
	"ssl.quorum.clientAuth": {"only the value need is accepted",
		unless("need", refused("peers always show certificates to each other")).apply},
	"ssl.protocol":                {"TLSv1.2, TLSv1.3", protocols},
	"ssl.enabledProtocols":        {"TLSv1.2, TLSv1.3", protocols},
	"ssl.quorum.protocol":         ignored("peers speak TLS 1.3"),
	"ssl.quorum.enabledProtocols": ignored("peers speak TLS 1.3"),
	"ssl.crl":                     later("true needs --tls-crl with a file of revocation lists"),
	"ssl.ocsp":                    refusedWhenTrue("OCSP is not supported"),
	"ssl.quorum.crl":              later("true needs --tls-crl with a file of revocation lists"),
	"ssl.quorum.ocsp":             refusedWhenTrue("OCSP is not supported"),
	"ssl.hostnameVerification": ignored(
		"clients are known by their certificate's authority, never by name"),
	"ssl.quorum.hostnameVerification": ignored("peers are known by the name zlockd-ID in their certificate"),
	"sslQuorum":                       strictly(rule{"true needs certificates of the peers", sslQuorum}),

	"dataLogDir":                  {"no effect: the log is kept under dataDir", dataLogDir},
	"portUnification":             strictly(unless("false", ignored("clear text and TLS have separate ports"))),
	"sslQuorumPortUnification":    refusedWhenTrue("the peer port is TLS or clear text, never both"),
	"initLimit":                   ignored("followers catch up as long as they need; see --heartbeat-timeout"),
	"syncLimit":                   ignored("see --heartbeat-timeout"),
	"connectToLearnerMasterLimit": ignored("see --heartbeat-timeout"),
	"cnxTimeout":                  ignored("see --heartbeat-timeout"),
	"electionAlg":                 unless("3", ignored("raft elects")),
	"clientPortListenBacklog":     unless("-1", ignored("the system's backlog is used")),
	"autopurge.purgeInterval":     ignored("old snapshots and logs are always removed"),
	"preAllocSize":                ignored("the log allocates in segments"),
	"fsync.warningthresholdms":    ignored("slow syncs are logged and measured as fsynctime"),
	"forceSync":                   {noEffect + "every write is synced before it is acknowledged", forceSync},
	"globalOutstandingLimit":      ignored("a full server stops reading its sockets"),
	"readonlymode.enabled":        toFlag("read-only-mode", isTrue),
	"reconfigEnabled":             strictly(toFlag("reconfig", isTrue)),
	"localSessionsEnabled": strictly(refusedWhenTrue(
		"every session is replicated; clients would see other guarantees than they were promised")),
	"localSessionsUpgradingEnabled": strictly(ignored("there are no local sessions")),
	"peerType":                      {noEffect + "the server line names the role", peerType},
	"watchManagerName":              ignored("there is one way of keeping watches"),
	"serverCnxnFactory":             ignored("one server speaks clear text and TLS"),
	"enforce.auth.enabled":          later("true: --require-auth with the schemes of enforce.auth.schemes"),
	"enforce.auth.schemes":          later("sets --require-auth"),
	"sessionRequireClientSASLAuth":  later("true: --require-auth sasl"),
	"requireClientAuthScheme": unless("",
		ignored("it has none in ZooKeeper either: sessionRequireClientSASLAuth=true requires SASL of all clients")),
	"allowSaslFailedClients": refusedWhenTrue(
		"a client that fails to authenticate is closed; to let clients without SASL in, do not require it"),
	"quorum.auth.enableSasl": strictly(refusedWhenTrue(
		"peers authenticate by TLS: --peer-tls-cert, --peer-tls-key, --peer-tls-ca")),
	"admin.forceHttps":      later("true: the admin port speaks only TLS; it needs --admin-tls-cert"),
	"admin.portUnification": later("true: the admin port speaks TLS and clear text"),
	"admin.needClientAuth":  later("true: the admin port asks for certificates; it needs --admin-tls-ca"),
	"admin.commandURL":      unless("/commands", ignored("commands are at /commands")),
	"admin.idleTimeout":     ignored("idle connections are closed after 30 s"),
}

// zooPrefixes has the rules of keys by prefixes.
var zooPrefixes = []struct {
	prefix string
	rule   rule
}{
	{"server.", rule{
		"a server, HOST:PORT:PORT[:ROLE][;CLIENT]; the first port is that of --peers", serverLine}},
	{"group.", refused("quorums have no hierarchy: a majority of all servers decides")},
	{"weight.", refused("every server has one vote")},
	{"superUser.", ignored(
		"one SASL user may do everything, the one of superUser; others come in by addauth digest with the " +
			"password of --super-digest")},
	{"authProvider.", rule{"only the schemes of ZooKeeper itself", authProvider}},
	{"ssl.quorum.", rule{"refused: this setting of TLS is not supported", sslOther}},
	{"ssl.", rule{"refused: this setting of TLS is not supported", sslOther}},
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
}

// ruleOf returns the rule of a key.
func ruleOf(key string) rule {
	if r, ok := zooRules[key]; ok {
		return r
	}
	for _, p := range zooPrefixes {
		if strings.HasPrefix(key, p.prefix) {
			return p.rule
		}
	}
	return ignored("unknown key")
}

// ConfigPage writes the manual page of the configuration file.
func ConfigPage(w io.Writer) {
	m := cli.NewPage(w, "zlockd.conf", 5, "configuration file of zlockd")
	m.Section("DESCRIPTION")
	m.Text(`zlockd --config FILE reads the zoo.cfg of a ZooKeeper: lines KEY=VALUE, comments begin with #.
Flags and environment variables win over the file. A key may have the prefix "zookeeper.". Keys without effect
and unknown keys are logged; a key is refused if ignoring it would do harm. Further settings have
flags only, and each flag has an environment variable: see zlockd(8).`)
	var acts, idle []cli.Meaning
	add := func(key, means string) {
		if why, ok := strings.CutPrefix(means, noEffect); ok {
			idle = append(idle, cli.Meaning{Word: key, Means: why})
			return
		}
		acts = append(acts, cli.Meaning{Word: key, Means: means})
	}
	for _, key := range slices.Sorted(maps.Keys(zooRules)) {
		add(key, zooRules[key].means)
	}
	for _, p := range zooPrefixes {
		add(p.prefix+"*", p.rule.means)
	}
	m.Section("KEYS")
	m.List(acts)
	m.Section("KEYS WITHOUT EFFECT")
	m.List(idle)
	m.Section("EXAMPLES")
	m.Text("  tickTime=2000\n  dataDir=/var/lib/zlockd\n  clientPort=2181\n  4lw.commands.whitelist=*")
	m.Section("SEE ALSO")
	m.Text("zlockd(8), zlock(1)")
}
