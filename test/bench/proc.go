package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of CPU times in /proc on Linux.
const clockTick = 10 * time.Millisecond

// cpuOf returns the CPU time a process has used, user and system.
func cpuOf(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The command's name may hold blanks: count fields behind its parenthesis.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * clockTick
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
