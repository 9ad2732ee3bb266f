//go:build stock

package stock

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

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

// javaDriver compiles the Java drivers, once for the whole run, and returns
// the command that runs one.
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

// scratch is removed at the end of the run.
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
	driver{name: "java", args: javaDriver(t, "PlainDriver"), least: 22}.run(t, startTarget(t, generous()))
}

// TestCurator runs Curator 5: every recipe, contended by clients in one JVM
// and in several.
func TestCurator(t *testing.T) {
	o := generous()
	const sweep = "znode.container.checkIntervalMs=5000" // ZooKeeper reads it as a property only
	o.JVM = append(o.JVM, "-D"+sweep)
	o.Config = []string{sweep}
	driver{name: "curator", args: javaDriver(t, "CuratorDriver"), least: 40, keys: 8}.run(t, startTarget(t, o))
}
