package server

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/server/admin"
)

// Beyond these bounds a server says so at /health.
const (
	slowSync = 100 * time.Millisecond // on average
	fewFiles = 1024
)

// resourceNotices tells what makes trouble later: slow syncs of the log, and few files. The number of files is
// known only where it was asked for.
func resourceNotices(s *admin.Status) (notices []string) {
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
		notices = append(notices, fmt.Sprintf("the process may open %d files only, and each client is one: %s",
			s.MaxFiles, raise))
	}
	return notices
}
