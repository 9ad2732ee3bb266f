// Package snapshots keeps the snapshots of a server, as files or in memory. A snapshot is complete or
// absent. Package snapshots does not interpret the content of a snapshot; package disk verifies the content,
// and watches the calls.
package snapshots

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Store keeps each snapshot in one file, which is complete or absent:
//
//	file := content · meta (JSON) · content length u64 · meta length u32 · crc32c of meta and lengths u32
//
// The content carries its own checksums. A file is written under a temporary name, synced and renamed, and
// then the directory is synced. So a crash leaves at most a temporary file, which the next start removes.
// Raft's own file store skips a damaged snapshot and uses an older one. Store does not, because the log
// entries after the older snapshot are gone.
type Store struct {
	fs     vfs.FS
	dir    string
	retain int
	made   atomic.Int64 // how many temporary files were made; it becomes part of their names

	mu   sync.Mutex
	size int64     // size of the newest snapshot
	time time.Time // when the snapshot was written; zero: not known, or there is no snapshot
}

const (
	suffix  = ".snap"
	trailer = 16
	maxMeta = 1 << 20 // the meta data contain the members
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Open opens the snapshots of a directory, and makes the directory if it is missing.
func Open(fs vfs.FS, dir string, retain int) (*Store, error) {
	if err := fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	// A killed process may have left a snapshot whose name is not durable. The server uses a snapshot that it
	// finds, so make the name durable now.
	if err := fs.SyncDir(dir); err != nil {
		return nil, err
	}
	all, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if strings.HasSuffix(name, ".tmp") {
			if err := fs.Remove(filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		}
	}
	s := &Store{fs: fs, dir: dir, retain: retain}
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return s, err
	}
	s.size = list[0].Size
	if known, ok := fs.(interface {
		ModTime(name string) (time.Time, error)
	}); ok {
		s.time, err = known.ModTime(s.Path(list[0].ID))
	}
	return s, err
}

// ReadOnly returns the snapshots of a stopped server's directory. Nothing can be written to them.
func ReadOnly(dir string) *Store { return &Store{fs: vfs.ReadOnly, dir: dir} }

// names() lists the names of the snapshots, newest first; the order of the names is the order of the indexes.
func (s *Store) names() ([]string, error) {
	all, err := s.fs.List(s.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		if id, ok := strings.CutSuffix(name, suffix); ok {
			names = append(names, id)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// Newest returns the size of the newest snapshot, and when it was written.
func (s *Store) Newest() (size int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size, s.time
}

// List implements raft.SnapshotStore. It lists only the newest snapshot.
func (s *Store) List() ([]*raft.SnapshotMeta, error) {
	names, err := s.names()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	f, meta, err := s.open(names[0])
	if err != nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{meta}, f.Close()
}

func (s *Store) open(id string) (vfs.File, *raft.SnapshotMeta, error) {
	f, err := s.fs.Open(s.Path(id))
	if err != nil {
		return nil, nil, err
	}
	meta, err := readMeta(f)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("snapshot %s: %w", f.Name(), err), f.Close())
	}
	return f, meta, nil
}

// Open implements raft.SnapshotStore.
func (s *Store) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	f, meta, err := s.open(id)
	if err != nil {
		return nil, nil, err
	}
	return meta, contentOf(f, meta), nil
}

// Content opens the content of a snapshot file. A file that was written by disk.Found() or by a server has a
// trailer after its content; Content also accepts a file without a trailer. It closes the file after an
// error.
func Content(f vfs.File) (io.ReadCloser, error) {
	meta, err := readMeta(f)
	if err != nil {
		size, err := f.Size()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		meta = &raft.SnapshotMeta{Size: size}
	}
	return contentOf(f, meta), nil
}

// contentOf returns the content before the meta data.
func contentOf(f vfs.File, meta *raft.SnapshotMeta) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, 0, meta.Size), f}
}

// Path returns the file of a snapshot.
func (s *Store) Path(id string) string { return filepath.Join(s.dir, id+suffix) }

func readMeta(f vfs.File) (*raft.SnapshotMeta, error) {
	length, err := f.Size()
	if err != nil {
		return nil, err
	}
	var tail [trailer]byte
	if length < trailer {
		return nil, errors.New("file is cut short")
	}
	if _, err := f.ReadAt(tail[:], length-trailer); err != nil {
		return nil, err
	}
	content := binary.BigEndian.Uint64(tail[:])
	size := int64(binary.BigEndian.Uint32(tail[8:]))
	if size > maxMeta || content != uint64(length-trailer-size) {
		return nil, errors.New("file is damaged: its lengths do not match")
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, int64(content)); err != nil {
		return nil, err
	}
	if crc32.Checksum(append(b, tail[:12]...), castagnoli) != binary.BigEndian.Uint32(tail[12:]) {
		return nil, errors.New("file is damaged: its checksum is wrong")
	}
	meta := new(raft.SnapshotMeta)
	if err := json.Unmarshal(b, meta); err != nil {
		return nil, err
	}
	meta.Size = int64(content)
	return meta, nil
}

