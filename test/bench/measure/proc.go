// Package measure has what the benchmarks share: the machine, the processor time and memory of processes,
// medians, and a zipfian choice of keys.
package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU returns the CPU time that the threads of a process have used, user and system.
func CPU(pid int) (used time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range threads {
		b, _ := os.ReadFile(name) // a thread may have ended
		running, _, _ := strings.Cut(string(b), " ")
		ns, _ := strconv.ParseInt(running, 10, 64)
		used += time.Duration(ns)
	}
	return used
}

// Resident returns the resident memory of a process in bytes.
func Resident(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
