//go:build stock

package stock

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestCClient runs libzookeeper_mt. The library ends its process when it gets an unexpected reply, so the
// driver's orderly end is a check too.
func TestCClient(t *testing.T) {
	beside(t)
	need(t, "gcc", "/usr/include/zookeeper/zookeeper.h")
	bin := filepath.Join(scratch, "c-driver")
	out, err := exec.Command("gcc", "-O1", "-Wall", "-DTHREADED", "-o", bin, "testdata/c/driver.c",
		"testdata/c/checks.c", "-lzookeeper_mt", "-lpthread").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	driver{name: "c", args: []string{bin}, least: 9, keys: 1}.run(t, startTarget(t, generous()))
}

// TestCliMt drives cli_mt, the C client's shell.
func TestCliMt(t *testing.T) {
	beside(t)
	const cli = "/usr/lib/zookeeper/bin/cli_mt"
	need(t, cli)
	g := startTarget(t, generous())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, cli, g.String())
	in := must.Get(cmd.StdinPipe())(t)
	out := new(must.Text)
	cmd.Stdout, cmd.Stderr = out, out
	must.OK(t, cmd.Start())
	out.Await(t, "CONNECTED_STATE")
	root := "/cli" + strings.ReplaceAll(time.Now().Format("150405.000"), ".", "")
	for _, line := range []string{
		"create " + root, "create +s " + root + "/s-", "create +e " + root + "/e", "create +c " + root + "/c",
		"create2 " + root + "/two", "set " + root + " hello", "get " + root, "ls " + root, "ls2 " + root,
		"exists " + root + "/nope", "wexists " + root + "/born", "create " + root + "/born", "aget " + root,
		"delete " + root + "/born", "addauth digest u:p", "sync " + root, "config", "create " + root + "/last",
	} {
		in.Write([]byte(line + "\n"))
	}
	out.Await(t, "name = "+root+"/last") // then all commands before it are answered, too
	in.Write([]byte("quit\n"))
	expect.OK(t, cmd.Wait(), "cli_mt")
	for _, want := range []string{
		"Creating [" + root + "/s-] node", "name = " + root + "/s-0000000000", "name = " + root + "/e", "name = " +
			root + "/c",
		"value_len = 5", "CREATED_EVENT state = CONNECTED_STATE for path " + root + "/born", "Error -101 for " +
			root + "/nope", "hello",
	} {
		expect.Has(t, out.String(), want, "cli_mt did not print")
	}
	for _, bad := range []string{"rc = -4", "rc = -116", "ASSERT"} {
		expect.That(t, !strings.Contains(out.String(), bad), "cli_mt printed %q", bad)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestNodeClient runs node-zookeeper-client, which npm installs into a temporary directory. If npm cannot
// install this client, the test is skipped.
func TestNodeClient(t *testing.T) {
	beside(t)
	need(t, "node", "npm")
	dir := filepath.Join(scratch, "node")
	must.OK(t, os.CopyFS(dir, os.DirFS("testdata/node")))
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
		"--fetch-retries=4", "--fetch-timeout=30000")
	npm.Dir, npm.WaitDelay = dir, time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install node-zookeeper-client: %v\n%s", err, out)
	}
	driver{
		name: "node", args: []string{"node", filepath.Join(dir, "driver.js")}, least: 7, keys: 1,
	}.run(t, startTarget(t, generous()))
}

// javaClasses are Debian's jars of the Java clients.
const javaClasses = "/usr/share/java/zookeeper.jar:/usr/share/java/curator-client.jar:" +
	"/usr/share/java/curator-framework.jar:/usr/share/java/curator-recipes.jar:/usr/share/java/zookeeper-recipes-lock.jar:/usr/share/java/slf4j-simple.jar"

var compileOnce = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "java")
	sources, err := filepath.Glob("testdata/java/*.java")
	if err != nil {
		return "", err
	}
	args := append([]string{"-J-XX:TieredStopAtLevel=1", "-Xlint:-options", "-nowarn", "-d", dir, "-cp",
		javaClasses}, sources...)
	cmd := exec.Command("javac", args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return dir, cmd.Run()
})

// javaDriver compiles the Java drivers, once for the whole run, and returns the command that runs one.
func javaDriver(t *testing.T, class string) []string {
	t.Helper()
	need(t, "javac", "java", "/usr/share/java/zookeeper.jar", "/usr/share/java/curator-recipes.jar")
	dir, err := compileOnce()
	must.OK(t, err, "javac")
	return []string{
		"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", dir + ":" + javaClasses, class,
	}
}

// scratch is a directory that is removed at the end of the run.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "zlockd-stock-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// TestJavaClient runs the client of ZooKeeper 3.8 itself.
func TestJavaClient(t *testing.T) {
	beside(t)
	driver{name: "java", args: javaDriver(t, "PlainDriver"), least: 22}.run(t, startTarget(t, generous()))
}

// TestCurator runs Curator 5: every recipe, contended by clients in one JVM and in several.
func TestCurator(t *testing.T) {
	beside(t)
	o := generous()
	const sweep = "znode.container.checkIntervalMs=5000" // ZooKeeper reads it only as a system property
	o.JVM = append(o.JVM, "-D"+sweep)
	o.Config = []string{sweep}
	driver{name: "curator", args: javaDriver(t, "CuratorDriver"), least: 40, keys: 8}.run(t, startTarget(t, o))
}

// TestKazoo runs Debian's kazoo: plain operations, every recipe, and locks contended by processes.
func TestKazoo(t *testing.T) {
	beside(t)
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py")
	g := startTarget(t, generous())
	script := must.Get(filepath.Abs("testdata/kazoo/driver.py"))(t)
	driver{
		name:  "kazoo",
		args:  []string{"/usr/bin/python3", "-B", script},
		least: 41,
		keys:  6,
	}.run(t, g)
}
