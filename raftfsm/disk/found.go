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
)

// Founding describes the first content of a data directory.
type Founding struct {
	Server  uint32
	Cluster string // the new cluster's name; the server is its only member
	Index   uint64 // of the last log entry that the state stands for
	Term    uint64
	Addr    string // under which the server is a member; empty: it has no peer port
}

// localAddr is the address under which a server without --peers is a member.
const localAddr = "local"

// Found makes the data directory of a server that is a cluster by itself and
// begins with the state that write writes. dir must be missing or empty. After
// an error, nothing is left of it. The identity is written last: without it no
// server starts.
func Found(dir string, f Founding, write func(io.Writer) error) (err error) {
	made, err := EmptyDir(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ClearDir(dir, made))
		}
	}()
	d, err := openDataDir(dir, osFiles)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	stores, err := openStores(d, "wal", 1, false)
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

// store writes the snapshot and the term that it stands in.
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
	sink.(*snapshotSink).hurry = true
	if err := write(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// EmptyDir makes a directory, durably, or checks that it is empty, and reports whether it made it.
func EmptyDir(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return true, makeDir(osFiles.FS, dir)
	case err != nil:
		return false, err
	case len(entries) > 0:
		return false, fmt.Errorf("%s is not empty (it holds %s): name a directory that does not exist yet", dir,
			entries[0].Name())
	}
	return false, nil
}

// ClearDir removes the content of a directory that was empty, and the directory if EmptyDir made
// it.
func ClearDir(dir string, made bool) error {
	if made {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
