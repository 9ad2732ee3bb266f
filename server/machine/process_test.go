package machine

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The environment has ZooKeeper's keys, but no values of a Java runtime.
func TestProcessDescribesItself(t *testing.T) {
	env, keys := map[string]string{}, []string{}
	for _, p := range Environment() {
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

func TestMemoryOfControlGroups(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"none": {nil, math.MaxUint64},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"},
			math.MaxUint64},
		"its own": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n",
			"sys/fs/cgroup/a/memory.max": "max\n"}, 1000},
		"its parent": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n",
			"sys/fs/cgroup/a/memory.max": "900\n"}, 900},
		"container": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "500\n"}, 500},
		"version 1": {map[string]string{"proc/self/cgroup": "3:cpu:/x\n2:memory,hugetlb:/y\n",
			"sys/fs/cgroup/memory/y/memory.limit_in_bytes": "700\n"}, 700},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		}
		expect.Equal(t, groupMemory(root), c.want, "%s", name)
	}
	expect.That(t, UsableMemory() != 0, "the memory of this machine is not known")
}
