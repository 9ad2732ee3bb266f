// Package measure has what the benchmarks share: the machine, the processor time, memory and disk of
// processes, medians, and a zipfian choice of keys.
package measure

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU returns the CPU time that the threads of processes have used, user and system.
func CPU(pids ...int) (used time.Duration) {
	for _, pid := range pids {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, name := range threads {
			b, _ := os.ReadFile(name) // a thread may have ended
			running, _, _ := strings.Cut(string(b), " ")
			ns, _ := strconv.ParseInt(running, 10, 64)
			used += time.Duration(ns)
		}
	}
	return used
}

// Resident returns the resident memory of a process in bytes, 0 if there is no such process.
func Resident(pid int) int64 { return memory(pid, "VmRSS:") }

// Peak returns the largest resident memory that a process has had.
func Peak(pid int) int64 { return memory(pid, "VmHWM:") }

func memory(pid int, name string) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// OnDisk returns the bytes of disk that the files below a directory take.
func OnDisk(dir string) (size int64) {
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // a file may be gone by now
		}
		if info, err := e.Info(); err == nil {
			size += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return size
}
