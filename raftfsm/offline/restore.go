package offline

import (
	"context"
	"crypto/rand"
	"io"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// epoch is how far the zxid of a restored state lies above that of its backup.
// Nobody has seen so many changes behind a backup, so whatever a client saw
// before lies below what it will see.
const epoch = 1 << 32

// Restore makes the data directory of a server, a cluster by itself, of a
// backup. Without keep all sessions are ended. now is in ms since 1970.
func Restore(ctx context.Context, backup, dir string, server uint32, keep bool, now int64) (*Made, error) {
	kind, err := FileKindOf(backup)
	if err != nil {
		return nil, err
	}
	if kind == ZooSnapshot {
		z, err := loadFile(backup)
		if err != nil {
			return nil, err
		}
		z.Zxid += epoch
		return Import(ctx, z, dir, server, keep, now)
	}
	s, err := ReadBackup(backup)
	if err != nil {
		return nil, err
	}
	m := refound(s, keep, now)
	return m, found(ctx, dir, server, m.Cluster, func(w io.Writer) error { return WriteBackup(w, s) })
}

// refound makes the state that of a new cluster.
func refound(s *state.State, keep bool, now int64) *Made {
	m := &Made{Cluster: disk.NewID(rand.Reader)}
	s.Refound(m.Cluster, now)
	s.Raise(s.Zxid() + epoch)
	if !keep {
		for _, paths := range s.Tree().Ephemerals() {
			m.Left = append(m.Left, paths...)
		}
		s.EndSessions(now)
	}
	m.Zxid, m.Nodes, m.Sessions = s.Zxid(), s.Tree().Count(), s.Sessions().Len()
	return m
}

// WriteBackup writes a state that nobody changes meanwhile.
func WriteBackup(w io.Writer, s *state.State) error {
	snap := s.StartSnapshot(state.Position{Index: 1, Term: 1})
	defer snap.Close()
	return snap.Write(w, func(read func()) { read() })
}
