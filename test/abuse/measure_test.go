package abuse

import (
	"fmt"
	"os"
	"time"

	procs "github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
)

// measure is what one server uses during an attack.
type measure struct {
	before, peak int64 // bytes of resident memory: before the attack, and the peak during it
	disk, most   int64 // bytes on disk: before the attack, and the peak during it
	files        int   // peak number of descriptors
}

// watch() measures a server until `stop` is closed.
func watch(s *cluster.Server, stop <-chan struct{}) (m measure, err error) {
	pid := s.Pid()
	m.before = procs.Resident(pid)
	// From here on the peak of the memory belongs to this attack.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return m, err
	}
	m.disk = procs.OnDisk(s.Data())
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		m.most = max(m.most, procs.OnDisk(s.Data()))
		if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			m.files = max(m.files, len(fds))
		}
		select {
		case <-tick.C:
		case <-stop:
			tick.Stop()
			if m.peak = procs.Peak(pid); m.peak == 0 {
				err = fmt.Errorf("process %d has ended", pid)
			}
			return m, err
		}
	}
}
