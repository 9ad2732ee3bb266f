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

// Taker takes a server's backups at intervals. The servers of a cluster take turns: each server has its own
// moment in the interval.
type Taker struct {
	Dir      string        // the directory of the backups
	Interval time.Duration // the time between two backups of this server
	Keep     int           // how many backups are kept, the newest ones; at least one
	ID       uint32
	Cluster  func() string         // the name of this server's cluster; "": the server has not joined it yet
	Source   func() Source         // returns nil while there is no state
	Place    func() (rank, of int) // returns this server's turn, and the number of servers that take turns
	Now      func() time.Time      // the clock
	Tick     <-chan time.Time      // at each tick Run looks at the clock
	Log      *slog.Logger
	// Patience is how long a write may make no progress before the backup fails; default a minute.
	Patience time.Duration

	// written receives the result of the file that is being written. It is nil if no file is being written.
	// Only Run's goroutine uses it.
	written chan error

	cluster string // the cluster of this Taker's files; empty: the Taker has not looked at the directory yet

	failed time.Time     // when the newest attempt failed
	pause  time.Duration // time until the next attempt; 0: the newest attempt did not fail

	mu    sync.Mutex // guards the fields below
	begun time.Time
	news  State
}

// State describes the backups so far.
type State struct {
	Last          time.Time     // when the newest backup was taken; zero: there is no backup yet
	Age           time.Duration // time since the newest backup or, without one, since Run began
	Taken, Failed int64
	Err           string    // why the last attempt failed; empty if it succeeded
	Since         time.Time // when the first attempt after the newest backup failed
}

// The name of a backup is zlockd-ID-TIME-ZXID-CLUSTER.backup. It contains the cluster because several
// clusters, with servers of the same id, may share a directory: a server removes only backups of its own
// cluster. In releases before 0.2 the name has no cluster, but the content has one.
const (
	suffix     = ".backup"
	unfinished = ".tmp" // follows the suffix while the file is being written
	nameParts  = 5      // number of parts of a name; hyphens separate them
)

// stamp returns how the names of all backups of one second begin. Names sort by time.
func (t *Taker) stamp(at time.Time) string {
	return fmt.Sprintf("zlockd-%d-%s", t.ID, at.UTC().Format("20060102T150405Z"))
}

// name returns the name of a backup.
func (t *Taker) name(at time.Time, zxid int64) string {
	return fmt.Sprintf("%s-%016x-%s%s", t.stamp(at), zxid, t.cluster, suffix)
}

// ours reports whether a file belongs to this server's cluster. The caller knows already, from the name, that
// the file is a backup of a server with this server's id.
func (t *Taker) ours(e os.DirEntry) bool {
	bare := strings.TrimSuffix(strings.TrimSuffix(e.Name(), unfinished), suffix)
	if parts := strings.SplitN(bare, "-", nameParts); len(parts) == nameParts {
		return parts[nameParts-1] == t.cluster
	}
	if !e.Type().IsRegular() { // reading a pipe would not end
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

// files returns the sorted names of this server's files that have the suffix `end`. It also returns how many
// such files have this server's id but belong to other clusters.
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

// list() returns this server's backups, oldest first, and how many backups belong to other clusters. Backups
// with a future time were taken while the clock was ahead, so list() puts them before the others. If they
// counted as the newest, prune() would remove each new backup at once.
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
