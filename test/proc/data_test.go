package proc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// TestFigures measures what docs/data.md says of a million nodes of 100 bytes.
// It needs a quiet machine and runs only when asked for by ZLOCKD_FIGURES.
func TestFigures(t *testing.T) {
	if os.Getenv("ZLOCKD_FIGURES") == "" {
		t.Skip("measures; set ZLOCKD_FIGURES=1")
	}
	const nodes = 1_000_000
	bin, dir := cluster.Build(t), t.TempDir()
	zoo, ours := filepath.Join(dir, "zoo"), filepath.Join(dir, "ours")
	fill(t, zoo, nodes)
	measure := func(args ...string) { t.Log(measured(t, bin, args...)) }
	measure("import", "--from", zoo, "--data-dir", ours)
	measure("export", "--data-dir", ours, "--to", filepath.Join(dir, "back"))
	measure("verify", zoo, ours)

	s := serve(t, bin, ours)
	t.Logf("%-8s %6.2f s to the first answer, %d MiB", "start", s.took.Seconds(), s.rss()>>20)
	backup := filepath.Join(dir, "backup")
	s.backup(t, filepath.Join(dir, "idle"))
	s.underLoad(t, backup)
	s.stop()
	begun := time.Now()
	measure("restore", backup, "--data-dir", filepath.Join(dir, "restored"))
	s = serve(t, bin, filepath.Join(dir, "restored"))
	s.stop()
	t.Logf("restore and first answer: %.2f s", time.Since(begun).Seconds())
}

// measured() runs a command and returns its costs. The command reports its own memory: the system's figure
// for a child process starts with the memory of the parent.
func measured(t *testing.T, bin string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	must.OK(t, cmd.Start())
	most, stop := int64(0), make(chan struct{})
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				most = max(most, peakRSS(cmd.Process.Pid))
			}
		}
	}()
	err := cmd.Wait()
	took := time.Since(begun)
	close(stop)
	<-polled
	output(t, out.String(), err)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return fmt.Sprintf("%-8s %6.2f s (%.2f s of processor), at most %d MiB", args[0], took.Seconds(),
		cpu.Seconds(), most>>10)
}

// peakRSS returns the largest memory that a process has had, in KiB.
func peakRSS(pid int) (kib int64) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	fmt.Sscan(rest, &kib)
	return kib
}

// fill() writes a ZooKeeper's directory: nine tenths of the nodes in a snapshot, the rest in the log.
func fill(t *testing.T, dir string, nodes int) {
	t.Helper()
	sub := filepath.Join(dir, "version-2")
	must.OK(t, os.MkdirAll(sub, 0o700))
	tree := zkfiles.NewTree()
	var log []byte
	snap := 0
	for i := range nodes {
		path := fmt.Sprintf("/d%04d/n%07d", i%1000, i)
		if i < 1000 {
			path = fmt.Sprintf("/d%04d", i)
		}
		x := &zkfiles.Txn{Zxid: int64(i + 1), Time: 1, Type: jute.OpCreate,
			Ops: []zkfiles.Op{{Type: jute.OpCreate, Path: path, Data: []byte(fmt.Sprintf("%0100d", i)),
				ACL: jute.WorldAnyone, Cversion: -1}}}
		if i >= nodes/10*9 {
			if log == nil {
				snap = i
				writeSnapshot(t, filepath.Join(sub, fmt.Sprintf("snapshot.%x", i)), tree)
				log = zkfiles.AppendLogHeader(nil, 0)
			}
			log = zkfiles.AppendLogEntry(log, x)
			continue
		}
		must.OK(t, tree.Apply(x))
	}
	must.OK(t, os.WriteFile(filepath.Join(sub, fmt.Sprintf("log.%x", snap+1)), log, 0o600))
}

