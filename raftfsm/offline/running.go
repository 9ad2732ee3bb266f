package offline

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// checkStopped refuses directories that a ZooKeeper is writing to. ZooKeeper uses no locks, but it keeps its
// log open, and its scripts write its process id to a file.
func checkStopped(dirs ...string) error {
	const pidFile = "zookeeper_server.pid"
	for _, dir := range dirs {
		for _, d := range []string{dir, filepath.Dir(dir)} {
			b, err := os.ReadFile(filepath.Join(d, pidFile))
			if err != nil {
				continue
			}
			if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && isJava(pid) {
				return fmt.Errorf("a ZooKeeper runs on %s (process %d, by %s): stop it first, otherwise "+
					"its newest "+
					"changes would be missing", dir, pid, filepath.Join(d, pidFile))
			}
		}
	}
	if pid, dir := openedBy(dirs); pid != 0 {
		return fmt.Errorf("process %d has files in %s open: stop that ZooKeeper first, otherwise its newest "+
			"changes would be missing", pid, dir)
	}
	return nil
}

func isJava(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(name)) == "java"
}

// openedBy returns the id of another process that has a file in one of dirs open for writing, and that
// directory. openedBy sees only processes that this process may inspect. It looks at each of their files only
// once, for all directories.
func openedBy(dirs []string) (pid int, dir string) {
	given := map[string]string{} // the given directories, by their paths without links
	for _, d := range dirs {
		path, err := filepath.EvalSymlinks(d)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err == nil {
			given[path] = d
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range processes {
		to, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		dir, ok := given[filepath.Dir(to)]
		if !ok {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
		if pid != os.Getpid() && writes(pid, filepath.Base(fd)) {
			return pid, dir
		}
	}
	return 0, ""
}

// writes() reports whether a file descriptor was opened for writing.
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
