package settings

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// load() reads the settings of a zoo.cfg with this text, in which $DIR stands for the directory `dir`.
func load(t *testing.T, dir, text string, args ...string) (*Settings, error) {
	t.Helper()
	return loadWith(t, nil, dir, text, args...)
}

func loadWith(t *testing.T, kerberos Kerberos, dir, text string, args ...string) (*Settings, error) {
	t.Helper()
	file := filepath.Join(dir, "zoo.cfg")
	must.OK(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "$DIR", dir)), 0o600))
	return Read(append([]string{"--config", file}, args...), kerberos)
}

func TestZooKeysAreMapped(t *testing.T) {
	const base = "clientPort=2181\ndataDir=$DIR\n"
	for _, test := range []struct {
		name, text string
		args       []string
		want       func(*Settings) bool
	}{
		{"sample", base + "tickTime=2000", nil, func(s *Settings) bool {
			return s.ClientAddr == ":2181" && s.AdminAddr == "127.0.0.1:8181" && len(s.Peers) == 0 &&
				s.MinSessionTimeout == 4*time.Second
		}},
		{"no tick", base, nil, func(s *Settings) bool {
			return s.TickTime == 3*time.Second && s.MaxSessionTimeout == time.Minute
		}},
		{"flag over tick", base, []string{"--tick-time", "1s"}, func(s *Settings) bool {
			return s.TickTime == time.Second
		}},
		{"flag over file", base + "maxClientCnxns=5\ntickTime=100", []string{"--max-client-cnxns", "9",
			"--client-addr", "127.0.0.1:1"}, func(s *Settings) bool {
			return s.MaxConnsPerAddr == 9 && s.ClientAddr == "127.0.0.1:1" &&
				s.TickTime == 100*time.Millisecond
		}},
		{"default timeouts", base + "minSessionTimeout=-1\nmaxSessionTimeout=-1\ntickTime=1000", nil,
			func(s *Settings) bool {
				return s.MinSessionTimeout == 2*time.Second &&
					s.MaxSessionTimeout == 20*time.Second
			}},
		{"timeouts", base + "minSessionTimeout=500\nmaxSessionTimeout=90000", nil, func(s *Settings) bool {
			return s.MinSessionTimeout == 500*time.Millisecond &&
				s.MaxSessionTimeout == 90*time.Second
		}},
		{"address", base + "clientPortAddress=10.0.0.1", nil, func(s *Settings) bool {
			return s.ClientAddr == "10.0.0.1:2181"
		}},
		{"address six", base + "clientPortAddress=::1", nil, func(s *Settings) bool {
			return s.ClientAddr == "[::1]:2181"
		}},
		{"admin off", base + "admin.enableServer=false", nil, func(s *Settings) bool { return s.AdminAddr == Off }},
		{"admin port", base + "admin.serverPort=9090", nil, func(s *Settings) bool {
			return s.AdminAddr == "127.0.0.1:9090" && noted(s, "admin.serverPort")
		}},
		{"admin address", base + "admin.serverAddress=0.0.0.0", nil, func(s *Settings) bool {
			return s.AdminAddr == "0.0.0.0:8080"
		}},
		{"prefix", base + "zookeeper.admin.serverPort=9090\nzookeeper.skipACL=yes", nil, func(s *Settings) bool {
			return s.AdminAddr == "127.0.0.1:9090" && !s.SkipACL && noted(s, "zookeeper.skipACL")
		}},
		{"whitelist", base + "4lw.commands.whitelist=ruok, mntr", nil, func(s *Settings) bool {
			return s.FourLetterWords == "ruok,mntr,srvr"
		}},
		{"all words", base + "4lw.commands.whitelist=*", nil, func(s *Settings) bool {
			return s.FourLetterWords == "*,srvr"
		}},
		{"no words", base + "4lw.commands.whitelist=", nil, func(s *Settings) bool {
			return s.FourLetterWords == "srvr"
		}},
		{"buffer", base + "jute.maxbuffer=0x100000", nil, func(s *Settings) bool { return s.MaxFrame == 1<<20 }},
		{"snapshots", base + "snapCount=5000\nautopurge.snapRetainCount=4\nsnapSizeLimitInKb=2048", nil,
			func(s *Settings) bool {
				return s.SnapshotEntries == 5000 && s.SnapshotRetain == 4 && s.SnapshotBytes == 2<<20
			}},
		{"features", base + "extendedTypesEnabled=false\nenforceQuota=false\nznode.container.checkIntervalMs=1500\nmaxCnxns=300", nil, func(s *Settings) bool {
			return s.NoTTL && !s.EnforceQuota && s.SweepInterval == 1500*time.Millisecond &&
				s.MaxConns == 300
		}},
		{"sasl is not there", base + "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
			nil, func(s *Settings) bool {
				return len(s.Notes) == 1 && s.Notes[0].Key == "authProvider.1"
			}},
		{"sasl", base + "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\njava.security.auth.login.config=/etc/jaas.conf\nsuperUser=root\nsessionRequireClientSASLAuth=true", nil, func(s *Settings) bool {
			return len(s.Notes) == 0 && s.SASLUsers == "/etc/jaas.conf" && s.SASLSuper == "root" &&
				s.AuthSchemes == "sasl" && s.SuperDigest == ""
		}},
		{"more super users", base +
			"java.security.auth.login.config=/etc/jaas.conf\nsuperUser=root\nsuperUser.1=joe\nletAnySaslUserDoX=reader", nil, func(s *Settings) bool {
			return len(s.Notes) == 2 && s.Notes[0].Key == "superUser.1" &&
				s.Notes[1].Key == "letAnySaslUserDoX" && s.SASLSuper == "root"
		}},
		{"required", base + "java.security.auth.login.config=/etc/jaas.conf\nenforce.auth.enabled=true\nenforce.auth.schemes=digest,sasl", nil, func(s *Settings) bool {
			return s.AuthSchemes == "digest,sasl"
		}},
		{"not required", base +
			"enforce.auth.schemes=sasl\nenforce.auth.enabled=false\nsessionRequireClientSASLAuth=false", nil,
			func(s *Settings) bool { return s.AuthSchemes == "" }},
		{"features on", base + "extendedTypesEnabled=true\nenforceQuota=true", nil, func(s *Settings) bool {
			return !s.NoTTL && s.EnforceQuota
		}},
		{"super", base + "DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=", nil,
			func(s *Settings) bool {
				return s.SuperDigest == "super:D/InIHSb7yEEbrWz8b9l71RjZJU=" && !strings.Contains(s.ConfigText, "D/InIHS")
			}},
		{"same as always", base +
			"forceSync=yes\nelectionAlg=3\nreadonlymode.enabled=false\nportUnification=false\nlocalSessionsEnabled=false\nclientPortListenBacklog=-1", nil,
			func(s *Settings) bool { return len(s.Notes) == 0 }},
		{"metrics", base + "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\nmetricsProvider.exportJvmInfo=false", nil, func(s *Settings) bool {
			return s.MetricsAddr == "0.0.0.0:7000" && !s.JVMMetrics
		}},
		{"metrics elsewhere", base +
			"metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\nmetricsProvider.httpHost=127.0.0.1\nmetricsProvider.httpPort=7070", nil, func(s *Settings) bool {
			return s.MetricsAddr == "127.0.0.1:7070" && s.JVMMetrics
		}},
		{"ignored", base + "forceSync=no\npreAllocSize=1\nnetty.x=1\nmetricsProvider.more=1\nwhatever=1\nportUnification=true", nil, func(s *Settings) bool {
			return noted(s, "forceSync", "preAllocSize", "netty.x", "metricsProvider.more", "whatever",
				"portUnification") && len(s.Notes) == 6
		}},
		{"data of a ZooKeeper", "clientPort=2181\ndataDir=$DIR/old", []string{"--ignore-zookeeper-data"},
			func(s *Settings) bool { return strings.HasSuffix(s.DataDir, "/old") }},

		{"members", base + "server.1=127.0.0.1:1:11\nserver.2=127.0.0.1:2:12:participant;2182\nserver.3=[::1]:3:13",
			[]string{"--id", "3"}, func(s *Settings) bool {
				return s.peersFlag().String() == "1=127.0.0.1:1,2=127.0.0.1:2,3=[::1]:3" && s.PeerListen == "[::1]:3" &&
					s.ID == 3
			}},
		{"myid", "clientPort=1\ndataDir=$DIR/ids\nserver.1=127.0.0.1:1:11\nserver.2=127.0.0.1:2:12", nil,
			func(s *Settings) bool { return s.ID == 2 && s.PeerListen == "127.0.0.1:2" }},
		{"all addresses", "clientPort=1\ndataDir=$DIR/ids\nserver.1=a:1:11\nserver.2=b:2:12\nquorumListenOnAllIPs=true", []string{"--peer-insecure"}, func(s *Settings) bool { return s.PeerListen == ":2" }},
		{"client port of the member",
			"dataDir=$DIR/ids\nserver.1=127.0.0.1:1:11;2181\nserver.2=127.0.0.1:2:12;0.0.0.0:2182", nil,
			func(s *Settings) bool { return s.ClientAddr == ":2182" }},
		{"observers", base + "server.1=127.0.0.1:1:11\nserver.2=127.0.0.1:2:12:observer;2182\npeerType=observer",
			[]string{"--id", "2"},
			func(s *Settings) bool {
				return s.peersFlag().String() == "1=127.0.0.1:1,2=127.0.0.1:2:observer" &&
					slices.Equal(s.Observers, []uint32{2}) && len(s.Notes) == 0
			}},
		{"an observer by peerType only", base +
			"server.1=127.0.0.1:1:11\nserver.2=127.0.0.1:2:12\npeerType=observer", []string{"--id", "2"},
			func(s *Settings) bool { return len(s.Observers) == 0 && noted(s, "peerType") }},
		{"alone", base + "server.7=lock7:1:11", nil, func(s *Settings) bool {
			return len(s.Peers) == 0 &&
				s.ID == 1 && noted(s, "server.7")
		}},
		{"alone with a peer port", base + "server.7=127.0.0.1:1:11\nstandaloneEnabled=false", []string{"--id", "7"},
			func(s *Settings) bool { return len(s.Peers) == 1 }},
		{"members elsewhere", base + "dynamicConfigFile=$DIR/zoo.cfg.dynamic", []string{"--id", "1"},
			func(s *Settings) bool { return s.peersFlag().String() == "1=127.0.0.1:1,2=127.0.0.1:2" }},

		{"TLS", "secureClientPort=2281\ndataDir=$DIR\nssl.keyStore.location=$DIR/server.pem\nssl.trustStore.location=$DIR/ca.pem\nssl.trustStore.password=x\nssl.keyStore.type=PEM\nssl.clientAuth=want\nssl.enabledProtocols=TLSv1.3", nil,
			func(s *Settings) bool {
				return s.ClientAddr == Off && s.SecureAddr == ":2281" &&
					strings.HasSuffix(s.clientFiles.Cert, "server.pem") && s.clientFiles.Key == s.clientFiles.Cert &&
					strings.HasSuffix(s.clientFiles.CA, "ca.pem") && s.TLSClientAuth == "want" && s.TLS13
			}},
		{"TLS and clear text", base +
			"secureClientPort=2281\nssl.keyStore.location=$DIR/server.pem\nssl.clientAuth=none\nssl.protocol=TLSv1.2",
			nil, func(s *Settings) bool {
				return s.ClientAddr == ":2181" && s.SecureAddr == ":2281" && !s.TLS13
			}},
		{"no TLS", base + "secureClientPort=0", nil, func(s *Settings) bool { return s.SecureAddr == "" }},
		{"peer TLS", base + "server.1=a:1:1\nserver.2=b:1:1\nsslQuorum=true\nssl.quorum.keyStore.location=$DIR/server.pem\nssl.quorum.trustStore.location=$DIR/ca.pem", []string{"--id", "1"}, func(s *Settings) bool {
			return strings.HasSuffix(s.peerFiles.Key, "server.pem") && strings.HasSuffix(s.peerFiles.CA, "ca.pem")
		}},
		{"admin port with certificates", base + "admin.forceHttps=true\nadmin.needClientAuth=true\n" +
			"ssl.quorum.keyStore.location=$DIR/server.pem\nssl.quorum.trustStore.location=$DIR/ca.pem", nil,
			func(s *Settings) bool { // one of the two notes says when the certificate ends
				return len(s.Notes) == 2 && s.AdminFiles.CA != "" && !s.AdminClear
			}},
		{"certificates beside clear text", base + "admin.portUnification=true\nadmin.needClientAuth=true\n" +
			"ssl.quorum.keyStore.location=$DIR/server.pem\nssl.quorum.trustStore.location=$DIR/ca.pem", nil,
			func(s *Settings) bool {
				return len(s.Notes) == 3 && strings.Contains(s.Notes[0].Why, "without a certificate") && s.AdminClear
			}},
		{"stores replaced by flags", base + "secureClientPort=2281\nssl.keyStore.location=$DIR/store.jks",
			[]string{"--tls-cert", "$DIR/server.pem", "--tls-key", "$DIR/server.pem"}, func(s *Settings) bool {
				return strings.HasSuffix(s.clientFiles.Cert, "server.pem")
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"ids/myid": "2\n", "old/version-2/log.1": "",
				"zoo.cfg.dynamic": "server.1=127.0.0.1:1:11:participant;2181\nserver.2=127.0.0.1:2:12:participant;2181\nversion=100000000\n",
			} {
				name = filepath.Join(dir, name)
				os.MkdirAll(filepath.Dir(name), 0o700)
				must.OK(t, os.WriteFile(name, []byte(text), 0o600))
			}
			store(t, dir)
			args := slices.Clone(test.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "$DIR", dir)
			}
			s := must.Get(load(t, dir, test.text, args...))(t)
			expect.That(t, test.want(s), "got %+v", s)
		})
	}
}

