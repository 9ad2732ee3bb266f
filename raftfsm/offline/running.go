package offline

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// checkStopped refuses a directory that a ZooKeeper is writing to. ZooKeeper
// locks nothing; but it keeps its log open, and its scripts leave its process
// id.
func checkStopped(dir string) error {
	const pidFile = "zookeeper_server.pid"
	for _, d := range []string{dir, filepath.Dir(dir)} {
		b, err := os.ReadFile(filepath.Join(d, pidFile))
		if err != nil {
			continue
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && isJava(pid) {
			return fmt.Errorf("a ZooKeeper runs on %s (process %d, by %s): stop it first, or its newest changes "+
				"would be missing", dir, pid, filepath.Join(d, pidFile))
		}
	}
	if pid := openedBy(dir); pid != 0 {
		return fmt.Errorf("process %d has files in %s open: stop that ZooKeeper first, or its newest changes "+
			"would be missing", pid, dir)
	}
	return nil
}

func isJava(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(name)) == "java"
}

// openedBy finds a process, other than this one, that has a file in dir open for writing, among
// those that this process may look at.
func openedBy(dir string) int {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return 0
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return 0
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range processes {
		to, err := os.Readlink(fd)
		if err != nil || filepath.Dir(to) != dir {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
		if pid != os.Getpid() && writes(pid, filepath.Base(fd)) {
			return pid
		}
	}
	return 0
}

// writes reports whether a file descriptor was opened for writing.
func writes(pid int, fd string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(v), 8, 64)
			return err == nil && flags&3 != 0
		}
	}
	return false
}
