package disk

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk/snapshots"
	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

// This line compiles only if the log has room for the longest entry that a leader makes.
const _ = uint(seglog.MaxData - entries.MaxSize)

// Stores are what raft and the server keep between two lives of a server.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Identity  *Identity // identity of a server without a data directory
	Seen      *[]byte   // the progress that other servers have shown to this server
	closers   []io.Closer
}

// NewMemoryStores returns stores that last as long as the process. If `alone` is true, they discard
// snapshots, because no other server will need them.
func NewMemoryStores(alone bool) *Stores {
	mem := raft.NewInmemStore()
	s := &Stores{Log: mem, Stable: mem, Snapshots: snapshots.NewMemory(),
		Identity: new(Identity), Seen: new([]byte)}
	if alone { // the only use of a snapshot is to let raft drop its log
		s.Snapshots = raft.NewDiscardSnapshotStore()
	}
	return s
}

// openStores opens the stores of a data directory. If `begun` is true, the directory must have its terms;
// otherwise openStores writes the first terms.
func openStores(d *dataDir, kind string, retain int, begun bool, rand io.Reader) (_ *Stores, err error) {
	s := new(Stores)
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	fs, dir := d.files.FS, d.sub("raft")
	for _, p := range []string{dir, dir + "/log"} {
		if err := fs.MkdirAll(p); err != nil {
			return s, err
		}
	}
	bolt, err := s.openStable(d.files, d.sub(boltName), begun)
	if err != nil {
		return s, err
	}
	if kind == "bolt" {
		log, ok := bolt.(raft.LogStore)
		if !ok {
			return s, errors.New("the log store bolt works on the operating system's file system only")
		}
		s.Log = log
	} else {
		o := d.files.Log
		o.FS, o.Rand = fs, rand
		l, err := seglog.Open(dir+"/log", o)
		if err != nil {
			return s, fmt.Errorf("open log: %w", err)
		}
		s.Log = l
		s.closers = append(s.closers, l)
	}
	if s.Snapshots, err = snapshots.Open(fs, d.sub("snapshots"), retain); err != nil {
		return s, err
	}
	// The new directories and files must be durable before other servers rely on them.
	return s, errors.Join(fs.SyncDir(dir), fs.SyncDir(d.path))
}

// openStable opens s.Stable, the store of terms and votes. It returns `below`, in which s.Stable keeps them.
func (s *Stores) openStable(files *Files, file string, begun bool) (below raft.StableStore, err error) {
	below = files.Stable
	if below == nil {
		if begun {
			// Verify the file before openBolt opens it for writing: a write could replace a damaged page, and hide
			// that a vote is lost.
			bolt, _, err := readBolt(file)
			if err == nil {
				err = bolt.Close()
			}
			if err != nil {
				return nil, err
			}
		}
		bolt, err := openBolt(file, false)
		if err != nil {
			return nil, fmt.Errorf("open stable store: %w", err)
		}
		s.closers = append(s.closers, bolt)
		below = bolt
	}
	s.Stable, err = openTerms(below, file, begun)
	return below, err
}

// content describes the stores: the highest term, the first and the last index of the log (0 in an empty log)
// and the newest snapshot (zero if there is none).
type content struct {
	term, first, last uint64
	snapshot          raft.SnapshotMeta
}

func (s *Stores) content() (c content, err error) {
	if c.term, err = s.Stable.GetUint64([]byte(keyCurrentTerm)); err != nil && !missing(err) {
		return c, err
	}
	if c.first, err = s.Log.FirstIndex(); err != nil {
		return c, err
	}
	if c.last, err = s.Log.LastIndex(); err != nil {
		return c, err
	}
	list, err := s.Snapshots.List()
	if len(list) > 0 {
		c.snapshot = *list[0]
	}
	return c, err
}

// end() returns the index of the last entry in the log or the snapshot.
func (c *content) end() uint64 { return max(c.last, c.snapshot.Index) }

// close closes what openStores opened.
func (s *Stores) close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
