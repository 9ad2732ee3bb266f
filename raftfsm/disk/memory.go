package disk

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hashicorp/raft"
)

// memorySnapshots is the snapshot store of a server in memory. A snapshot takes the place of the newest
// when it is complete.
type memorySnapshots struct {
	mu     sync.Mutex
	newest *memorySink // nil: there is none
}

type memorySink struct {
	bytes.Buffer
	store *memorySnapshots
	meta  raft.SnapshotMeta
}

// Forgets reports whether a snapshot written to sink is kept nowhere, so that it need not be written.
func Forgets(sink raft.SnapshotSink) bool {
	_, is := sink.(*raft.DiscardSnapshotSink)
	return is
}

// List implements raft.SnapshotStore.
func (s *memorySnapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return nil, nil
	}
	meta := s.newest.meta
	return []*raft.SnapshotMeta{&meta}, nil
}

// Open implements raft.SnapshotStore.
func (s *memorySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil || s.newest.meta.ID != id {
		return nil, nil, os.ErrNotExist
	}
	meta := s.newest.meta
	return &meta, io.NopCloser(bytes.NewReader(s.newest.Bytes())), nil
}

// Create implements raft.SnapshotStore.
func (s *memorySnapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration,
	membersIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &memorySink{store: s, meta: raft.SnapshotMeta{Version: version, ID: fmt.Sprintf("%d-%d", index, term),
		Index: index, Term: term, Configuration: members, ConfigurationIndex: membersIndex}}, nil
}

func (s *memorySink) ID() string    { return s.meta.ID }
func (s *memorySink) Cancel() error { return nil }

// Close makes the snapshot the newest, unless another server has sent a newer one.
func (s *memorySink) Close() error {
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	s.meta.Size = int64(s.Len())
	if st.newest == nil || st.newest.meta.Index <= s.meta.Index {
		st.newest = s
	}
	return nil
}
