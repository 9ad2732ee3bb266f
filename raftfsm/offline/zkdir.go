package offline

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/tree/zkfiles"
)

// ZooKeeper is the data of a stopped ZooKeeper.
type ZooKeeper struct {
	*zkfiles.Tree
	Notes []string // what was left out, and why nothing is lost by that
}

// ZooKeeperOptions say where a ZooKeeper's data is.
type ZooKeeperOptions struct {
	// From is a data directory, its directory version-2, or one snapshot.
	From string
	// LogDir is the directory of the transaction logs; empty: they are in the directory of the snapshots.
	LogDir string
	// DropTorn allows an unfinished entry at the very end of the log, and leaves it out.
	DropTorn bool
}

// zkFile is a file whose name contains a zxid.
type zkFile struct {
	path string
	zxid int64
}

// zxidOf returns the zxid in the name snapshot.ZXID[.gz|.snappy] or log.ZXID. It returns -1 for other names.
func zxidOf(name, prefix string) int64 {
	s, ok := strings.CutPrefix(filepath.Base(name), prefix+".")
	if prefix == "snapshot" {
		s = strings.TrimSuffix(strings.TrimSuffix(s, ".gz"), ".snappy")
	}
	zxid, err := strconv.ParseInt(s, 16, 64)
	if !ok || err != nil {
		return -1
	}
	return zxid
}

// versionDir returns the subdirectory version-2 of dir, which holds the files, or dir itself.
func versionDir(dir string) string {
	if sub := filepath.Join(dir, "version-2"); filepath.Base(dir) != "version-2" && isDir(sub) {
		return sub
	}
	return dir
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// IsZooKeeperDir reports whether dir looks like a ZooKeeper's data directory.
func IsZooKeeperDir(dir string) bool {
	if filepath.Base(dir) == "version-2" || isDir(filepath.Join(dir, "version-2")) {
		return true
	}
	files, err := list(dir, "snapshot")
	return err == nil && len(files) > 0
}

// list() returns the files in dir whose names are the prefix and a zxid, in the order of their zxids.
func list(dir, prefix string) ([]zkFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, readable(err)
	}
	var files []zkFile
	for _, e := range entries {
		zxid := zxidOf(e.Name(), prefix)
		if zxid < 0 {
			continue
		}
		f := zkFile{filepath.Join(dir, e.Name()), zxid}
		info, err := os.Stat(f.path) // Stat follows links, as ZooKeeper does
		if err != nil {
			return nil, readable(err)
		}
		if info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b zkFile) int {
		return cmp.Or(cmp.Compare(a.zxid, b.zxid), strings.Compare(a.path, b.path))
	})
	for i := 1; i < len(files); i++ {
		if files[i].zxid == files[i-1].zxid {
			return nil, fmt.Errorf("%s and %s have the same zxid: one of them is a copy; move the wrong one away",
				files[i-1].path, files[i].path)
		}
	}
	return files, nil
}

// readable() adds advice to the error about a file that the user may not read.
func readable(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: run this as the user that ZooKeeper runs as, or as root", err)
	}
	return err
}

// LoadZooKeeper reads the newest whole snapshot and every log after it.
func LoadZooKeeper(o ZooKeeperOptions) (*ZooKeeper, error) {
	info, err := os.Stat(o.From)
	if err != nil {
		return nil, readable(err)
	}
	if !info.IsDir() {
		return loadFile(o.From)
	}
	dir := versionDir(o.From)
	logDir := dir
	if o.LogDir != "" {
		logDir = versionDir(o.LogDir)
	}
	if err := checkStopped(o.From, dir, logDir); err != nil {
		return nil, err
	}
	return loadDirs(dir, logDir, o.DropTorn)
}

// loadDirs reads the directories of snapshots and logs of a stopped ZooKeeper.
func loadDirs(dir, logDir string, dropTorn bool) (*ZooKeeper, error) {
	snaps, err := list(dir, "snapshot")
	if err != nil {
		return nil, err
	}
	logs, err := list(logDir, "log")
	if err != nil {
		return nil, err
	}
	if len(snaps) == 0 && len(logs) == 0 {
		return nil, fmt.Errorf(
			"%s holds neither a snapshot nor a log: name the directory that dataDir in zoo.cfg names", dir)
	}
	z, from, err := loadNewest(snaps, logs)
	if err != nil {
		return nil, err
	}
	if err := z.replay(from, logs, logDir, dropTorn); err != nil {
		return nil, err
	}
	z.Nodes.Recount()
	return z, nil
}

// loadFile reads a snapshot without logs.
func loadFile(path string) (*ZooKeeper, error) {
	zxid := zxidOf(path, "snapshot")
	t, err := loadSnapshot(path, zxid)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	z := &ZooKeeper{Tree: t}
	switch {
	case zxid < 0 && t.Zxid == 0:
		return nil, fmt.Errorf("%s: the zxid of this snapshot is not known: give the file its old name, "+
			"snapshot.ZXID", path)
	case !t.Whole():
		return nil, z.lacksLog(path)
	}
	z.Nodes.Recount()
	return z, nil
}

func (z *ZooKeeper) lacksLog(path string) error {
	return fmt.Errorf("%s was written while the tree changed, and the log of these changes is missing: put "+
		"log.* beside it and name the directory", path)
}

