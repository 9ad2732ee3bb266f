package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// `readings` has, for each key of a zoo.cfg, a function that returns the value that a server uses. The value
// is in the words of testdata/zookeys.table.
var readings = map[string]func(*Settings) any{
	"skipACL":                         func(s *Settings) any { return s.SkipACL },
	"enforceQuota":                    func(s *Settings) any { return s.EnforceQuota },
	"extendedTypesEnabled":            func(s *Settings) any { return !s.NoTTL },
	"audit.enable":                    func(s *Settings) any { return s.AuditLog == "stderr" },
	"enforce.auth.enabled":            func(s *Settings) any { return s.AuthSchemes != "" },
	"enforce.auth.schemes":            func(s *Settings) any { return list(Words(s.AuthSchemes)) },
	"sessionRequireClientSASLAuth":    func(s *Settings) any { return s.AuthSchemes == "sasl" },
	"allowSaslFailedClients":          func(*Settings) any { return false },
	"readonlymode.enabled":            func(s *Settings) any { return s.ReadOnlyMode },
	"ssl.crl":                         func(*Settings) any { return false },
	"ssl.ocsp":                        func(*Settings) any { return false },
	"ssl.quorum.crl":                  func(*Settings) any { return false },
	"ssl.quorum.ocsp":                 func(*Settings) any { return false },
	"reconfigEnabled":                 func(s *Settings) any { return s.Reconfig },
	"standaloneEnabled":               func(s *Settings) any { return !s.LoneVoter },
	"localSessionsEnabled":            func(*Settings) any { return false },
	"quorumListenOnAllIPs":            func(s *Settings) any { return strings.HasPrefix(s.PeerListen, ":") },
	"sslQuorum":                       func(*Settings) any { return false },
	"portUnification":                 func(s *Settings) any { return noted(s, "portUnification") },
	"quorum.auth.enableSasl":          func(*Settings) any { return false },
	"forceSync":                       func(s *Settings) any { return !noted(s, "forceSync") },
	"admin.enableServer":              func(s *Settings) any { return s.AdminAddr != Off },
	"admin.serverPort":                func(s *Settings) any { return port(s.AdminAddr) },
	"clientPort":                      func(s *Settings) any { return port(s.ClientAddr) },
	"tickTime":                        func(s *Settings) any { return s.TickTime.Milliseconds() },
	"minSessionTimeout":               func(s *Settings) any { return s.MinSessionTimeout.Milliseconds() },
	"maxSessionTimeout":               func(s *Settings) any { return s.MaxSessionTimeout.Milliseconds() },
	"maxClientCnxns":                  func(s *Settings) any { return s.MaxConnsPerAddr },
	"maxCnxns":                        func(s *Settings) any { return s.MaxConns },
	"snapCount":                       func(s *Settings) any { return s.SnapshotEntries },
	"snapSizeLimitInKb":               func(s *Settings) any { return s.SnapshotBytes },
	"autopurge.snapRetainCount":       func(s *Settings) any { return s.SnapshotRetain },
	"jute.maxbuffer":                  func(s *Settings) any { return s.MaxFrame },
	"znode.container.checkIntervalMs": func(s *Settings) any { return s.SweepInterval.Milliseconds() },
	"admin.forceHttps":                func(s *Settings) any { return s.AdminFiles.Cert != "" && !s.AdminClear },
	"admin.portUnification":           func(s *Settings) any { return s.AdminFiles.Cert != "" && s.AdminClear },
	"admin.needClientAuth":            func(s *Settings) any { return s.AdminFiles.CA != "" },

	"kerberos.removeHostFromPrincipal":  func(s *Settings) any { return s.RemoveHost },
	"kerberos.removeRealmFromPrincipal": func(s *Settings) any { return s.RemoveRealm },
	"metricsProvider.exportJvmInfo":     func(s *Settings) any { return s.JVMMetrics },
	"metricsProvider.httpPort":          func(s *Settings) any { return port(s.MetricsAddr) },
	"secureClientPort": func(s *Settings) any {
		if s.SecureAddr == "" {
			return "none"
		}
		return port(s.SecureAddr)
	},
	"ssl.protocol":                  spoken,
	"ssl.enabledProtocols":          spoken,
	"ssl.quorum.clientAuth":         func(*Settings) any { return "NEED" },
	"ensembleAuthName":              func(s *Settings) any { return list(slices.Sorted(slices.Values(Words(s.Ensemble)))) },
	"sslQuorumPortUnification":      func(*Settings) any { return false },
	"localSessionsUpgradingEnabled": func(*Settings) any { return false },
	"ssl.clientAuth": func(s *Settings) any {
		if s.TLSClientAuth == "" {
			return "NEED"
		}
		return strings.ToUpper(s.TLSClientAuth)
	},
	"peerType": func(*Settings) any { return "PARTICIPANT" },
	"4lw.commands.whitelist": func(s *Settings) any {
		var on []string
		allowed := "," + s.FourLetterWords + ","
		for _, word := range []string{"conf", "isro", "mntr", "ruok", "srvr"} {
			if strings.Contains(allowed, ","+word+",") || strings.Contains(allowed, ",*,") {
				on = append(on, word)
			}
		}
		return list(on)
	},
}

func list(words []string) string { return "[" + strings.Join(words, ", ") + "]" }

