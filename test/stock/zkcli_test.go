//go:build stock

package stock

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// difference is a case in which zlockd may answer differently from the recorded ZooKeeper 3.8.
type difference struct {
	script string
	cmd    string   // the command, or its beginning
	nth    int      // which occurrence of cmd, counted from 0
	send   string   // sent instead of cmd, if not empty
	out    []string // expected output instead of the recorded one
	err    []string
	reason string
}

// differences lists where zlockd differs. In addition, only the order of zxids is compared, because a failed
// write consumes a zxid in ZooKeeper, but none in zlockd.
var differences = []difference{
	{
		script: "fresh", cmd: "create -t 10000 /demo/ttl x", send: "create -t 10000 /demo/none/ttl x",
		err:    []string{"Node does not exist: /demo/none/ttl"},
		reason: "TTL nodes are on by default; the create must fail here lest all later listings change",
	},
	{
		script: "ttl", cmd: "removewatches /p -a",
		out: []string{"", "WATCHER::", "",
			"WatchedEvent state:SyncConnected type:PersistentWatchRemoved path:/p"},
		reason: "3.9 keeps a persistent watch apart from a one-shot on the same path; 3.8 lost it in ls -w /p",
	},
}

// permit() changes the steps of a transcript to what `differences` expects of zlockd.
func permit(t *testing.T, script string, steps []step, words *strings.Replacer) {
	for _, d := range differences {
		if d.script != script {
			continue
		}
		nth := d.nth
		found := false
		for i := range steps {
			if !strings.HasPrefix(steps[i].cmd, d.cmd) {
				continue
			}
			if nth--; nth >= 0 {
				continue
			}
			found = true
			steps[i].out, steps[i].err = nil, d.err
			for _, line := range d.out {
				steps[i].out = append(steps[i].out, words.Replace(line))
			}
			if d.send != "" {
				steps[i].cmd = d.send
			}
			break
		}
		expect.That(t, found, "permitted difference is stale: %s has no %q", script, d.cmd)
	}
}

// replay() runs a transcript against g.
func replay(t *testing.T, g target, script string, replace ...string) {
	words := strings.NewReplacer(append([]string{"{server}", g.String()}, replace...)...)
	steps := readTranscript(t, "testdata/zkcli/"+script+".txt", words)
	real := g.kind == cluster.ZooKeeper
	// In an ensemble, dataLength of /zookeeper/config differs, because the versions in it have different
	// numbers of digits.
	cmp := comparison{exactZxids: real && script != "ensemble", anyLength: !real && script == "ensemble"}
	if !real {
		permit(t, script, steps, words)
	}
	c := startCli(t, "-server", g.String())
	failures := 0
	for _, want := range steps {
		switch want.cmd {
		case "(start)":
		case "(eof)":
			c.in.Close()
		default:
			must.OK(t, expect.Err(c.in.Write([]byte(want.cmd+"\n"))),
				"line %d: %s", want.line, want.cmd)
		}
		var got step
		got.out, got.err = c.collect(want)
		if d := cmp.differ(want, got); d != "" {
			t.Errorf("line %d: >>> %s\n%s", want.line, want.cmd, d)
			if failures++; failures > 15 {
				t.Fatal("too many differences")
			}
		}
	}
	expect.OK(t, c.cmd.Wait(), "exit")
	t.Logf("%d commands replayed", len(steps))
}

func freshTarget(t *testing.T, o cluster.Options) target {
	t.Helper()
	need(t, zkCli, "java")
	g := startTarget(t, o)
	if g.external {
		t.Skip("the transcripts need a fresh server: unset ZLOCKD_STOCK_SERVERS")
	}
	return g
}

// superPw is super:pw, which the transcripts log in with.
const superPw = "super:0bX78nEegDzJM3ju0iLBEJdWzjg="

func TestZkCliFresh(t *testing.T) {
	t.Parallel()
	replay(t, freshTarget(t, cluster.Options{Nodes: 1}), "fresh")
}

