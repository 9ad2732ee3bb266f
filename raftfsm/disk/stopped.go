package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/zlockd/zlockd/raftfsm/disk/snapshots"
	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Stopped is the data directory of a stopped server, open for reading. Its methods change nothing in the
// directory. No server can start on the directory until Close is called.
type Stopped struct {
	Identity Identity
	Term     uint64 // the highest term that the server had seen

	dir  string
	lock *os.File // nil: no server has run here
	bolt *boltdb.BoltStore
}

// IsDataDir reports whether a directory looks like a server's data directory.
func IsDataDir(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, identityFile))
	return err == nil
}

// InUse reports whether a server runs on a data directory.
func InUse(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer func() { _ = unlockFile(f) }()
	return lockFile(f, true) != nil
}

// OpenStopped opens a data directory for reading.
func OpenStopped(dir string) (_ *Stopped, err error) {
	s := &Stopped{dir: dir}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.Identity, err = readIdentity(vfs.ReadOnly, dir); err != nil {
		return nil, err
	}
	if err := (&dataDir{path: dir, files: osFiles}).checkParts(&s.Identity); err != nil {
		return nil, err
	}
	s.lock, err = os.Open(filepath.Join(dir, "lock"))
	if err == nil {
		if lockFile(s.lock, true) != nil {
			return nil, fmt.Errorf("a server runs on %s: stop it first", dir)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if s.Identity.Start == 0 {
		return nil, fmt.Errorf("no server has started on %s yet", dir)
	}
	var stable *terms
	if s.bolt, stable, err = readBolt(filepath.Join(dir, boltName)); err != nil {
		return nil, err
	}
	s.Term = stable.stored.term
	return s, nil
}

// Like a server that starts, CheckWhole refuses a directory that has lost its terms, or its log and
// snapshots. `end` is the index of the last entry that the caller found.
func (s *Stopped) CheckWhole(end uint64) error { return s.Identity.checkBegun(s.dir, s.Term, end) }

// Close unlocks the directory.
func (s *Stopped) Close() error {
	var errs []error
	if s.bolt != nil {
		errs = append(errs, s.bolt.Close())
	}
	if s.lock != nil {
		errs = append(errs, unlockFile(s.lock))
	}
	return errors.Join(errs...)
}

// Snapshot opens the newest snapshot. If there is none, `meta` and `content` are nil.
func (s *Stopped) Snapshot() (meta *raft.SnapshotMeta, content io.ReadCloser, file string, err error) {
	store := snapshots.ReadOnly(filepath.Join(s.dir, "snapshots"))
	list, err := store.List()
	if errors.Is(err, os.ErrNotExist) || err == nil && len(list) == 0 {
		return nil, nil, "", nil
	}
	if err != nil {
		return nil, nil, "", err
	}
	meta, content, err = store.Open(list[0].ID)
	return meta, content, store.Path(list[0].ID), err
}

// Entries calls fn() for every entry of the log, with the entry's place in the files. The result `torn` is
// the place of an interrupted write that was never acknowledged.
func (s *Stopped) Entries(fn func(l *raft.Log, place string) error) (torn string, err error) {
	if s.Identity.LogStore != "bolt" {
		return seglog.Scan(filepath.Join(s.dir, "raft", "log"), fn)
	}
	file := filepath.Join(s.dir, boltName)
	first, err := s.bolt.FirstIndex()
	if err != nil {
		return "", err
	}
	last, err := s.bolt.LastIndex()
	for i := first; i <= last && i > 0 && err == nil; i++ {
		var l raft.Log
		if err = getLog(s.bolt, i, &l); err == nil {
			err = fn(&l, file)
		}
	}
	return "", err
}

// ContentOf opens a snapshot file for reading. A file that was written by Found() or by a server has a
// trailer after its content; ContentOf also accepts a file without a trailer.
func ContentOf(path string) (io.ReadCloser, error) {
	f, err := vfs.ReadOnly.Open(path)
	if err != nil {
		return nil, err
	}
	return snapshots.Content(f)
}
