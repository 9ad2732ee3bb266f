package disk

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk/snapshots"
	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Founding describes the first content of a data directory.
type Founding struct {
	Server  uint32
	Cluster string // the new cluster's name; the server is its only member
	Index   uint64 // index of the last log entry in the state
	Term    uint64
	Addr    string // the member's address; empty: the server has no peer port
}

// localAddr is the address, in the list of members, of a server that has no --peers.
const localAddr = "local"

// Found makes the data directory of a server that is a cluster of one server. The server begins with the
// state that write() writes. `dir` must be missing or empty. After an error Found removes the files
// that it made. It writes the identity last, because no server starts without an identity.
func Found(dir string, f Founding, write func(io.Writer) error) error {
	return MakeDir(dir, func() error { return f.found(dir, write) })
}

func (f *Founding) found(dir string, write func(io.Writer) error) (err error) {
	d, err := openDataDir(dir, osFiles)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	stores, err := openStores(d, "wal", 1, false, rand.Reader)
	if err != nil {
		return err
	}
	err = errors.Join(f.store(stores, write), stores.close())
	if err != nil {
		return err
	}
	own := NewID(rand.Reader)
	return d.saveIdentity(Identity{Server: f.Server, Incarnation: own, Cluster: f.Cluster, Start: 1,
		LogStore:     "wal",
		Incarnations: map[uint32]string{f.Server: own}})
}

// store() writes the snapshot, and the term of its last entry.
func (f *Founding) store(stores *Stores, write func(io.Writer) error) error {
	if err := stores.Stable.SetUint64([]byte(keyCurrentTerm), f.Term); err != nil {
		return err
	}
	addr := raft.ServerAddress(cmp.Or(f.Addr, localAddr))
	members := raft.Configuration{
		Servers: []raft.Server{{ID: raft.ServerID(fmt.Sprint(f.Server)), Address: addr}}}
	sink, err := stores.Snapshots.Create(raft.SnapshotVersionMax, f.Index, f.Term, members, f.Index, nil)
	if err != nil {
		return err
	}
	snapshots.Hurry(sink)
	if err := write(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// MakeDir makes a directory durably, and calls fill() to fill it. The directory may already exist if it is
// empty. After an error MakeDir removes what it made.
func MakeDir(dir string, fill func() error) error {
	there, err := os.ReadDir(dir)
	missing := errors.Is(err, os.ErrNotExist)
	switch {
	case missing:
		err = makeDir(osFiles.FS, dir)
	case len(there) > 0:
		err = fmt.Errorf("%s is not empty (it holds %s): name a directory that does not exist yet", dir,
			there[0].Name())
	}
	if err == nil {
		if err = fill(); err == nil {
			return nil
		}
		made, listed := os.ReadDir(dir)
		err = errors.Join(err, listed)
		for _, e := range made {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if missing {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return fmt.Errorf("%s was not made: %w", dir, err)
}

// While Replace works on a directory, the new content is in the subdirectory replacingDir. No server starts
// on a directory that has this subdirectory.
const replacingDir = "recovering"

// `parts` are the files of a data directory. Replace moves the identity last, when the other files are
// durable, because no server can start without it.
var parts = []string{identityFile, "raft", "snapshots", seenFile}

// Replace gives the data directory `dir` new content, as Found makes it, and keeps the old content in the
// subdirectory `old`. If an earlier Replace has left a subdirectory of that name, that older one is renamed.
// The caller has made `f` and write() from the content of `dir`; `was` is the identity that it read there. If
// a server has started on `dir` since then, Replace returns an error. If Replace is interrupted, another call
// finishes the replacement.
func Replace(dir, old string, was Identity, f Founding, write func(io.Writer) error) error {
	return alone(dir, func() error {
		if Interrupted(dir, old) {
			return finishReplace(dir, old)
		}
		if is, err := readIdentity(vfs.ReadOnly, dir); err != nil {
			return err
		} else if is.Start != was.Start || is.Life != was.Life {
			return fmt.Errorf("a server was started on %s while this command ran: run the command again", dir)
		}
		next := filepath.Join(dir, replacingDir)
		if err := os.RemoveAll(next); err != nil {
			return err
		}
		if err := numberOld(filepath.Join(dir, old)); err != nil {
			return err
		}
		if err := Found(next, f, write); err != nil {
			return err
		}
		return finishReplace(dir, old)
	})
}

// alone() runs f() while no server can start on the directory.
func alone(dir string, f func() error) error {
	d, err := openDataDir(dir, osFiles)
	if err != nil {
		return err
	}
	return errors.Join(f(), d.close())
}

// numberOld renames an existing directory to a free name with a number.
func numberOld(old string) error {
	to := old
	for n := 1; ; n++ {
		_, err := os.Lstat(to)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		to = fmt.Sprintf("%s-%d", old, n)
	}
	if to == old {
		return nil
	}
	// If the old directory kept its name, finishReplace would believe that it had already moved the content
	// there.
	return errors.Join(os.Rename(old, to), vfs.OS.SyncDir(filepath.Dir(old)))
}

// Interrupted reports whether a Replace was interrupted so late that only Replace can continue. That is so if
// the new content in replacingDir already has its identity, or if the old identity has been moved to the
// directory `old` while replacingDir still exists.
func Interrupted(dir, old string) bool {
	there := func(names ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{dir}, names...)...))
		return err == nil
	}
	return there(replacingDir, identityFile) || there(replacingDir) && there(old, identityFile)
}

// FinishReplace finishes an interrupted Replace.
func FinishReplace(dir, old string) error {
	return alone(dir, func() error { return finishReplace(dir, old) })
}

func finishReplace(dir, old string) error {
	next, old := filepath.Join(dir, replacingDir), filepath.Join(dir, old)
	if err := os.MkdirAll(old, 0o700); err != nil {
		return err
	}
	for _, step := range []struct {
		from, to string
		names    []string
	}{{dir, old, parts}, {next, dir, parts[1:]}, {next, dir, parts[:1]}} {
		for _, name := range step.names {
			if _, err := os.Lstat(filepath.Join(step.to, name)); err == nil {
				continue // this part was moved before the interruption
			}
			err := os.Rename(filepath.Join(step.from, name), filepath.Join(step.to, name))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if err := errors.Join(osFiles.FS.SyncDir(step.to), osFiles.FS.SyncDir(step.from)); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(next), osFiles.FS.SyncDir(dir))
}

// checkReplaced refuses a directory in which a Replace was interrupted.
func checkReplaced(fs vfs.FS, dir string) error {
	if there, err := vfs.Exists(fs, filepath.Join(dir, replacingDir)); err == nil && there {
		return fmt.Errorf("zlockd recover was interrupted on %s: run it again", dir)
	}
	return nil
}