// store() makes dir/server.pem, which holds a certificate and its key, and the authority dir/ca.pem.
func store(t *testing.T, dir string) {
	t.Helper()
	ca := certs.New(t, dir)
	ca.Sign(t, "server", []string{"zlockd-1"})
	key := must.Get(os.ReadFile(ca.File("server.key")))(t)
	cert := must.Get(os.OpenFile(ca.File("server.pem"), os.O_APPEND|os.O_WRONLY, 0))(t)
	must.OK(t, expect.Err(cert.Write(key)))
	must.OK(t, cert.Close())
}

// A server refuses to start empty in a directory with the data of a ZooKeeper, because all data would seem
// lost. A server that has run in the directory before may start.
func TestZooKeeperDataAreNotPassedOver(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(dir, "version-2"), 0o700))
	for _, start := range []func() error{
		func() error { _, err := load(t, dir, "clientPort=2181\ndataDir=$DIR"); return err },
		func() error { _, err := Read([]string{"--data-dir", dir}, nil); return err },
		func() error {
			_, err := load(t, dir, "clientPort=2181\ndataDir=$DIR/data\ndataLogDir=$DIR")
			if err != nil && !strings.Contains(err.Error(), "--log-dir "+dir) {
				return fmt.Errorf("the log directory is not named: %w", err)
			}
			return err
		},
	} {
		err := start()
		if expect.Fails(t, err) {
			expect.Has(t, err.Error(), "zlockd import --from "+dir, "the error")
		}
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "identity"), []byte("{}"), 0o600))
	expect.OK(t, expect.Err(Read([]string{"--data-dir", dir}, nil)))
}

