package offline

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// If the clock cannot give the zxid of a restored state, the state continues from the backup's zxid plus
// beyond.
const beyond = 1 << 32

// goesOn returns the zxid from which a restored state continues. The zxids of a zlockd are never ahead of the
// clock. So a backup whose zxid is ahead of the clock comes from a ZooKeeper with many elections, or a clock
// is wrong. goesOn first waits one millisecond, because another restore may have used the zxids of the
// present millisecond.
func goesOn(zxid int64) (_ int64, note string) {
	time.Sleep(time.Millisecond)
	if now := state.TimeZxid(time.Now().UnixMilli()); now > zxid {
		return now, ""
	}
	return zxid + beyond, fmt.Sprintf(
		"zxid 0x%x is ahead of the clock of this machine: fencing tokens grow only if fewer "+
			"than 2^32 changes were made after this state; if the clock is behind, correct it and repeat the "+
			"command", zxid)
}

// Restore makes the data directory of a server, which is a cluster of one, from a backup. If `keep` is false,
// it ends all sessions. `now` is in ms since 1970.
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
		var note string
		if z.Zxid, note = goesOn(z.Zxid); note != "" {
			z.Notes = append(z.Notes, note)
		}
		m, err := Import(ctx, z, dir, server, keep, now)
		return m.warned(keep), err
	}
	s, err := ReadBackup(backup)
	if err != nil {
		return nil, err
	}
	m := refound(s, keep, now).warned(keep)
	return m, found(ctx, dir, server, m.Cluster, func(w io.Writer) error { return WriteBackup(w, s) })
}

// warned() adds a warning about the sessions of the backup, if they were kept.
func (m *Made) warned(keep bool) *Made {
	if keep && m.Sessions > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("%d sessions of the backup were kept: a lock that such a "+
			"session has released since the backup is held again until its client closes the session or "+
			"stops", m.Sessions))
	}
	return m
}

// refound() turns the state into the state of a new cluster.
func refound(s *state.State, keep bool, now int64) *Made {
	m := &Made{Cluster: disk.NewID(rand.Reader)}
	s.Refound(m.Cluster, now)
	next, note := goesOn(s.Zxid())
	s.Raise(next)
	if note != "" {
		m.Notes = append(m.Notes, note)
	}
	if !keep {
		for id := range s.Tree().Owners() {
			m.Left = append(m.Left, s.Tree().SomeEphemeralsOf(id, math.MaxInt)...)
		}
		slices.Sort(m.Left)
		s.EndSessions(now)
	}
	m.Zxid, m.Nodes, m.Sessions = s.Zxid(), s.Tree().Count(), s.Sessions().Len()
	return m
}

// WriteBackup writes a state as a backup. The state must not change while it is written.
func WriteBackup(w io.Writer, s *state.State) error {
	snap := s.StartSnapshot(state.Position{Index: 1, Term: 1})
	defer snap.Close()
	return snap.Write(w, func(read func()) { read() })
}
