package raftfsm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotStore keeps snapshots as single files, each complete or absent:
//
//	file := content · meta (JSON) · content length u64 · meta length u32 · crc32c of meta and lengths u32
//
// The content carries its own checksums. A file is written under a temporary
// name, synced, renamed and the directory synced, so a crash leaves at most a
// temporary file, which the next start removes. Unlike raft's own file store
// it never passes over a damaged snapshot in favour of an older one: the log
// entries behind the older one are gone.
type snapshotStore struct {
	dir    string
	retain int
}

const (
	snapshotSuffix  = ".snap"
	snapshotTrailer = 16
)

func openSnapshotStore(dir string, retain int) (*snapshotStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if err != nil {
		return nil, err
	}
	for _, f := range left {
		if err := os.Remove(f); err != nil {
			return nil, err
		}
	}
	return &snapshotStore{dir, retain}, nil
}

// names lists the snapshots, newest first: names sort by index.
func (s *snapshotStore) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), snapshotSuffix) {
			names = append(names, strings.TrimSuffix(e.Name(), snapshotSuffix))
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// List implements raft.SnapshotStore. It offers the newest snapshot alone.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	names, err := s.names()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	f, err := os.Open(s.path(names[0]))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	meta, err := readSnapshotMeta(f)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", f.Name(), err)
	}
	return []*raft.SnapshotMeta{meta}, nil
}

// Open implements raft.SnapshotStore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	f, err := os.Open(s.path(id))
	if err != nil {
		return nil, nil, err
	}
	meta, err := readSnapshotMeta(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("snapshot %s: %w", f.Name(), err)
	}
	return meta, &limitedFile{io.LimitReader(f, meta.Size), f}, nil
}

type limitedFile struct {
	io.Reader
	io.Closer
}

func (s *snapshotStore) path(id string) string { return filepath.Join(s.dir, id+snapshotSuffix) }

func readSnapshotMeta(f *os.File) (*raft.SnapshotMeta, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var tail [snapshotTrailer]byte
	if info.Size() < snapshotTrailer {
		return nil, errors.New("file is cut short")
	}
	if _, err := f.ReadAt(tail[:], info.Size()-snapshotTrailer); err != nil {
		return nil, err
	}
	content := binary.BigEndian.Uint64(tail[:])
	size := int64(binary.BigEndian.Uint32(tail[8:]))
	if size > 1<<20 || content != uint64(info.Size()-snapshotTrailer-size) {
		return nil, errors.New("file is damaged (lengths)")
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, int64(content)); err != nil {
		return nil, err
	}
	if crc32.Checksum(append(b, tail[:12]...), crcTable) != binary.BigEndian.Uint32(tail[12:]) {
		return nil, errors.New("file is damaged (checksum)")
	}
	meta := new(raft.SnapshotMeta)
	if err := json.Unmarshal(b, meta); err != nil {
		return nil, err
	}
	meta.Size = int64(content)
	return meta, nil
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	id := fmt.Sprintf("%020d-%010d", index, term)
	f, err := os.CreateTemp(s.dir, id+"-*.tmp")
	if err != nil {
		return nil, err
	}
	meta := &raft.SnapshotMeta{Version: version, ID: id, Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex}
	return &snapshotSink{store: s, f: f, meta: meta}, nil
}

// snapshotSink is a snapshot being written.
type snapshotSink struct {
	store *snapshotStore
	f     *os.File
	meta  *raft.SnapshotMeta
	done  bool

	unsynced int // bytes written since the last sync
}

func (s *snapshotSink) ID() string { return s.meta.ID }

// A snapshot is written in steps, each synced and followed by a rest: one sync
// of hundreds of megabytes at the end would hold up the syncs of the log, and
// with them every write, for as long as it takes.
const (
	snapshotStep = 1 << 20
	snapshotRest = 50 * time.Millisecond // at most, after a step
)

func (s *snapshotSink) Write(b []byte) (int, error) {
	n, err := s.f.Write(b)
	s.meta.Size += int64(n)
	if s.unsynced += n; err != nil || s.unsynced < snapshotStep {
		return n, err
	}
	s.unsynced = 0
	began := time.Now()
	if err := s.f.Sync(); err != nil {
		return n, err
	}
	time.Sleep(min(time.Since(began), snapshotRest))
	return n, nil
}

// Cancel throws the snapshot away.
func (s *snapshotSink) Cancel() error {
	if s.done {
		return nil
	}
	s.done = true
	return errors.Join(s.f.Close(), os.Remove(s.f.Name()))
}

// Close makes the snapshot durable and visible, then removes old ones.
func (s *snapshotSink) Close() error {
	if s.done {
		return nil
	}
	if err := s.finish(); err != nil {
		return errors.Join(err, s.Cancel())
	}
	s.done = true
	return s.store.prune()
}

func (s *snapshotSink) finish() error {
	b, err := json.Marshal(s.meta)
	if err != nil {
		return err
	}
	size := len(b)
	b = binary.BigEndian.AppendUint64(b, uint64(s.meta.Size))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crcTable))
	if _, err := s.f.Write(b); err != nil {
		return err
	}
	if err := s.f.Sync(); err != nil {
		return err
	}
	if err := s.f.Close(); err != nil {
		return err
	}
	if err := os.Rename(s.f.Name(), s.store.path(s.meta.ID)); err != nil {
		return err
	}
	return syncDir(s.store.dir)
}

func (s *snapshotStore) prune() error {
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, name := range names[min(s.retain, len(names)):] {
		if err := os.Remove(s.path(name)); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// forgetSnapshots is the snapshot store of a server in memory that nobody else
// will ever need a snapshot from: taking one only lets raft drop its log.
type forgetSnapshots struct{}

type forgetSink struct{}

func (forgetSnapshots) List() ([]*raft.SnapshotMeta, error) { return nil, nil }
func (forgetSnapshots) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return nil, nil, os.ErrNotExist
}
func (forgetSnapshots) Create(raft.SnapshotVersion, uint64, uint64, raft.Configuration, uint64, raft.Transport) (raft.SnapshotSink, error) {
	return forgetSink{}, nil
}

func (forgetSink) ID() string                  { return "forgotten" }
func (forgetSink) Write(b []byte) (int, error) { return len(b), nil }
func (forgetSink) Cancel() error               { return nil }
func (forgetSink) Close() error                { return nil }
