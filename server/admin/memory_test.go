package admin

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

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
