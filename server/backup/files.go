package backup

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// Taker takes a backup of a server in each interval. The servers of a cluster do so at different moments of
// the interval.
type Taker struct {
	Dir      string        // the directory of the backups
	Interval time.Duration // the time between two backups of this server
	Keep     int           // how many backups are kept, the newest ones; at least one
	ID       uint32
	Cluster  func() string         // the name of this server's cluster; "": the server has not joined it yet
	Source   func() Source         // returns nil while there is no state
	Place    func() (rank, of int) // this server's place among those that take turns, and their number
	Now      func() time.Time      // the clock
	Tick     <-chan time.Time      // tells Run to check whether a backup is due
	Log      *slog.Logger
	// Patience is how long the disk may take for a step before the backup fails; default a minute.
	Patience time.Duration

	// written receives the result when a file is written. It is nil while no file is being written. Only Run's
	// goroutine uses it.
	written chan error

	cluster string // Cluster() once it is known; then Run has looked for earlier backups

	failed time.Time     // when the newest attempt failed
	pause  time.Duration // time from then to the next attempt; 0: the newest attempt has succeeded

	mu    sync.Mutex // guards the fields below
	begun time.Time
	news  State
}

// State describes the backups so far.
type State struct {
	Last          time.Time     // when the newest backup was taken; zero: there is no backup yet
	Age           time.Duration // time since the newest backup or, if there is none, since Run began
	Taken, Failed int64
	Err           string    // why the last attempt failed; empty if it succeeded
	Since         time.Time // when the first attempt after the newest backup failed
}

// A backup's name is zlockd-ID-TIME-ZXID-CLUSTER.backup. A directory may have the backups of several
// clusters, which may have the same ids of servers. By the cluster in the name, a server knows which are its
// own and may be removed. Names made before release 0.2 lack the cluster; the content of the file has it.
const (
	suffix     = ".backup"
	unfinished = ".tmp" // follows the suffix while the file is being written
	nameParts  = 5      // number of parts of a name; hyphens separate them
)

// stamp returns the beginning of the name of a backup taken at this time. Names sort by it.
func (t *Taker) stamp(at time.Time) string {
	return fmt.Sprintf("zlockd-%d-%s", t.ID, at.UTC().Format("20060102T150405Z"))
}

// name returns the name of a backup.
func (t *Taker) name(at time.Time, zxid int64) string {
	return fmt.Sprintf("%s-%016x-%s%s", t.stamp(at), zxid, t.cluster, suffix)
}

// ours reports whether a file is a backup of this server's cluster. The caller has already found this
// server's id in the file's name.
func (t *Taker) ours(e os.DirEntry) bool {
	bare := strings.TrimSuffix(strings.TrimSuffix(e.Name(), unfinished), suffix)
	if parts := strings.SplitN(bare, "-", nameParts); len(parts) == nameParts {
		return parts[nameParts-1] == t.cluster
	}
	if !e.Type().IsRegular() { // do not open a pipe: the read could block forever
		return false
	}
	f, err := os.Open(filepath.Join(t.Dir, e.Name()))
	if err != nil {
		return false
	}
	defer f.Close()
	cluster, err := state.ReadCluster(f)
	return err == nil && cluster == t.cluster
}

// files returns the names of this server's files with the suffix `end`, sorted. `others` is the number of
// such files that have this server's id and another cluster.
func (t *Taker) files(end string) (names []string, others int) {
	entries, err := os.ReadDir(t.Dir)
	if err != nil {
		return nil, 0
	}
	prefix := fmt.Sprintf("zlockd-%d-", t.ID)
	for _, e := range entries {
		switch name := e.Name(); {
		case !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, end):
		case t.ours(e):
			names = append(names, name)
		default:
			others++
		}
	}
	return names, others
}

// list() returns this server's backups, the oldest first, and the number of backups of other clusters. A
// backup whose time is in the future was taken while the clock was ahead. It counts as the oldest: as the
// newest, it would make prune() remove each new backup at once.
func (t *Taker) list(now time.Time) (names []string, others int) {
	names, others = t.files(suffix)
	behind := t.stamp(now.Add(time.Second))
	ahead, _ := slices.BinarySearch(names, behind)
	return slices.Concat(names[ahead:], names[:ahead]), others
}

// prune removes all but the newest backups.
func (t *Taker) prune(now time.Time) error {
	var errs []error
	names, _ := t.list(now)
	for _, name := range names[:max(0, len(names)-max(t.Keep, 1))] {
		errs = append(errs, os.Remove(filepath.Join(t.Dir, name)))
	}
	return errors.Join(errs...)
}
