// Package machine reports what the process finds out about itself and its machine: memory, open files and
// environment.
package machine

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// memory returns what Go's runtime says of its memory: how many bytes are unused, the limit, and how many
// bytes it has in all.
func memory() (free, limit, total uint64) {
	total = RuntimeValue("/memory/classes/total:bytes") - RuntimeValue("/memory/classes/heap/released:bytes")
	return RuntimeValue("/memory/classes/heap/free:bytes"), UsableMemory(), total
}

// RuntimeValue returns the value of a metric of runtime/metrics that is a whole number.
func RuntimeValue(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// UsableMemory returns how much memory this process may use: the least of GOMEMLIMIT, the limits of its
// control groups, and the machine's memory. It returns 0 if none is known.
var UsableMemory = sync.OnceValue(func() uint64 {
	most := machineMemory()
	for _, l := range []uint64{uint64(debug.SetMemoryLimit(-1)), groupMemory("/")} {
		if l < math.MaxInt64 && (most == 0 || l < most) {
			most = l
		}
	}
	return most
})

// groupMemory returns the least memory limit of the control groups that this process is in, or MaxUint64
// without a limit. It looks for their files below root.
func groupMemory(root string) uint64 {
	least := uint64(math.MaxUint64)
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) < 3 {
			continue
		}
		base, file := filepath.Join(root, "sys/fs/cgroup"), "memory.max"
		if slices.Contains(strings.Split(fields[1], ","), "memory") {
			base, file = filepath.Join(base, "memory"), "memory.limit_in_bytes"
		} else if fields[1] != "" {
			continue
		}
		for dir := filepath.Clean("/" + fields[2]); ; dir = filepath.Dir(dir) {
			limit, err := os.ReadFile(filepath.Join(base, dir, file))
			if n, bad := strconv.ParseUint(strings.TrimSpace(string(limit)), 10, 64); err == nil && bad == nil {
				least = min(least, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// machineMemory returns how much memory the machine has according to Linux. On other systems it returns 0.
func machineMemory() uint64 {
	text, _ := os.ReadFile("/proc/meminfo")
	var kb uint64
	_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &kb)
	return kb << 10
}