// Create implements raft.SnapshotStore.
func (s *Store) Create(version raft.SnapshotVersion, index, term uint64,
	configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	id := fmt.Sprintf("%020d-%010d", index, term)
	f, err := s.fs.Create(filepath.Join(s.dir, fmt.Sprintf("%s-%d.tmp", id, s.made.Add(1))))
	if err != nil {
		return nil, err
	}
	meta := &raft.SnapshotMeta{Version: version, ID: id, Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex}
	return &fileSink{store: s, f: f, meta: meta}, nil
}

// fileSink is a snapshot being written.
type fileSink struct {
	store *Store
	f     vfs.File
	meta  *raft.SnapshotMeta
	done  bool

	unsynced int  // bytes written since the last sync
	alone    bool // no other writer uses this disk
}

// Hurry lets a sink write without rests, because no other writer uses the disk.
func Hurry(sink raft.SnapshotSink) { sink.(*fileSink).alone = true }

func (s *fileSink) ID() string { return s.meta.ID }

// A sink writes a snapshot in steps, with a sync and a rest after each step. One sync of hundreds of
// megabytes at the end would delay the syncs of the log, and so every client's write.
const (
	step        = 1 << 20
	longestRest = 50 * time.Millisecond // the longest rest after a step
)

func (s *fileSink) Write(b []byte) (int, error) {
	n, err := s.f.WriteAt(b, s.meta.Size)
	s.meta.Size += int64(n)
	if s.unsynced += n; err != nil || s.alone || s.unsynced < step {
		return n, err
	}
	s.unsynced = 0
	began := time.Now()
	if err := s.f.Sync(); err != nil {
		return n, err
	}
	time.Sleep(min(time.Since(began), longestRest))
	return n, nil
}

// Cancel removes the snapshot.
func (s *fileSink) Cancel() error {
	if s.done {
		return nil
	}
	s.done = true
	return errors.Join(s.f.Close(), s.store.fs.Remove(s.f.Name()))
}

// Close makes the snapshot durable and visible, then removes old ones.
func (s *fileSink) Close() error {
	if s.done {
		return nil
	}
	if err := s.finish(); err != nil {
		return errors.Join(err, s.Cancel())
	}
	s.done = true
	return s.store.prune()
}

func (s *fileSink) finish() error {
	b, err := json.Marshal(s.meta)
	if err != nil {
		return err
	}
	size := len(b)
	if size > maxMeta {
		return fmt.Errorf("the meta data have %d bytes: at most %d are allowed", size, maxMeta)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(s.meta.Size))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := s.f.WriteAt(b, s.meta.Size); err != nil {
		return err
	}
	if err := s.f.Sync(); err != nil {
		return err
	}
	if err := s.f.Close(); err != nil {
		return err
	}
	if err := s.store.fs.Rename(s.f.Name(), s.store.Path(s.meta.ID)); err != nil {
		return err
	}
	if err := s.store.fs.SyncDir(s.store.dir); err != nil {
		return err
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.size, s.store.time = s.meta.Size, time.Now()
	return nil
}

func (s *Store) prune() error {
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, name := range names[min(s.retain, len(names)):] {
		if err := s.fs.Remove(s.Path(name)); err != nil {
			return err
		}
	}
	return nil
}

// Memory is the snapshot store of a server in memory. A complete snapshot replaces the previous one.
// raft's own store in memory drops its snapshot when the next snapshot begins, so here each snapshot has a
// store of its own.
type Memory struct {
	mu     sync.Mutex
	newest raft.SnapshotStore
	index  uint64 // index of the last entry in the newest snapshot
}

// NewMemory returns a store without a snapshot.
func NewMemory() *Memory {
	return &Memory{newest: raft.NewInmemSnapshotStore()}
}

type memorySink struct {
	raft.SnapshotSink
	own   raft.SnapshotStore // a store for this snapshot only
	index uint64
	all   *Memory
}

func (s *Memory) now() raft.SnapshotStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// List implements raft.SnapshotStore.
func (s *Memory) List() ([]*raft.SnapshotMeta, error) { return s.now().List() }

// Open implements raft.SnapshotStore.
func (s *Memory) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return s.now().Open(id)
}

// Create implements raft.SnapshotStore.
func (s *Memory) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration,
	membersIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	own := raft.NewInmemSnapshotStore()
	sink, err := own.Create(version, index, term, members, membersIndex, t)
	return &memorySink{sink, own, index, s}, err
}

// Close makes the snapshot the newest, unless another server has sent a newer one.
func (s *memorySink) Close() error {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.all.index <= s.index {
		s.all.newest, s.all.index = s.own, s.index
	}
	return nil
}
