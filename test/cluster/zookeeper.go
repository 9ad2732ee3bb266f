package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree/acl"
)

// Super returns the line of zoo.cfg that makes "user:password" the super user. Both kinds of servers read it.
func Super(credential string) string {
	return "DigestAuthenticationProvider.superDigest=" + acl.DigestID(credential).ID
}

// smallJVM is a Java machine that starts fast.
var smallJVM = []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// patience bounds the wait for a server: a busy machine may start several Java machines at once.
const patience = 90 * time.Second

// RequireZooKeeper ends the test unless it was built with the tag stock and ZooKeeper can be run here.
// Without the tag no test may depend on installed programs. With the tag, a machine with CI=true or
// ZLTEST_REQUIRE_STOCK=1 must not skip the test.
func RequireZooKeeper(t testing.TB) {
	t.Helper()
	if !slices.Contains(strings.Split(tags, ","), "stock") {
		t.Skip("needs a ZooKeeper: make test-stock")
	}
	_, err := zookeeperCommand(nil, "")
	switch {
	case err == nil:
	case os.Getenv("ZLTEST_REQUIRE_STOCK") == "1" || strings.EqualFold(os.Getenv("CI"), "true"):
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// StartZooKeeper runs a standalone ZooKeeper with these lines of zoo.cfg until the test ends, and waits until
// it serves.
func StartZooKeeper(t testing.TB, lines ...string) *Server {
	t.Helper()
	e := PrepareZooKeepers(t, 1, lines...)
	e.StartAll()
	return e.Servers[0]
}

// PrepareZooKeepers lays out n ZooKeepers without starting them, and adds `lines` to their zoo.cfg. The
// servers end with the test.
func PrepareZooKeepers(t testing.TB, n int, lines ...string) *Ensemble {
	t.Helper()
	RequireZooKeeper(t)
	e := must.Get(Prepare(Options{Kind: ZooKeeper, Nodes: n, JVM: smallJVM, Config: lines}))(t)
	e.attach(t)
	return e
}

// ClassPath is the class path of Debian's ZooKeeper and its clients. The manifest of zookeeper.jar names the
// other jars.
const ClassPath = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"

// ErrMissing means that Java or ZooKeeper are not installed.
var ErrMissing = errors.New("not installed")

// zookeeperArgs writes each server's zoo.cfg and makes its command line. fsync stays on, because forceSync is
// ZooKeeper's default, unless a test turns it off. Two kinds of settings, which zlockd reads from zoo.cfg,
// move to the command line, because ZooKeeper reads them only there.
func (e *Ensemble) zookeeperArgs(o Options) error {
	var jvm, lines, members []string
	for _, line := range o.Config {
		if strings.HasPrefix(line, "znode.container.") || strings.HasPrefix(line, "readonlymode.") {
			jvm = append(jvm, "-D"+line)
		} else {
			lines = append(lines, line)
		}
	}
	jvm = append(jvm, o.JVM...)
	if len(e.Servers) > 1 || slices.Contains(lines, "standaloneEnabled=false") {
		for _, m := range e.Servers {
			_, election, err := net.SplitHostPort(m.Election)
			if err != nil {
				return err
			}
			role := "participant"
			if slices.Contains(e.Observers(), m) {
				role = "observer"
			}
			members = append(members, fmt.Sprintf("server.%d=%s:%s:%s;%s", m.ID, m.Peer, election, role, m.Client))
		}
	}
	for _, s := range e.Servers {
		host, port, err := net.SplitHostPort(s.Client)
		if err != nil {
			return err
		}
		cfg := append([]string{
			"dataDir=" + s.Data(), "clientPortAddress=" + host, "clientPort=" + port,
			"tickTime=2000", "initLimit=20", "syncLimit=10", "maxClientCnxns=0",
			"admin.enableServer=false", "4lw.commands.whitelist=*",
		}, append(members, lines...)...)
		file := filepath.Join(s.Dir, "zoo.cfg")
		if err := os.MkdirAll(s.Data(), 0o700); err != nil {
			return err
		}
		files := map[string]string{file: strings.Join(cfg, "\n") + "\n"}
		if len(members) > 0 {
			files[filepath.Join(s.Data(), "myid")] = fmt.Sprintln(s.ID)
		}
		for name, text := range files {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				return err
			}
		}
		if s.Args, err = zookeeperCommand(jvm, file); err != nil {
			return err
		}
	}
	return nil
}

// zookeeperCommand is the command line of a ZooKeeper with a configuration file.
// It logs warnings to standard error. The error says what to install.
func zookeeperCommand(jvm []string, file string) ([]string, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("%w: java (on Debian: apt-get install openjdk-17-jdk-headless)", ErrMissing)
	}
	for jar := range strings.SplitSeq(ClassPath, ":") {
		if _, err := os.Stat(jar); err != nil {
			return nil, fmt.Errorf("%w: %s (on Debian: apt-get install zookeeper libslf4j-java)", ErrMissing, jar)
		}
	}
	args := []string{java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.jmx.log4j.disable=true"}
	return append(append(args, jvm...), "-cp", ClassPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
		file), nil
}
