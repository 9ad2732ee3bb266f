package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuOf returns the CPU time that the threads of a process have used, user and system.
func cpuOf(pid int) (used time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range threads {
		b, _ := os.ReadFile(name) // a thread may have ended
		running, _, _ := strings.Cut(string(b), " ")
		ns, _ := strconv.ParseInt(running, 10, 64)
		used += time.Duration(ns)
	}
	return used
}

// rssOf returns the resident memory of a process in bytes.
func rssOf(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// machine describes the machine of the figures.
func machine() string {
	model := "unknown processor"
	b, _ := os.ReadFile("/proc/cpuinfo")
	cores := 0
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			model = strings.TrimSpace(v)
			cores++
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	l, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d × %s, Linux %s, load at the start %s", cores, model,
		strings.TrimSpace(string(release)), l)
}

// idleTime measures what servers without clients take of a processor.
func idleTime() point {
	return point{
		name: "idle", help: "processor time of servers without clients, all together",
		open: func(c *config, s *side) (runner, error) {
			return runner{run: func() (out sample, err error) {
				if s.external != nil {
					return out, errNotHere
				}
				time.Sleep(c.warm)
				before := takeUsage(s.pids())
				time.Sleep(c.duration)
				spent, _ := before.perOp(1)
				share := 100 * spent / float64(c.duration.Microseconds())
				out.metrics = []metric{{unit: "% of a core", value: share, lower: true}}
				return out, nil
			}}, nil
		},
	}
}