// spoken() returns the versions of TLS that the clients' ports speak.
func spoken(s *Settings) any {
	if s.TLS13 {
		return "[TLSv1.3]"
	}
	return "[TLSv1.2, TLSv1.3]"
}

func port(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

// zooCase is a row of testdata/zookeys.table.
type zooCase struct{ key, lines, want string }

func zooCases(t *testing.T) (cases []zooCase) {
	for line := range strings.Lines(string(must.Get(os.ReadFile("testdata/zookeys.table"))(t))) {
		if strings.HasPrefix(line, "# ") {
			continue
		}
		row := strings.Split(strings.TrimRight(line, "\n"), " | ")
		lines := must.Get(strconv.Unquote(row[1]))(t)
		cases = append(cases, zooCase{row[0], lines, row[len(row)-1]})
	}
	return cases
}

// A server reads each switch, number and list of a zoo.cfg as ZooKeeper does, or as the table says. Otherwise
// a zoo.cfg that was made for ZooKeeper could open or close access by mistake.
func TestZooKeysAreReadAsZooKeeperDoes(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "myid"), []byte("1"), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(dir, "users"), []byte("joe:secret\n"), 0o600))
	store(t, dir)
	for n, c := range zooCases(t) {
		t.Run(fmt.Sprintf("%d %q", n, c.lines), func(t *testing.T) {
			text := "dataDir=$DIR\n"
			if !strings.Contains(c.lines, "clientPort") {
				text += "clientPort=2181\n"
			}
			got := "refused"
			s, err := loadWith(t, anyRules{}, dir, text+c.lines+"\n", "--peer-insecure",
				"--sasl-users", filepath.Join(dir, "users"))
			if err == nil {
				got = fmt.Sprint(readings[c.key](s))
			}
			expect.Equal(t, got, c.want, "%s (%v)", c.key, err)
		})
	}
}

// anyRules is a Kerberos that accepts all rules.
type anyRules struct{ Kerberos }

func (anyRules) CheckRules(string) error { return nil }

// `texts` are the keys whose values are texts: names of files, users and addresses, rules, and names of
// formats and classes. They are no switches, numbers or lists, so testdata/zookeys.table lacks them.
var texts = []string{"dataDir", "superUser", "java.security.auth.login.config", "security.auth_to_local",
	"DigestAuthenticationProvider.superDigest", "X509AuthenticationProvider.superUser", "dynamicConfigFile",
	"clientPortAddress", "secureClientPortAddress", "admin.serverAddress", "metricsProvider.className",
	"metricsProvider.httpHost", "ssl.keyStore.location", "ssl.trustStore.location", "ssl.quorum.keyStore.location",
	"ssl.quorum.trustStore.location", "ssl.keyStore.type", "ssl.trustStore.type", "ssl.quorum.keyStore.type",
	"ssl.quorum.trustStore.type"}

// Each key of a zoo.cfg that is a switch, a number or a list has rows in testdata/zookeys.table, one of them
// with an empty value. A key needs no rows if it is ignored whatever its value is.
func TestEverySwitchNumberAndListIsInTheTable(t *testing.T) {
	rows := map[string]string{}
	for _, c := range zooCases(t) {
		rows[c.key] += c.lines + "\n"
	}
	for key, r := range zooRules {
		ignored := strings.HasPrefix(r.means, noEffect)
		for _, value := range []string{"", "true", "false", "yes", "5", "none", "x"} {
			s := new(Settings)
			z := &zoo{s: s, flags: pflag.NewFlagSet("", pflag.ContinueOnError), seen: map[string]string{}}
			ignored = ignored && r.apply(z, key, value) == nil
		}
		text := slices.Contains(texts, key)
		switch _, has := rows[key]; {
		case has:
			expect.Equal(t, text, false, "%s has rows, and is a text", key)
			expect.Has(t, rows[key], key+"=\n", "%s: a row with an empty value", key)
			expect.That(t, readings[key] != nil, "%s has rows and no reading", key)
		case !ignored && !text:
			t.Errorf("%s has no rows in testdata/zookeys.table", key)
		}
	}
	for _, key := range texts {
		_, known := zooRules[key]
		expect.That(t, known, "%s is not a key", key)
	}
}

// A server that checks no access rights logs a warning at each start.
func TestSkippedACLsAreLoggedLoudly(t *testing.T) {
	for _, test := range []struct {
		value string
		want  bool
	}{{"yes", true}, {"true", false}} {
		t.Run(test.value, func(t *testing.T) {
			s := must.Get(load(t, t.TempDir(), "dataDir=$DIR\nclientPort=2181\nskipACL="+test.value))(t)
			told := false
			for _, n := range s.Notes {
				told = told || n.Key == "" && strings.HasPrefix(n.Why, "ACCESS RIGHTS ARE NOT CHECKED")
			}
			expect.Equal(t, told, test.want, "told")
		})
	}
}

// A zoo.cfg with two spellings of one key and different values is refused, because the operator could not
// know which value counts.
func TestKeyWithAndWithoutPrefix(t *testing.T) {
	const base = "dataDir=$DIR\nclientPort=2181\nmaxCnxns=5\nzookeeper.maxCnxns="
	_, err := load(t, t.TempDir(), base+"6")
	expect.Has(t, fmt.Sprint(err), "different values")
	s := must.Get(load(t, t.TempDir(), base+"5"))(t)
	expect.Equal(t, s.MaxConns, 5)
}
