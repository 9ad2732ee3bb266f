package offline

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

// Data is the state of a stopped server.
type Data struct {
	*state.State
	Identity disk.Identity
	Members  raft.Configuration
	Last     state.Position
	Torn     string // where an interrupted write begins; it was never acknowledged

	// Known is the index of the last entry that is certainly committed: a later entry shows that a leader had
	// applied it.
	Known    uint64
	LastTime int64 // when the leader wrote the last entry, in ms since 1970
}

// ReadData reads a server's data directory: the newest snapshot and every entry
// after it.
func ReadData(dir string) (*Data, error) {
	s, r, err := openData(dir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d := r.d
	d.Torn, err = s.Entries(func(l *raft.Log, place string) error { return r.entry(l, place, state.Silent{}) })
	if err != nil {
		return nil, err
	}
	if err := s.CheckWhole(d.Last.Index); err != nil {
		return nil, err
	}
	if s.Identity.Cluster == "" {
		return nil, fmt.Errorf("%s belongs to a server that never joined a cluster: it holds no data", dir)
	}
	return d, nil
}

// openData opens a data directory and reads its newest snapshot.
func openData(dir string) (*disk.Stopped, *replay, error) {
	s, err := disk.OpenStopped(dir)
	if err != nil {
		return nil, nil, readable(err)
	}
	r := &replay{d: &Data{Identity: s.Identity, State: state.New(s.Identity.Cluster)}}
	if err := r.readSnapshot(s); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, r, nil
}

func (r *replay) readSnapshot(s *disk.Stopped) error {
	meta, content, file, err := s.Snapshot()
	if err != nil || meta == nil {
		return err
	}
	defer content.Close()
	st, _, err := state.ReadSnapshot(content)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	d := r.d
	d.State, d.Members = st, meta.Configuration
	d.Last = state.Position{Index: meta.Index, Term: meta.Term}
	d.Known, r.snapshot = meta.Index, *meta
	return nil
}

// replay applies a log to the state of the snapshot before it.
type replay struct {
	d        *Data
	snapshot raft.SnapshotMeta // the snapshot before the log; zero: there is none
	replaced bool              // whether the snapshot replaces the log, so that no entry of the log is valid
	zxids    []zxidAt          // the zxid after each entry since d.Known
}

type zxidAt struct {
	zxid  int64
	index uint64
}

// entry() applies an entry, unless the snapshot covers it, and reports the entry's effects to a Sink.
func (r *replay) entry(l *raft.Log, place string, to state.Sink) error {
	d := r.d
	r.replaced = r.replaced || !disk.Follows(&r.snapshot, l)
	if r.replaced || l.Index <= d.Last.Index {
		return nil
	}
	if l.Index != d.Last.Index+1 {
		return fmt.Errorf("%s: log entry %d follows entry %d: the entries between them are "+
			"missing", place, l.Index,
			d.Last.Index)
	}
	d.Last = state.Position{Index: l.Index, Term: l.Term}
	switch l.Type {
	case raft.LogConfiguration:
		d.Members = raft.DecodeConfiguration(l.Data)
		return nil
	case raft.LogCommand:
	default:
		return nil
	}
	time, _, err := entries.Read(l.Data, func(x *entries.Logged) error {
		if x.Op == state.OpDigest {
			r.reached(state.DigestZxid(x.Body))
		}
		return nil
	})
	if err == nil {
		err = d.Apply(l.Data, to)
	}
	if err != nil {
		return fmt.Errorf("%s: log entry %d: %w", place, l.Index, err)
	}
	d.LastTime = time
	r.zxids = append(r.zxids, zxidAt{d.Zxid(), l.Index})
	return nil
}

// reached() records that a leader had applied every change up to zxid.
func (r *replay) reached(zxid int64) {
	for len(r.zxids) > 0 && r.zxids[0].zxid <= zxid {
		at := r.zxids[0]
		r.d.Known = at.index
		r.zxids = r.zxids[1:]
		if at.zxid == zxid {
			return // later entries with the same zxid do not count: perhaps they are not committed
		}
	}
}

// ReadBackup reads a backup, or the snapshot of a server.
func ReadBackup(path string) (*state.State, error) {
	f, err := disk.ContentOf(path)
	if err != nil {
		return nil, readable(err)
	}
	defer f.Close()
	s, _, err := state.ReadSnapshot(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; use another backup", path, err)
	}
	return s, nil
}

// FileKind names the content of a path.
type FileKind string

// The kinds of content that FileKindOf distinguishes.
const (
	DataDir      FileKind = "data directory of a zlockd"
	ZooKeeperDir FileKind = "data directory of a ZooKeeper"
	Backup       FileKind = "backup or snapshot of a zlockd"
	ZooSnapshot  FileKind = "snapshot of a ZooKeeper"
	ZooLog       FileKind = "transaction log of a ZooKeeper"
)

// FileKindOf returns the kind of the path's content.
func FileKindOf(path string) (FileKind, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", readable(err)
	}
	if info.IsDir() {
		switch {
		case disk.IsDataDir(path):
			return DataDir, nil
		case IsZooKeeperDir(path):
			return ZooKeeperDir, nil
		}
		return "", fmt.Errorf("%s is neither a data directory of a zlockd nor of a ZooKeeper", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", readable(err)
	}
	defer f.Close()
	head, _ := bufio.NewReader(f).Peek(16)
	switch text := string(head); {
	case strings.HasPrefix(text, "zlockd snapshot "):
		return Backup, nil
	case strings.HasPrefix(text, "ZKSN"), strings.HasPrefix(text, "\x1f\x8b"),
		strings.HasPrefix(text, "\x82SNAPPY"):
		return ZooSnapshot, nil
	case strings.HasPrefix(text, "ZKLG"):
		return ZooLog, nil
	}
	return "", errors.New(path + " is neither a backup nor a snapshot")
}

// ReadState reads a stopped server's data directory, or a backup.
func ReadState(path string) (*state.State, error) {
	kind, err := FileKindOf(path)
	if err != nil {
		return nil, err
	}
	switch kind {
	case DataDir:
		d, err := ReadData(path)
		if err != nil {
			return nil, err
		}
		return d.State, nil
	case Backup:
		return ReadBackup(path)
	}
	return nil, fmt.Errorf("%s is a %s: want the data directory or a backup of a zlockd", path, kind)
}