// output() returns what a command printed. If the command failed, the test ends with that text.
func output(t testing.TB, out string, err error) string {
	t.Helper()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

func writeSnapshot(t *testing.T, path string, z *zkfiles.Tree) {
	t.Helper()
	f := must.Get(os.Create(path))(t)
	b := bufio.NewWriter(f)
	w := must.Get(zkfiles.NewSnapshotWriter(b, -1, nil, z.Nodes.ACLs()))(t)
	z.Nodes.Walk(func(path string, n tree.Info) bool {
		must.OK(t, w.Node(path, &n))
		return true
	})
	must.OK(t, w.Close(z.Zxid))
	must.OK(t, b.Flush())
	must.OK(t, f.Close())
}

// running is a server that runs as a process.
type running struct {
	cmd           *exec.Cmd
	client, admin string
	took          time.Duration
}

// superFlag is the digest of super:test, for --super-digest.
const superFlag = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="

func serve(t *testing.T, bin, data string, args ...string) *running {
	t.Helper()
	cmd := exec.Command(bin, append([]string{"--data-dir", data, "--client-addr", "127.0.0.1:0", "--admin-addr",
		"127.0.0.1:0", "--super-digest", superFlag}, args...)...)
	out := must.Get(cmd.StdoutPipe())(t)
	begun := time.Now()
	must.OK(t, cmd.Start())
	r := &running{cmd: cmd}
	t.Cleanup(r.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	output(t, line, err)
	go io.Copy(io.Discard, out)
	for _, f := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(f, "client="); ok {
			r.client = v
		}
		if v, ok := strings.CutPrefix(f, "admin="); ok {
			r.admin = v
		}
	}
	c := dial(t, r.client)
	defer c.Close(context.Background())
	must.Get(c.Exists(t.Context(), "/"))(t)
	r.took = time.Since(begun)
	return r
}

func dial(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := must.Get(zk.Dial(ctx, addr, zk.Options{Timeout: longSession, Auth: []zk.Auth{
		{Scheme: "digest", Secret: []byte(super)}}}))(t)
	return c
}

const (
	longSession = 10 * time.Minute // so long that no session expires while the data are moved
	super       = "super:test"
)

func (r *running) stop() {
	if r.cmd.ProcessState == nil {
		r.cmd.Process.Signal(syscall.SIGTERM)
		r.cmd.Wait()
	}
}

func (r *running) rss() int64 { return rss(r.cmd.Process.Pid) }

func rss(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, resident int64
	fmt.Sscan(string(b), &size, &resident)
	return resident * int64(os.Getpagesize())
}

// zlock() runs a command of zlock against the server's admin port.
func (r *running) zlock(t *testing.T, args ...string) string {
	t.Helper()
	bin := cluster.Zlock(t)
	auth := filepath.Join(t.TempDir(), "auth")
	must.OK(t, os.WriteFile(auth, []byte("digest:"+super+"\n"), 0o600))
	out, err := exec.Command(bin, append(args, "--admin-addr", r.admin, "--auth-file", auth)...).CombinedOutput()
	return output(t, string(out), err)
}

func (r *running) backup(t *testing.T, file string) { t.Log(r.zlock(t, "backup", file)) }

// underLoad takes a backup while writers write, and compares their slowest second with the mean.
func (r *running) underLoad(t *testing.T, file string) {
	var done atomic.Bool
	var writes atomic.Int64
	for i := range 16 {
		c := dial(t, r.client)
		go func() {
			defer c.Close(context.Background())
			for !done.Load() {
				if _, err := c.Set(context.Background(), fmt.Sprintf("/d%04d", i), []byte("x"), -1); err == nil {
					writes.Add(1)
				}
			}
		}()
	}
	var seconds []int64
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	count := func(n int) {
		for range n {
			<-tick.C
			seconds = append(seconds, writes.Swap(0))
		}
	}
	count(6)
	before := slices.Clone(seconds[1:])
	taken := make(chan struct{})
	go func() { defer close(taken); r.backup(t, file) }()
	seconds = nil
	for waiting := true; waiting; {
		count(1)
		select {
		case <-taken:
			waiting = false
		default:
		}
	}
	done.Store(true)
	mean := int64(0)
	for _, n := range before {
		mean += n
	}
	t.Logf("writes a second before the backup %v, while it was taken %v: slowest %d %% of the mean before",
		before, seconds, 100*slices.Min(seconds)*int64(len(before))/mean)
}

// answerOf runs a command and returns the last JSON object that it prints.
func answerOf(t *testing.T, fails bool, bin string, args ...string) map[string]any {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must.Equal(t, err != nil, fails, "%v: %v %s", args, err, out)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var a map[string]any
	for _, line := range lines {
		a = nil
		output(t, line, json.Unmarshal([]byte(line), &a))
		expect.Equal(t, a["v"], 1.0, "%v: %s", args, line)
	}
	return a
}

// TestAnswersInJSON compares the fields of every answer with those that docs/data.md names.
func TestAnswersInJSON(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers as processes")
	}
	text := must.Get(os.ReadFile("../../docs/data.md"))(t)
	bin, dir := cluster.Build(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	fill(t, at("zoo"), 2000)
	check := func(row string, a map[string]any) {
		t.Helper()
		_, rest, ok := strings.Cut(string(text), "| "+row+" |")
		line, _, _ := strings.Cut(rest, "\n")
		must.That(t, ok, "docs/data.md has no row %s", row)
		for field := range a {
			expect.That(t, field == "v" || strings.Contains(line, "`"+field+"`"),
				"%s: %s is not described", row, field)
		}
	}
	const makes = "`zlockd import`, `export`, `restore`"
	a := answerOf(t, false, bin, "import", "-o", "json", "--from", at("zoo"), "--data-dir", at("ours"))
	check(makes, a)
	expect.Equal(t, a["nodes"], 2004.0, "import: nodes")
	expect.Equal(t, a["zxid"], "0x7d0", "import: zxid")
	expect.Equal(t, a["command"], "import", "import: command")
	expect.Equal(t, len(a), 10, "import: length %v", a)
	check(makes, answerOf(t, false, bin, "export", "--json", "--data-dir", at("ours"), "--to", at("back")))
	a = answerOf(t, false, bin, "verify", "--json", at("zoo"), at("ours"))
	check("`zlockd verify`", a)
	expect.Equal(t, a["equal"], true, "verify: %v", a)
	r := serve(t, bin, at("ours"))
	object := func(args ...string) (a map[string]any) {
		t.Helper()
		out := r.zlock(t, args...)
		output(t, out, json.Unmarshal([]byte(out), &a))
		expect.Equal(t, a["v"], 1.0, "%v: %s", args, out)
		return a
	}
	const gives = "`zlock backup`, `export`"
	check(gives, object("backup", "-o", "json", at("backup")))
	check(gives, object("export", "-o", "json", at("snapshot")))
	name, _ := os.ReadFile(filepath.Join(at("ours"), "identity"))
	var identity struct{ Cluster string }
	must.OK(t, json.Unmarshal(name, &identity))
	check("`zlock restore`", object("restore", "-o", "json", at("backup"), "--yes", identity.Cluster))
	r.stop()
	check(makes, answerOf(t, false, bin, "restore", "--json", at("backup"), "--data-dir", at("restored")))
	a = answerOf(t, true, bin, "recover", "--json", "--data-dir", at("restored"))
	check("`zlockd recover`", a)
	expect.Equal(t, a["done"], false, "recover: %v", a)
	a = answerOf(t, false, bin, "recover", "--json", "--yes", "--data-dir", at("restored"))
	check("`zlockd recover`", a)
	expect.Equal(t, a["done"], true, "recover: done")
	expect.That(t, a["newCluster"] != a["cluster"], "recover: %v", a)
}

// TestDocumentIsFollowed runs the shell parts of docs/data.md, one after another,
// in an empty directory with a ZooKeeper's data.
func TestDocumentIsFollowed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers as processes")
	}
	text := must.Get(os.ReadFile("../../docs/data.md"))(t)
	var script strings.Builder
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		script.WriteString(m[1])
	}
	dir, bin := t.TempDir(), t.TempDir()
	fill(t, filepath.Join(dir, "zookeeper"), 2000)
	zlock := cluster.Zlock(t)
	for name, path := range map[string]string{"zlockd": cluster.Build(t), "zlock": zlock} {
		must.OK(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	ports := must.Get(cluster.FreePorts(2))(t)
	client, admin := ports[0], ports[1]
	cmd := exec.CommandContext(t.Context(), "bash", "-exc", "set -m\n"+script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ZLOCKD_CLIENT_ADDR="+client,
		"ZLOCKD_ADMIN_ADDR="+admin, "ZLOCK_ADMIN="+admin)
	out, err := cmd.CombinedOutput()
	output(t, string(out), err)
	if n := strings.Count(string(out), "equal: "); n != 5 {
		t.Errorf("%d comparisons of 5:\n%s", n, out)
	}
	if !strings.Contains(string(out), fmt.Sprintf("snapshot.%x", 2000)) {
		t.Errorf("no snapshot was exported:\n%s", out)
	}
}
