//go:build stock

package stock

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// ownServers skips a suite that starts servers of its own, where others are to
// be tested, and returns the zlockd to start.
func ownServers(t *testing.T) (zlockd string) {
	t.Helper()
	if os.Getenv("ZLOCKD_STOCK_SERVERS") != "" || os.Getenv("ZLOCKD_STOCK_TARGET") == "zookeeper" {
		t.Skip("these tests start servers of their own, which are zlockd")
	}
	zlockd = must.Get(cluster.Binary())(t)
	return zlockd
}

// suite is a client's own tests as a program.
type suite struct {
	cmd    *exec.Cmd
	ended  *regexp.Regexp // finds how a test ended: its name, and a word
	passed string         // the word when it passed
	least  int            // that must pass
}

// run turns the tests of the suite into subtests.
func (s suite) run(t *testing.T) {
	t.Helper()
	out, err := s.cmd.CombinedOutput()
	passed := 0
	name, word := s.ended.SubexpIndex("name"), s.ended.SubexpIndex("word")
	for _, m := range s.ended.FindAllStringSubmatch(string(out), -1) {
		t.Run(m[name], func(t *testing.T) {
			switch {
			case m[word] == s.passed:
				passed++
			case strings.HasPrefix(m[word], "SKIP"):
				t.Skip("skipped by the client")
			default:
				t.Error(m[word])
			}
		})
	}
	if err != nil || passed < s.least {
		t.Errorf("%d passed, %d expected: %v\n%s", passed, s.least, err, out[max(0, len(out)-20_000):])
	}
}

// TestCClientsOwnTests runs those tests of the C client that start servers: its
// TestReconfigServer, on three whose ids begin at 0, Zookeeper_readOnly and
// Zookeeper_SASLAuth.
func TestCClientsOwnTests(t *testing.T) {
	zlockd := ownServers(t)
	need(t, "gcc", "g++", "java", "apt-get", "/usr/share/java/zookeeper-jute.jar", "/usr/include/cppunit/Test.h",
		"/usr/include/sasl/sasl.h", "/usr/include/openssl/ssl.h", "openssl")
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cache := must.Get(os.UserCacheDir())(t)
	source, dir := filepath.Join(cache, "zlockd-stock"), t.TempDir()
	for _, d := range []string{source, filepath.Join(dir, "bin")} {
		must.OK(t, os.MkdirAll(d, 0o755))
	}
	script := func(name string, args ...string) *exec.Cmd {
		path := must.Get(filepath.Abs(filepath.Join("testdata/suites", name)))(t)
		cmd := exec.CommandContext(ctx, "sh", append([]string{path}, args...)...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		return cmd
	}
	server := filepath.Join(dir, "bin", "zkServer.sh")
	text := must.Get(os.ReadFile("testdata/suites/zkServer.sh"))(t)
	must.OK(t, os.WriteFile(server, text, 0o755))
	for _, cmd := range []*exec.Cmd{script("source.sh", source),
		script("build-c.sh", filepath.Join(source, "zookeeper"), server)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	ended := regexp.MustCompile(`(?m)^\w+::(?P<name>\w+)\s* : (?:elapsed \d+ : )?(?P<word>OK|assertion|error)`)
	t.Cleanup(func() { // a test that ends by an assertion of C leaves its servers behind
		if out, err := exec.Command("find", dir, "-name", "*.pid", "-exec", "pkill", "-F", "{}",
			";").CombinedOutput(); err != nil {
			t.Logf("end servers: %v %s", err, out)
		}
	})
	for name, count := range map[string]int{"TestReconfigServer": 5, "Zookeeper_readOnly": 2,
		"Zookeeper_SASLAuth": 5} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(dir, "tests"), name)
			cmd.Dir, cmd.WaitDelay = dir, time.Second
			cmd.Env = append(os.Environ(), "ZLOCKD_BIN="+zlockd, "ZKROOT="+dir)
			suite{cmd: cmd, ended: ended, passed: "OK", least: count}.run(t)
		})
	}
}