func TestZkCliTTL(t *testing.T) {
	t.Parallel()
	replay(t, freshTarget(t, cluster.Options{
		Nodes: 1,
		JVM: []string{"-Dzookeeper.extendedTypesEnabled=true",
			"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + superPw},
		Flags:  []string{"--super-digest", superPw},
		Config: []string{"znode.container.checkIntervalMs=86400000"}, // containers stay, however slow the client is
	}), "ttl")
}

// TestZkCliOneShot covers commands that are given in the arguments of zkCli.sh, with their exit codes.
func TestZkCliOneShot(t *testing.T) {
	t.Parallel()
	g := freshTarget(t, cluster.Options{Nodes: 1, Config: []string{"maxSessionTimeout=600000"}})
	for _, c := range []struct {
		args      string
		status    int
		out, errs string // a line that stdout must have; the last line of stderr
	}{
		{"ls /", 0, "[zookeeper]", ""},
		{"create /oneshot x", 0, "", "Created /oneshot"},
		{"create -e /oneshot/e x", 0, "", "Created /oneshot/e"},
		{"ls /oneshot", 0, "[e]", ""}, // zkCli.sh exits without closing its session, which lasts long
		{"delete /oneshot", 1, "", "Node not empty: /oneshot"},
		{"bogus", 127, "", "Command not found: Command not found bogus"},
	} {
		cmd := exec.Command(zkCli, append([]string{"-timeout", "600000", "-server", g.String()},
			strings.Fields(c.args)...)...)
		cmd.Env = cliEnv()
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		status := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		// Another thread of the client prints the event, before or after the answer.
		lines := strings.Split(string(out), "\n")
		if status != c.status || c.out != "" && !slices.Contains(lines, c.out) || c.errs != "" &&
			lastLine(errs.String()) != c.errs {
			t.Errorf("zkCli.sh %s: status %d, stdout %q, stderr %q; want %d, %q, %q",
				c.args, status, out, lastLine(errs.String()), c.status, c.out, c.errs)
		}
	}
}

// lastLine returns the last line that the client itself wrote.
func lastLine(s string) string {
	last := ""
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, noLogger) {
			last = line
		}
	}
	return last
}

// TestZkCliEnsemble replays a transcript against three servers, with reconfig.
func TestZkCliEnsemble(t *testing.T) {
	t.Parallel()
	o := cluster.Options{
		Nodes:  3,
		JVM:    []string{"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + superPw},
		Config: []string{"reconfigEnabled=true"},
		Flags:  []string{"--super-digest", superPw},
	}
	g := freshTarget(t, o)
	config := publishedConfig(t, g)
	var words []string
	for i, s := range g.ensemble.Servers {
		peer := s.Peer + s.Election[strings.LastIndex(s.Election, ":"):]
		if g.kind == cluster.Zlockd { // zlockd has one peer port, and makes up the second
			line := regexp.MustCompile(fmt.Sprintf(`server\.%d=([^:]+:\d+):(\d+):participant`,
				i+1)).FindStringSubmatch(config)
			if line == nil || line[1] != s.Peer || strings.HasSuffix(s.Peer, ":"+line[2]) {
				t.Fatalf("server %d, peer address %s: clients want two ports that differ in /zookeeper/config:\n%s", i+1,
					s.Peer, config)
			}
			peer = line[1] + ":" + line[2]
		}
		words = append(words, fmt.Sprintf("{peer%d}", i+1), peer, fmt.Sprintf("{client%d}", i+1), s.Client)
	}
	replay(t, g, "ensemble", words...)
}

// publishedConfig waits until /zookeeper/config names the client addresses of all servers, and returns it.
func publishedConfig(t *testing.T, g target) string {
	t.Helper()
	c, _, err := zk.Connect(g.addrs, 30*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	must.OK(t, err)
	defer c.Close()
	var text []byte
	for range 600 {
		if text, _, err = c.Get("/zookeeper/config"); err == nil &&
			strings.Count(string(text), ";") == len(g.addrs) {
			return string(text)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("/zookeeper/config names no client addresses: %q, %v", text, err)
	return ""
}