// noted() reports whether the log will have a line about each key.
func noted(s *Settings, keys ...string) bool {
	for _, key := range keys {
		if !slices.ContainsFunc(s.Notes, func(n note) bool { return n.Key == key }) {
			return false
		}
	}
	return true
}

// The rules do not panic, whatever text is the value.
func TestRulesTakeAnyValue(t *testing.T) {
	for key := range zooRules {
		for _, value := range []string{"", "x", "-1", "true", "1", "/a.pem", ";", ":"} {
			s, flags := must.Get2(parseFlags(nil, noEnv))(t)
			z := &zoo{s: s, flags: flags, seen: map[string]string{key: value}, given: map[string]bool{}}
			ruleOf(key).apply(z, key, value)
			z.finish()
			if err := ruleOf(key).apply(z, key, value); err != nil && strings.Contains(err.Error(), "no such flag") {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

func TestProperties(t *testing.T) {
	const text = "# comment\n! comment\n\n a = b \nc:d\r\ne f\ng\n" +
		"long=one\\\n   two\\\\\n" + `esc\=aped=\u0041\t.` + "\n" + "a=again\nlast=x\\"
	want := []property{
		{"a", "again", 13}, {"c", "d", 5}, {"e", "f", 6}, {"g", "", 7}, {"long", `onetwo\`, 8},
		{"esc=aped", "A\t.", 10}, {"last", "x", 12},
	}
	got := parseProperties(text)
	for i := range got {
		got[i].line = 0
	}
	for i := range want {
		want[i].line = 0
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	p := parseProperties("\n\nx=1\ny=\\\n2\nz=3")
	expect.Equal(t, p[0].line, 3, "line")
	expect.Equal(t, p[1].line, 4, "line")
	expect.Equal(t, p[2].line, 6, "line")
}

func TestSecretsOfTheFileAreNotKept(t *testing.T) {
	const text = "a=1\nssl.keyStore.password=hunter2\nDigestAuthenticationProvider.superDigest : super:\\\n  " +
		"hunter2\n# password=hunter2\nb=2\nmy.secret hunter2\nsuperUser=super:hunter2\n" +
		"# zookeeper.superUser=super:hunter2\nX509AuthenticationProvider.superUser=CN=admin\n"
	got := withoutSecrets(text)
	expect.That(t, !strings.Contains(got, "hunter2"), "kept: %q", got)
	for _, want := range []string{"a=1\n", "b=2\n", "ssl.keyStore.password=(not shown)\n",
		"superUser=(not shown)\n", "CN=admin\n"} {
		expect.Has(t, got, want, "lost %q", want)
	}
}

// Whatever escapes and line ends a zoo.cfg has, the server finds the secrets in it.
func TestSecretsAreFoundAsTheyAreRead(t *testing.T) {
	for name, text := range map[string]string{
		"lines end as on an old Mac":  "a=1\rssl.keyStore.password=hunter2\rb=2\r",
		"one line ends so":            "a=1\rssl.keyStore.password=hunter2\nb=2\n",
		"a letter is escaped":         "a=1\nssl.keyStore.p\\u0061ssword=hunter2\nb=2\n",
		"a sign is escaped":           "a=1\nssl.keyStore.pass\\word=hunter2\nb=2\n",
		"the key is on two lines":     "a=1\nssl.keyStore.pass\\\n  word=hunter2\nb=2\n",
		"the value is on three lines": "a=1\nssl.keyStore.password=\\\r\n\\\r\nhunter2\r\nb=2\n",
		"the file ends in it":         "a=1\nb=2\nssl.keyStore.password=\\\nhunter2",
	} {
		t.Run(name, func(t *testing.T) {
			read := parseProperties(text)
			expect.That(t, slices.ContainsFunc(read, func(p property) bool {
				return p.key == "ssl.keyStore.password" && p.value == "hunter2"
			}), "the server reads %v", read)
			got := withoutSecrets(text)
			expect.That(t, !strings.Contains(got, "hunter2"), "kept: %q", got)
			expect.Has(t, got, "a=1\n", "lost a")
			expect.Has(t, got, "b=2\n", "lost b")
		})
	}
}

// The hash of the super user's password is a secret. The server refuses a file that contains this hash and
// that other users can read.
func TestSecretsInAFileThatOthersCanReadAreRefused(t *testing.T) {
	const digest = "zookeeper.DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n"
	for _, test := range []struct {
		name, text string
		mode       os.FileMode
		args       []string
		refused    bool
	}{
		{"a secret for all", digest, 0o644, nil, true},
		{"a secret for the group", digest, 0o640, nil, false},
		{"no secret", "", 0o644, nil, false},
		{"a secret of the command line", "", 0o644,
			[]string{"--super-digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU="}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "zoo.cfg")
			text := "dataDir=" + t.TempDir() + "\nclientPort=2181\n" + test.text
			must.OK(t, os.WriteFile(file, []byte(text), test.mode))
			must.OK(t, os.Chmod(file, test.mode))
			_, err := Read(append([]string{"--config", file}, test.args...), nil)
			refused := err != nil && strings.Contains(err.Error(), "can be read by every user")
			expect.Equal(t, refused, test.refused, "refused (%v)", err)
		})
	}
}

func FuzzZooConfig(f *testing.F) {
	f.Add("clientPort=2181\nserver.1=a:1:2;3\n")
	f.Add("server.1=[::1]:1\n\\")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "dynamicConfigFile") {
			return
		}
		dir := t.TempDir()
		load(t, dir, text)
		withoutSecrets(text)
	})
}

func noEnv(string) (string, bool) { return "", false }

// Each flag has an environment variable. The command line takes precedence over the variable, and the
// variable over a zoo.cfg.
func TestEnvironment(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"ZLOCKD_TICK_TIME": "500", "ZLOCKD_MAX_FRAME": "4096", "ZLOCKD_SKIP_ACL": "true",
			"ZLOCKD_LOG_LEVEL": "", "ZLOCKD_PORT": "tcp://10.0.0.1:2181"}[name]
		return v, ok
	}
	s, flags, err := parseFlags([]string{"--max-frame", "8192"}, env)
	must.OK(t, err)
	expect.Equal(t, s.TickTime, 500*time.Millisecond, "tick time")
	expect.Equal(t, s.MaxFrame, 8192, "max frame")
	expect.That(t, s.SkipACL, "tick %v, frame %d, skip %v, level %q", s.TickTime, s.MaxFrame, s.SkipACL,
		s.LogLevel)
	expect.Equal(t, s.LogLevel, "info", "log level")
	s.Config = filepath.Join(t.TempDir(), "zoo.cfg")
	must.OK(t, os.WriteFile(s.Config, []byte("clientPort=1\ntickTime=7000\nmaxClientCnxns=7\n"),
		0o600))
	must.OK(t, applyConfig(s, flags))
	expect.Equal(t, s.TickTime, 500*time.Millisecond, "tick time")
	expect.Equal(t, s.MaxConnsPerAddr, 7, "max connections per address")
	_, _, err = parseFlags(nil, func(name string) (string, bool) { return "many", name == "ZLOCKD_MAX_NODES" })
	if expect.Fails(t, err) {
		expect.Has(t, err.Error(), "ZLOCKD_MAX_NODES", "a wrong variable: error")
	}
}

// Each default that --help shows is the value in force. A default that depends on other flags is part of the
// text, and is tested with those flags.
func TestHelpShowsTheDefaultsInForce(t *testing.T) {
	shown := regexp.MustCompile(`\(default ([^)]*)\)`)
	byHand := map[string]bool{"heartbeat-timeout": true, "backup-interval": true, "min-session-timeout": true,
		"max-session-timeout": true, "snapshot-interval": true, "slow-request": true}
	for _, g := range Groups(new(Settings)) {
		g.Flags.VisitAll(func(f *pflag.Flag) {
			var b bytes.Buffer
			cli.PrintFlag(&b, f)
			m := shown.FindStringSubmatch(strings.Join(strings.Fields(b.String()), " "))
			force := f.Value.String()
			switch {
			case byHand[f.Name]:
				if m == nil || f.DefValue != "" && f.DefValue != "0s" {
					t.Errorf("--%s: %q, in force is %q", f.Name, b.String(), force)
				}
			case m == nil && force != "" && force != "false":
				t.Errorf("--%s: no default, in force is %q", f.Name, force)
			case m != nil:
				err := f.Value.Set(m[1])
				if expect.OK(t, err, "--%s", f.Name) {
					expect.Equal(t, f.Value.String(), force, "--%s: value", f.Name)
				}
			}
		})
	}
}
