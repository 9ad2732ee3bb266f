// Package disk keeps a server's data on its disk: the data directory and its identity, the stores of raft
// (log, terms and votes, snapshot files), and the watchdog that ends the process when one of them fails or
// hangs. It knows nothing of other servers. It can check the stored data, but does not interpret the data.
//
// A storage error ends the process. If the process continued, raft would step down and have a wrong idea of
// its last entry. After a restart the server reads the true state from the disk.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk/snapshots"
	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Options say where a server keeps its durable data.
type Options struct {
	Server uint32 // the id of the server that owns the disk
	Dir    string // the data directory; empty: all data is in memory
	// LogStore is "wal" or "bolt".
	LogStore string
	// SnapshotRetain is how many snapshots are kept.
	SnapshotRetain int
	// Memory is for a server that has no data directory. It keeps the data from one life of the server to the
	// next in the same process; nil: every life begins without data.
	Memory *Stores
	// Files are the files of the data directory; nil: the operating system's files.
	Files *Files
	// Alone says that the cluster never has another server, so a server in memory need not keep snapshots for
	// other servers.
	Alone bool

	Rand   io.Reader
	Logger *slog.Logger
	// Fatal ends the server because it can no longer trust its storage. It is called at most once.
	Fatal func(error)
	// Check may refuse the content of the directory before the server's next life begins; nil: Open accepts
	// all content.
	Check func(*Disk) error
}

// Disk is the data directory of a server, or its stores in memory, in use by this process. A watchdog watches
// every call of raft into the stores: the first call that fails or hangs ends the server.
type Disk struct {
	dir    *dataDir // nil: the stores are in memory
	stores *Stores
	dog    *watchdog
	seg    *seglog.Log          // the log if it is a seglog, else nil
	leads  atomic.Pointer[lead] // see Ahead

	applied atomic.Pointer[func() uint64] // see FollowApplied

	configs configs
	covered covered

	saving   chan struct{} // holds a token while an identity is written
	mu       sync.Mutex    // guards the fields below; never held during an access to the disk
	identity Identity      // equal to the identity on the disk
}

