package abuse

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
)

// measure is what one server uses during an attack.
type measure struct {
	before, peak int64 // resident memory
	disk, most   int64 // bytes on disk before, and the most
	files        int   // the most descriptors
}

// resident reads a line such as VmRSS or VmHWM of a process.
func resident(pid int, line string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), line+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("no %s of process %d", line, pid)
	}
	kb, err := strconv.ParseInt(fields[0], 10, 64)
	return kb << 10, err
}

// onDisk adds up the sizes of the files below a directory.
func onDisk(dir string) (size int64) {
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // files come and go
		}
		if info, err := e.Info(); err == nil {
			size += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return size
}

// watch measures a server until stop is closed.
func watch(s *cluster.Server, stop <-chan struct{}) (m measure, err error) {
	pid := s.Pid()
	if m.before, err = resident(pid, "VmRSS"); err != nil {
		return m, err
	}
	// From here on VmHWM covers only this attack.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return m, err
	}
	m.disk = onDisk(s.Data())
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		m.most = max(m.most, onDisk(s.Data()))
		if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			m.files = max(m.files, len(fds))
		}
		select {
		case <-tick.C:
		case <-stop:
			tick.Stop()
			m.peak, err = resident(pid, "VmHWM")
			return m, err
		}
	}
}