// loadNewest reads the newest whole snapshot. A snapshot ends early if its server died while it wrote the
// snapshot. loadNewest skips such a snapshot, because the logs still have all changes since the previous one.
func loadNewest(snaps, logs []zkFile) (*ZooKeeper, zkFile, error) {
	z := &ZooKeeper{}
	for _, s := range slices.Backward(snaps) {
		t, err := loadSnapshot(s.path, s.zxid)
		if errors.Is(err, zkfiles.ErrTorn) {
			z.Notes = append(z.Notes, fmt.Sprintf("%s: %v; the file was skipped, as in "+
				"ZooKeeper", s.path, err))
			continue
		}
		if err != nil {
			return nil, s, fmt.Errorf("%s: %w; to use an older snapshot and its logs, move this file away",
				s.path, err)
		}
		z.Tree = t
		return z, s, nil
	}
	if len(snaps) == 0 && logs[0].zxid == 1 {
		z.Tree = zkfiles.NewTree()
		return z, zkFile{}, nil
	}
	return nil, zkFile{}, fmt.Errorf("there is no whole snapshot: %s",
		strings.Join(append(z.Notes, "restore one from a backup"), "; "))
}

func loadSnapshot(path string, zxid int64) (*zkfiles.Tree, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, readable(err)
	}
	defer f.Close()
	plain, err := zkfiles.Decompress(f, path)
	if err != nil {
		return nil, err
	}
	r, err := zkfiles.NewSnapshotReader(plain)
	if err != nil {
		return nil, err
	}
	return zkfiles.Load(r, zxid)
}

// replay() applies the entries of the logs after the snapshot.
func (z *ZooKeeper) replay(snap zkFile, logs []zkFile, logDir string, dropTorn bool) error {
	if len(logs) == 0 {
		return fmt.Errorf("%s: there is no log in %s, and only a log has the newest changes: give the "+
			"directory of dataLogDir with --log-dir, or name this file itself to use the snapshot "+
			"alone", snap.path, logDir)
	}
	// The last log that begins at or before the snapshot may contain entries after the snapshot.
	first := 0
	for i, l := range logs {
		if l.zxid <= snap.zxid {
			first = i
		}
	}
	// Logs without entries may follow the last log that has entries.
	last := len(logs) - 1
	for last > first && holdsNothing(logs[last].path) {
		last--
	}
	reached := int64(0)
	for i, l := range logs[first:] {
		zxid, err := z.replayFile(l, snap.zxid, first+i >= last, dropTorn)
		if err != nil {
			return err
		}
		reached = max(reached, zxid)
	}
	switch {
	case reached < snap.zxid:
		return fmt.Errorf("%s: the logs in %s end with zxid 0x%x, before this snapshot: its own log is "+
			"missing; name this file itself to use the snapshot alone", snap.path, logDir, reached)
	case !z.Whole():
		return z.lacksLog(snap.path)
	}
	return nil
}

// holdsNothing reports whether a log has no whole entry.
func holdsNothing(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	r, err := zkfiles.NewLogReader(f)
	if err == nil {
		_, err = r.Next()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, zkfiles.ErrTorn)
}

// holdsTorn reports whether a snapshot contains the change of a log's unfinished entry. The argument `before`
// is the zxid of the previous entry, or 0 if the unfinished entry is the first of the log.
func holdsTorn(snap int64, log zkFile, before int64) bool {
	if before == 0 {
		return log.zxid == snap
	}
	firstOfEpoch := snap&0xffffffff == 1 && before>>32 < snap>>32
	return before+1 == snap || firstOfEpoch
}

// replayFile applies one log and returns the last zxid that is certainly in it.
func (z *ZooKeeper) replayFile(log zkFile, snap int64, last, dropTorn bool) (int64, error) {
	path := log.path
	f, err := os.Open(path)
	if err != nil {
		return 0, readable(err)
	}
	defer f.Close()
	r, err := zkfiles.NewLogReader(f)
	if errors.Is(err, io.EOF) || errors.Is(err, zkfiles.ErrTorn) && last {
		z.Notes = append(z.Notes, path+" is empty: its server stopped before the first write")
		return z.Zxid, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	zxid := int64(0)
	for {
		x, err := r.Next()
		if errors.Is(err, io.EOF) {
			return zxid, nil
		}
		if errors.Is(err, zkfiles.ErrTorn) && zxid < snap {
			// The snapshot is newer than the last whole entry, so the unfinished entry is no loss. If the
			// snapshot is newer even than the unfinished entry, a log is missing.
			z.Notes = append(z.Notes, fmt.Sprintf("%s: %v; snapshot %x is newer than the unfinished entry",
				path, err, snap))
			if holdsTorn(snap, log, zxid) {
				zxid = snap
			}
			return zxid, nil
		}
		if errors.Is(err, zkfiles.ErrTorn) && (dropTorn || !last) {
			// If another log follows, the ZooKeeper that wrote that log continued without the unfinished entry.
			// At the end of the last log, the entry is left out only if dropTorn is true.
			z.Notes = append(z.Notes, fmt.Sprintf("%s: %v; the unfinished entry was left out: it was "+
				"never acknowledged", path, err))
			return zxid, nil
		}
		if errors.Is(err, zkfiles.ErrTorn) {
			return 0, fmt.Errorf("%s: %w of an entry: its server died during the write, and the entry was "+
				"never acknowledged; leave it out with --drop-torn-record, as ZooKeeper would", path, err)
		}
		if err == nil {
			if err = z.Apply(x); err != nil {
				err = &zkfiles.FormatError{Offset: r.Offset(), Err: err}
			}
		}
		if err != nil {
			var gap *zkfiles.GapError
			if errors.As(err, &gap) {
				return 0, fmt.Errorf("%s: %w; look for the log that begins with zxid 0x%x", path, err, gap.Last+1)
			}
			return 0, fmt.Errorf("%s: %w; take a copy from another server of the ensemble", path, err)
		}
		zxid = x.Zxid
	}
}
