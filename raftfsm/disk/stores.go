package disk

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// The log takes the longest entry that a leader makes.
const _ = uint(seglog.MaxData - state.MaxEntry)

// Stores are what raft keeps between two lives of a server.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Identity  *Identity // for servers without a data directory
	Seen      *[]byte   // and what others have shown them
	closers   []io.Closer
}

// NewMemoryStores returns stores that live as long as the process. A server in
// memory that may have to send snapshots to others keeps them.
func NewMemoryStores(alone bool) *Stores {
	mem := raft.NewInmemStore()
	return &Stores{Log: mem, Stable: mem, Identity: new(Identity), Seen: new([]byte),
		Snapshots: &memorySnapshots{forget: alone}}
}

// openStores opens the stores of a data directory. A directory that is begun has its terms; a new
// one gets them.
func openStores(d *dataDir, kind string, retain int, begun bool) (_ *Stores, err error) {
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
			return s, errors.New("bolt needs the operating system's files")
		}
		s.Log = log
	} else {
		o := d.files.Log
		o.FS = fs
		l, err := seglog.Open(dir+"/log", o)
		if err != nil {
			return s, fmt.Errorf("open log: %w", err)
		}
		s.Log = l
		s.closers = append(s.closers, l)
	}
	if s.Snapshots, err = openSnapshotStore(fs, d.sub("snapshots"), retain); err != nil {
		return s, err
	}
	// The new directories and files must still be there when other servers count on them.
	return s, errors.Join(fs.SyncDir(dir), fs.SyncDir(d.path))
}

// openStable opens terms and votes, and returns the store below them.
func (s *Stores) openStable(files *Files, file string, begun bool) (below raft.StableStore, err error) {
	below = files.Stable
	if below == nil {
		if begun {
			if err := checkBolt(file); err != nil {
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

// checkParts refuses a directory that has lost a part: opened, it would look as if its server had
// never promised anything.
func (d *dataDir) checkParts(id *Identity) error {
	if id.Cluster == "" && !id.Begun {
		return nil
	}
	for _, part := range []string{boltName, "raft/log", "snapshots"} {
		if d.files.Stable != nil && part == boltName {
			continue
		}
		if there, err := vfs.Exists(d.files.FS, d.sub(part)); err == nil && !there {
			return incomplete(d.path, part+" is missing")
		}
	}
	return nil
}

func incomplete(path, what string) error {
	return fmt.Errorf("data directory %s is not complete: %s; put it back as it was, or remove the directory "+
		"and add this server again as a new one", path, what)
}

// promised returns what other servers may count on; see Disk.Promised.
func (s *Stores) promised() (term, end uint64, err error) {
	term, err = s.Stable.GetUint64([]byte(keyCurrentTerm))
	if err != nil && !missing(err) {
		return 0, 0, err
	}
	if end, err = s.Log.LastIndex(); err != nil {
		return 0, 0, err
	}
	list, err := s.Snapshots.List()
	if err == nil && len(list) > 0 {
		end = max(end, list[0].Index)
	}
	return term, end, err
}

// checkBegun refuses a directory that was begun and has lost its terms, or its log and snapshots.
func (id *Identity) checkBegun(path string, term, end uint64) error {
	if id.Begun && (term == 0 || end == 0) {
		return incomplete(path, "its terms or its log and snapshots are gone")
	}
	return nil
}

// checkWhole notes in id that the directory has a log. It refuses a directory that had a log and
// has lost it or a part of it, and one whose terms are older than its log: its server would vote
// again in a term that it has seen.
func (s *Stores) checkWhole(path string, id *Identity) error {
	term, end, err := s.promised()
	if err != nil {
		return err
	}
	if err := id.checkBegun(path, term, end); err != nil {
		return err
	}
	id.Begun = term > 0 && end > 0
	first, err := s.Log.FirstIndex()
	if err != nil {
		return err
	}
	list, err := s.Snapshots.List()
	if err != nil {
		return err
	}
	have := uint64(0)
	if len(list) > 0 {
		have = list[0].Index
	}
	newest, err := s.newestTerm(list)
	if err != nil {
		return err
	}
	if newest > term {
		return incomplete(path,
			fmt.Sprintf("its log or its newest snapshot is of term %d, and %s knows of none after %d",
				newest, boltName, term))
	}
	if first > have+1 {
		return incomplete(path, fmt.Sprintf("its log begins at entry %d, and its newest snapshot ends at %d", first,
			have))
	}
	return nil
}

// newestTerm returns the term of the last entry in the log or the snapshots.
func (s *Stores) newestTerm(snapshots []*raft.SnapshotMeta) (term uint64, err error) {
	if len(snapshots) > 0 {
		term = snapshots[0].Term
	}
	last, err := s.Log.LastIndex()
	if err != nil || last == 0 {
		return term, err
	}
	var l raft.Log
	err = s.Log.GetLog(last, &l)
	return max(term, l.Term), err
}

// begin begins another life of a directory.
func (id *Identity) begin(rand io.Reader) {
	id.Start++
	id.Life = NewID(rand)
}

// checkLogKind refuses another log store than that of the directory: its log would look empty.
func (id *Identity) checkLogKind(kind string) error {
	if id.LogStore != "" && id.LogStore != kind {
		return fmt.Errorf("the data directory was made with --log-store %s; give that, or start with an empty "+
			"directory",
			id.LogStore)
	}
	return nil
}

// OnClose makes c close with the stores.
func (s *Stores) OnClose(c io.Closer) { s.closers = append(s.closers, c) }

// close closes what openStores opened.
func (s *Stores) close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