// Open opens the data directory, or makes a new directory.
func Open(o Options) (_ *Disk, err error) {
	d := &Disk{saving: make(chan struct{}, 1), dog: newWatchdog(o.Logger, o.Fatal)}
	if o.Dir == "" {
		if d.stores = o.Memory; d.stores == nil {
			d.stores = NewMemoryStores(o.Alone)
		}
		if d.stores.Identity.Incarnation == "" {
			*d.stores.Identity = Identity{Server: o.Server, Incarnation: NewID(o.Rand)}
		}
		d.identity = *d.stores.Identity
		return d, d.begin(o)
	}
	if o.Files == nil {
		o.Files = osFiles
	}
	if d.dir, err = openDataDir(o.Dir, o.Files); err != nil {
		return nil, err
	}
	if err = d.openDir(o); err != nil {
		return nil, errors.Join(err, d.dir.close())
	}
	if err = d.begin(o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// begin() checks the content of the directory, and then begins the server's next life. It does not change a
// directory that it refuses.
func (d *Disk) begin(o Options) error {
	if d.seg, _ = d.stores.Log.(*seglog.Log); d.seg != nil {
		d.seg.Around(d.dog.append) // the watchdog watches the log's own writes too
	}
	if o.Check != nil {
		if err := o.Check(d); err != nil {
			return err
		}
	}
	if err := d.dropReplaced(); err != nil {
		return err
	}
	id := d.Identity()
	id.Start++
	id.Life = NewID(o.Rand)
	return d.SaveIdentity(id)
}

// openDir opens the files of the data directory. It returns an error if a file is missing.
func (d *Disk) openDir(o Options) (err error) {
	if d.identity, err = d.dir.loadIdentity(o.Server, o.Rand); err != nil {
		return err
	}
	if err = d.dir.checkParts(&d.identity); err != nil {
		return err
	}
	if was := d.identity.LogStore; was != "" && was != o.LogStore { // the log would look empty
		return fmt.Errorf("the data directory was made with --log-store %s; use the same value, or start "+
			"with an empty directory", was)
	}
	if d.stores, err = openStores(d.dir, o.LogStore, o.SnapshotRetain, d.identity.Start > 0,
		o.Rand); err != nil {
		return err
	}
	d.identity.LogStore = o.LogStore
	if err = d.stores.checkWhole(d.dir.path, &d.identity); err != nil {
		return errors.Join(err, d.stores.close())
	}
	return nil
}

// Close unlocks the directory. raft must have stopped before that.
func (d *Disk) Close() error {
	err := d.stores.close()
	if d.dir != nil {
		err = errors.Join(err, d.dir.close())
	}
	return err
}

// Identity returns the server's identity. The maps in it must not be changed.
func (d *Disk) Identity() Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.identity
}

// SaveIdentity makes a changed identity durable. The caller relies on the identity only after that.
func (d *Disk) SaveIdentity(id Identity) error {
	d.saving <- struct{}{}
	defer func() { <-d.saving }()
	if d.dir != nil {
		if err := d.dir.saveIdentity(id); err != nil {
			return fmt.Errorf("write identity: %w", err)
		}
	} else {
		*d.stores.Identity = id
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.identity = id
	return nil
}

// Log returns the log for raft.
func (d *Disk) Log() raft.LogStore { return watchedLog{d.stores.Log, d} }

// Stable returns the store of terms and votes for raft.
func (d *Disk) Stable() raft.StableStore { return watchedStable{d.stores.Stable, d} }

// Snapshots returns the store of snapshots for raft. It publishes a snapshot of another server only after
// verify() has read it without an error. It calls damaged() when a read finds a damaged snapshot on this
// disk.
func (d *Disk) Snapshots(verify func(io.Reader) error, damaged func(error)) raft.SnapshotStore {
	return watchedSnapshots{d.stores.Snapshots, d, verify, damaged}
}

// FollowApplied sets the function that tells how far raft has applied the log.
func (d *Disk) FollowApplied(applied func() uint64) { d.applied.Store(&applied) }

// HasApplied reports whether this server has applied the log up to `index`. An applied entry is the same on
// all servers, so a snapshot up to `index` would bring this server nothing new, and would set its state and
// its log back.
func (d *Disk) HasApplied(index uint64) bool {
	// d.covered knows the newest snapshot even before raft reports how far it has applied the log.
	if index <= d.covered.newest() {
		return true
	}
	applied := d.applied.Load()
	return applied != nil && index <= (*applied)()
}

// Watch runs the watchdog until ctx ends.
func (d *Disk) Watch(ctx context.Context) { d.dog.watch(ctx) }

// Syncs returns how many durable appends to the log there were, their total time, and the time of the
// longest.
func (d *Disk) Syncs() (count int64, sum, longest time.Duration) {
	d.dog.mu.Lock()
	defer d.dog.mu.Unlock()
	return d.dog.syncs, d.dog.syncTime, d.dog.syncMax
}

// Promised returns the highest term that this server has seen, and the index of the last entry in its log; 0:
// there is none. Other servers rely on both.
func (d *Disk) Promised() (term, end uint64, err error) {
	c, err := d.stores.content()
	return c.term, c.end(), err
}

// LoadSeen returns the bytes that SaveSeen saved last.
func (d *Disk) LoadSeen() ([]byte, error) {
	if d.dir == nil {
		return *d.stores.Seen, nil
	}
	b, err := vfs.ReadFile(d.dir.files.FS, d.dir.sub(seenFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// SaveSeen saves the log positions that other servers' data directories have shown, for LoadSeen.
func (d *Disk) SaveSeen(b []byte) error {
	if d.dir == nil {
		*d.stores.Seen = b
		return nil
	}
	return d.dir.save(seenFile, b)
}

// NewestSnapshot returns the size of the newest snapshot on disk, and when it was written, or zero values if
// there is no snapshot.
func (d *Disk) NewestSnapshot() (size int64, at time.Time) {
	if s, ok := d.stores.Snapshots.(*snapshots.Store); ok {
		return s.Newest()
	}
	return 0, time.Time{}
}

// LogWithin returns an index such that the log's entries from this index on take at most this many bytes. It
// returns 0 if the sizes of the entries are not known.
func (d *Disk) LogWithin(bytes int64) uint64 {
	if d.seg == nil {
		return 0
	}
	return d.seg.Within(bytes)
}

// LogAfter returns how many bytes the log's entries after `index` take. It returns -1 if that is not known.
func (d *Disk) LogAfter(index uint64) int64 {
	if d.seg == nil {
		return -1
	}
	return d.seg.After(index)
}

// InMemory reports whether the server has no data directory. Its data then ends with the process.
func (d *Disk) InMemory() bool { return d.dir == nil }

// Sizes returns the total size of the snapshot files and the total size of the log files, in bytes.
func (d *Disk) Sizes() (snapshots, log int64) {
	if d.dir == nil {
		return 0, 0
	}
	return dirSize(d.dir.sub("snapshots")), dirSize(d.dir.sub("raft"))
}

func dirSize(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	return size
}
