package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/report"
)

// Beyond these limits, /health shows a notice.
const (
	slowSync = 100 * time.Millisecond // average duration
	fewFiles = 1024
)

// resourceNotices warns of trouble to come: slow syncs of the log, or few file descriptors. It knows the
// descriptors only if the caller has asked for them in the status.
func resourceNotices(s *report.Status) (notices []string) {
	if s.Syncs > 0 {
		if mean := s.SyncTime / time.Duration(s.Syncs); mean > slowSync {
			notices = append(notices, fmt.Sprintf("a sync of the log takes %v on average, and so does every write: "+
				"give the data directory a faster disk, or one that no other program writes to",
				mean.Round(time.Millisecond)))
		}
	}
	const raise = "raise the limit of open files (LimitNOFILE of the unit, ulimit -n)"
	switch {
	case s.MaxFiles > 0 && s.OpenFiles > s.MaxFiles/10*8:
		notices = append(notices, fmt.Sprintf("%d of %d files are open: %s", s.OpenFiles, s.MaxFiles, raise))
	case s.MaxFiles > 0 && s.MaxFiles < fewFiles:
		notices = append(notices, fmt.Sprintf("the process may open only %d files, and each client needs one: %s",
			s.MaxFiles, raise))
	}
	return notices
}

// settled is how long a server must have led before it reports others as missing: they need time to connect.
const settled = 10 * time.Second

// lossNotice returns a notice if this server leads, voters are missing, and the loss of one more would stop
// the cluster. Otherwise it returns "".
func lossNotice(s *report.Status) string {
	if s.Mode != report.Leader || s.Leads < settled {
		return ""
	}
	voters := 0
	var missing []string
	for _, m := range s.Members {
		if !m.Voter {
			continue
		}
		voters++
		if m.ID != s.ID && (m.Applied == 0 || m.Applied+status.EnoughToVote < s.Last) {
			missing = append(missing, strconv.Itoa(int(m.ID)))
		}
	}
	follow := voters - len(missing)
	if len(missing) == 0 || follow > voters/2+1 {
		return ""
	}
	return fmt.Sprintf("%d of %d voters follow: one more loss stops the cluster; start server %s, or replace "+
		"it (zlock member replace)", follow, voters, strings.Join(missing, ", "))
}

// diskFailed is the number of free bytes below which /health reports a fault.
const diskFailed = 64 << 20

// diskStatus adds the free disk space to a status. If there is almost none, it adds a fault: the log needs
// room.
func (i *Instance) diskStatus(s *report.Status) {
	dir := i.o.DataDir
	if dir == "" {
		return
	}
	free, err := disk.FreeBytes(dir)
	if err != nil {
		return
	}
	s.DiskFree = free
	if free < diskFailed {
		s.Faults = append(s.Faults, fmt.Sprintf("the disk of %s is full: %d MiB free", dir, free>>20))
	}
}
