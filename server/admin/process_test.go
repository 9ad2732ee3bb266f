package admin

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The process shows itself in ZooKeeper's words, and nothing of Java's.
func TestProcessDescribesItself(t *testing.T) {
	env, keys := map[string]string{}, []string{}
	for _, p := range ProcessEnvironment() {
		env[p.Key] = p.Value
		keys = append(keys, p.Key)
	}
	expect.That(t, keys[0] == "host.name" && keys[1] == "java.version" && keys[len(keys)-1] == "go.maxprocs",
		"keys %v", keys)
	for key, want := range map[string]string{
		"host.name": must.Get(os.Hostname())(t), "user.dir": must.Get(os.Getwd())(t), "java.version": "<NA>",
		"java.io.tmpdir": os.TempDir(), "os.arch": runtime.GOARCH, "go.version": runtime.Version(),
		"go.maxprocs": strconv.Itoa(runtime.GOMAXPROCS(0)),
	} {
		expect.Equal(t, env[key], want, "%s", key)
	}
	for _, key := range []string{"user.name", "user.home", "os.version"} {
		expect.That(t, env[key] != "" && env[key] != "<NA>", "%s is %q", key, env[key])
	}
	if runtime.GOOS == "linux" {
		expect.That(t, UsableMemory() > 1<<20, "%d bytes may be used", UsableMemory())
		expect.Equal(t, env["os.name"], "Linux")
		release := must.Get(os.ReadFile("/proc/sys/kernel/osrelease"))(t)
		expect.Equal(t, env["os.version"], strings.TrimSpace(string(release)))
	}
	for _, key := range []string{"os.memory.free", "os.memory.max", "os.memory.total"} {
		n, err := strconv.Atoi(strings.TrimSuffix(env[key], "MB"))
		expect.That(t, err == nil && strings.HasSuffix(env[key], "MB"), "%s is %q", key, env[key])
		expect.That(t, n > 0 || key != "os.memory.total", "%s is %q", key, env[key])
	}
}

func TestOpenFilesAreCounted(t *testing.T) {
	open, limit := OpenFiles()
	if open < 0 {
		t.Skip("this system does not say")
	}
	expect.That(t, open > 0 && limit >= open, "%d open of %d", open, limit)
	for range 50 {
		f := must.Get(os.Open(os.DevNull))(t)
		defer f.Close()
	}
	now, _ := OpenFiles()
	expect.That(t, now > open+25, "%d open, and 50 more: %d", open, now)
}

func TestPausesOfTheCollectorAreMeasured(t *testing.T) {
	runtime.GC()
	before := GCPauses()
	for range 20 {
		runtime.GC()
	}
	s := GCPauses()
	mean := s.Sum / float64(s.Count)
	expect.That(t, before.Count > 0 && s.Count >= before.Count+20 && s.Sum > before.Sum && s.Min <= before.Min &&
		s.Max >= before.Max, "%+v, then %+v", before, s)
	expect.That(t, s.Min < mean && mean < s.Max && s.Min <= s.P50*1.1 && s.P50 <= s.P99 && s.P99 <= s.Max*1.1,
		"%+v", s)
}
