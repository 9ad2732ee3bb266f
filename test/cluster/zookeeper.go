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
	"github.com/zlockd/zlockd/tree"
)

// ZooConfig says what a ZooKeeper does otherwise than it is delivered. All
// four-letter words are allowed in any case.
type ZooConfig struct {
	TickTime          time.Duration // 0: 2 s
	MinSessionTimeout time.Duration // 0: two ticks
	MaxSessionTimeout time.Duration // 0: twenty ticks
	TTL               bool          // nodes with a time to live (extendedTypesEnabled)
	EnforceQuota      bool          // hard quotas are enforced
	Reconfig          bool          // reconfig is allowed
	ReadOnly          bool          // serves reads without a quorum, with local sessions
	Super             string        // "user:password" of the super user; "" for none
	ContainerInterval time.Duration // sweep of containers and TTL nodes; 0: one minute
	NoFsync           bool          // do not force the log to disk (only behaviour is of interest)
	Replicated        bool          // one server, but run as an ensemble of one
}

// smallJVM is a Java machine that starts fast.
var smallJVM = []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// zooPatience bounds the wait for a ZooKeeper: a busy machine may start several Java machines at once.
const zooPatience = 90 * time.Second

// RequireZooKeeper ends the test unless it was built with the tag stock and
// ZooKeeper can be run here. Without the tag no test may depend on what is
// installed; a machine with CI=true or ZLTEST_REQUIRE_STOCK=1 may not skip.
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

// StartZooKeeper runs a standalone ZooKeeper until the test ends, and waits until it serves.
func StartZooKeeper(t testing.TB, c ZooConfig, lines ...string) *Server {
	t.Helper()
	e := PrepareZooKeepers(t, 1, c, lines...)
	e.StartAll()
	return e.Servers[0]
}

// PrepareZooKeepers lays out n ZooKeepers without starting them; lines are
// added to their zoo.cfg. They end with the test.
func PrepareZooKeepers(t testing.TB, n int, c ZooConfig, lines ...string) *Ensemble {
	t.Helper()
	RequireZooKeeper(t)
	e := must.Get(Prepare(Options{Kind: ZooKeeper, Nodes: n, Zoo: c, JVM: smallJVM, Config: lines,
		ReadyTimeout: zooPatience}))(t)
	e.attach(t)
	return e
}

// properties are the settings that ZooKeeper reads from system properties.
func (c *ZooConfig) properties() (flags []string) {
	set := func(on bool, property string) {
		if on {
			flags = append(flags, "-D"+property)
		}
	}
	set(c.TTL, "zookeeper.extendedTypesEnabled=true")
	set(c.EnforceQuota, "zookeeper.enforceQuota=true")
	set(c.NoFsync, "zookeeper.forceSync=no")
	set(c.ReadOnly, "readonlymode.enabled=true")
	set(c.Super != "", "zookeeper.DigestAuthenticationProvider.superDigest="+tree.DigestID(c.Super).ID)
	set(c.ContainerInterval > 0, fmt.Sprintf("znode.container.checkIntervalMs=%d",
		c.ContainerInterval.Milliseconds()))
	return flags
}

// lines are the settings that ZooKeeper reads from its file.
func (c *ZooConfig) lines() (list []string) {
	set := func(on bool, key string, value any) {
		if on {
			list = append(list, fmt.Sprint(key, "=", value))
		}
	}
	tick := c.TickTime
	if tick == 0 {
		tick = 2 * time.Second
	}
	set(true, "tickTime", tick.Milliseconds())
	set(c.MinSessionTimeout > 0, "minSessionTimeout", c.MinSessionTimeout.Milliseconds())
	set(c.MaxSessionTimeout > 0, "maxSessionTimeout", c.MaxSessionTimeout.Milliseconds())
	set(c.Reconfig, "reconfigEnabled", true)
	set(c.ReadOnly, "localSessionsEnabled", true)
	set(c.Replicated, "standaloneEnabled", false)
	return list
}

// ClassPath is what Debian's ZooKeeper and its clients run with. The jar's manifest names the rest.
const ClassPath = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"

// ErrMissing means that Java or ZooKeeper are not installed.
var ErrMissing = errors.New("not installed")

// zookeeperArgs writes each server's zoo.cfg and makes its command line. fsync
// stays on unless a test says otherwise: forceSync is ZooKeeper's default.
func (e *Ensemble) zookeeperArgs(o Options) error {
	jvm := append(o.Zoo.properties(), o.JVM...)
	var members []string
	if len(e.Servers) > 1 || o.Zoo.Replicated {
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
			"initLimit=20", "syncLimit=10", "maxClientCnxns=0",
			"admin.enableServer=false", "4lw.commands.whitelist=*",
		}, o.Zoo.lines()...)
		cfg = append(append(cfg, members...), o.Config...)
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
