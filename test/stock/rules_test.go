//go:build stock

package stock

import (
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestAlertRules lets promtool check the alert rules, and test each rule with its cause and without it. It
// also compares the rules with the manual.
func TestAlertRules(t *testing.T) {
	beside(t)
	const dir = "../../deploy/prometheus"
	need(t, "/usr/bin/promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command("/usr/bin/promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	read := func(name string) string {
		b := must.Get(os.ReadFile(name))(t)
		return string(b)
	}
	rules, tests, manual := read(dir+"/rules.yml"), read(dir+"/rules_test.yml"), read("../../docs/operations.md")
	names := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	must.That(t, len(names) != 0, "no alerts")
	for _, n := range names {
		expect.That(t, strings.Count(tests, "alertname: "+n[1]+"\n") >= 2,
			"%s has no case with its cause and one without", n[1])
		expect.Has(t, manual, "`"+n[1]+"`", "%s is not in the manual", n[1])
	}
}

// asked is a request to reconfigure: joining and leaving servers, or the new members.
type asked struct {
	joining, leaving, members string
	version                   int64
}

// answered holds the answers to one request to reconfigure: sent by any client, and sent by the super user.
// An answer is the error, or the members except the first three, whose addresses differ between the
// ensembles.
type answered struct{ anybody, super string }

// TestReconfigAsZooKeeper sends the same requests to a ZooKeeper ensemble and to a cluster of zlockd, one
// after the other, as any client and as the super user.
func TestReconfigAsZooKeeper(t *testing.T) {
	beside(t)
	ownServers(t)
	const observer, voter = "server.9=127.0.0.1:34101:34102:observer;34103",
		"server.4=127.0.0.1:34401:34402;34403"
	with := func(change ...string) string { return strings.NewReplacer(change...).Replace(observer) }
	list := []asked{
		{version: -1}, {version: 7}, {version: 0}, {joining: "garbage", version: 7},
		{joining: "some thing", version: -1}, {joining: "server.x=127.0.0.1:1:2;3", version: -1},
		{joining: with("server.9", "foo.9"), version: -1},
		{joining: with("server.9", "9"), version: -1}, {joining: with("server.9", "server.0", "34101", "34107"),
			version: -1}, {joining: with("server.9=", " server.9 = "), version: -1},
		{joining: with(";34103", ""), version: -1}, {joining: with(":34102:observer", ""), version: -1},
		{joining: with("34102", "34101"), version: -1},
		{joining: with("observer", "king"), version: -1}, {joining: with("34101", "a"), version: -1},
		{joining: with("34101", "99999"), version: -1},
		{joining: with(";", "|127.0.0.1:34105:34106;"), version: -1}, {joining: with("127.0.0.1", "10.9.8.7") +
			",server.8=10.9.8.7:34101:34105:observer;34106", version: -1},
		{joining: observer + ",server.8=127.0.0.1:34101:34105:observer;34106", leaving: "8,9", version: 7},
		{leaving: "h3", version: -1}, {leaving: " 99 ", version: -1}, {leaving: "-5", version: -1},
		{leaving: "1,2,3", version: -1}, {leaving: "2,3", version: -1},
		{members: "garbage", version: -1}, {members: "server.1=localhost:33101:33111;33121", version: -1},
		{members: observer + "\nfoo=bar", version: -1},
		{members: "server.7=127.0.0.1:1:2;3,server.8=127.0.0.1:4:5;6,server.9=127.0.0.1:7:8;9", version: -1},
		{joining: observer, version: -1}, {joining: with("observer;34103", "OBSERVER;localhost:34104"),
			version: -1}, {joining: voter, leaving: "9,0", version: -1},
		{joining: "server.5=127.0.0.1:34501:34502;34503", version: -1},
		{joining: "server.6=127.0.0.1:34601:34602;34603", version: -1},
		{joining: strings.Replace(voter, ";", ":observer;", 1), version: -1},
		{joining: strings.NewReplacer(";", ":observer;", "34401", "34411").Replace(voter), version: -1},
		{joining: voter, leaving: "4", version: -1}, {leaving: "4,5", version: -1},
	}
	answers := map[cluster.Kind][]answered{}
	for _, kind := range []cluster.Kind{cluster.ZooKeeper, cluster.Zlockd} {
		e := cluster.Run(t, cluster.Options{Kind: kind, Nodes: 3, Config: []string{"reconfigEnabled=true"},
			Flags: []string{"--super-digest", superPw},
			JVM:   []string{"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + superPw}})
		anybody, super := reconfigurer(t, e, ""), reconfigurer(t, e, "super:pw")
		for _, q := range list {
			answers[kind] = append(answers[kind], answered{anybody(q), super(q)})
		}
		e.Close()
	}
	for i, q := range list {
		real, ours := answers[cluster.ZooKeeper][i], answers[cluster.Zlockd][i]
		if ours.anybody == zk.ErrNoAuth.Error() { // zlockd checks the rights first: docs/compatibility.md
			real.anybody = ours.anybody
		}
		if real != ours {
			t.Errorf("%+v\nZooKeeper %+v\nzlockd    %+v", q, real, ours)
		}
	}
}

// reconfigurer() returns a function that sends a request as the client `who`, and returns the answer.
func reconfigurer(t *testing.T, e *cluster.Ensemble, who string) func(asked) string {
	t.Helper()
	c, _, err := zk.Connect(strings.Split(e.Addrs(), ","), 30*time.Second,
		zk.WithLogger(log.New(io.Discard, "", 0)))
	must.OK(t, err)
	t.Cleanup(c.Close)
	if who != "" {
		must.OK(t, c.AddAuth("digest", []byte(who)))
	}
	words := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, ",")
	}
	var ahead int64 // mzxid of a configuration minus its version, plus one, so that 0 means not known yet
	return func(q asked) string {
		var err error
		if q.members != "" {
			_, err = c.Reconfig(words(q.members), q.version)
		} else {
			_, err = c.IncrementalReconfig(words(q.joining), words(q.leaving), q.version)
		}
		if err != nil {
			return err.Error()
		}
		text, stat, err := c.Get("/zookeeper/config")
		if err != nil {
			return err.Error()
		}
		lines := strings.Split(string(text), "\n")
		_, version := config.Cut(string(text))
		// The version of a configuration counts changes, as zxids do, but in zlockd it starts at another number:
		// docs/compatibility.md.
		if ahead == 0 {
			ahead = stat.Mzxid - version + 1
		}
		if stat.Mzxid-version+1 != ahead {
			return fmt.Sprintf("mzxid %x and version %x count differently", stat.Mzxid, version)
		}
		lines = slices.DeleteFunc(lines[:len(lines)-1], func(l string) bool {
			return l[:9] >= "server.1=" &&
				l[:9] <= "server.3="
		})
		return strings.Join(lines, " ")
	}
}

const saslUsers = `Server {
	org.apache.zookeeper.server.auth.DigestLoginModule required
	user_root="top secret"
	user_jaasuser="jaas_password";
};
`

const saslClient = `Client {
	org.apache.zookeeper.server.auth.DigestLoginModule required
	username="root" password="top secret";
};
`

// TestSASL lets kazoo and the Java client authenticate by SASL DIGEST-MD5 as users of a JAAS file, with right
// and with wrong passwords.
func TestSASL(t *testing.T) {
	beside(t)
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py",
		"/usr/share/zookeeper/bin/zkCli.sh")
	dir := t.TempDir()
	write := func(name, text string) (file string) {
		file = filepath.Join(dir, name)
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	users, client := write("server.jaas", saslUsers), write("client.jaas", saslClient)
	e := cluster.Run(t, cluster.Options{Kind: cluster.Zlockd, Dev: true, Flags: []string{"--sasl-users", users,
		"--sasl-super", "root"}})
	run := func(cmd *exec.Cmd) string {
		timer := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
		defer timer.Stop()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		return string(out)
	}
	run(exec.Command("/usr/bin/python3", "-B", "-W", "ignore", "testdata/kazoo/sasl.py", e.Addrs()))

	var out string
	// Another thread of the client writes SaslAuthenticated. The client may end before that: then run it again.
	for try := 0; try < 5 && !strings.Contains(out, "SaslAuthenticated"); try++ {
		cli := exec.Command("/usr/share/zookeeper/bin/zkCli.sh", "-server", e.Addrs(), "whoami")
		cli.Env = append(os.Environ(), "CLIENT_JVMFLAGS=-Djava.security.auth.login.config="+client)
		out = run(cli)
	}
	for _, want := range []string{"SaslAuthenticated", "sasl: root", "super: "} {
		expect.Has(t, out, want, "the Java client does not see %q", want)
	}
}

// The tests below run the lock programs of well-known articles, with the clients that the articles use.
// TestHerdAndHerdFreeSharedLocks counts how many waiters each lock wakes.

// TestZkCliSharedLock replays a shared lock made by hand in zkCli.sh.
func TestZkCliSharedLock(t *testing.T) {
	t.Parallel()
	replay(t, freshTarget(t, cluster.Options{Nodes: 1}), "sharedlock")
}

// TestTutorialLock runs the tutorial's lock with its fifteen contenders. If the program misses a wake-up, it
// waits for half a minute.
func TestTutorialLock(t *testing.T) {
	beside(t)
	driver{name: "tutorial", args: javaDriver(t, "TutorialLock"), least: 2, keys: 1,
		timeout: 10 * time.Minute}.run(t, startTarget(t, generous()))
}
