package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// Export makes a ZooKeeper's data directory from a state: a snapshot, a log that ZooKeeper continues, and the
// epoch files of an ensemble's server. The directory must be missing or empty. After an error Export removes
// the files that it made.
func Export(ctx context.Context, s *state.State, dir string, keep bool) (m *Made, err error) {
	err = disk.MakeDir(dir, func() (err error) {
		to := filepath.Join(dir, "version-2")
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		zxid := s.Zxid()
		err = vfs.Fill(filepath.Join(to, fmt.Sprintf("snapshot.%x", zxid)), func(w io.Writer) (err error) {
			m, err = WriteZooSnapshot(disk.Until(ctx, w), s, keep)
			return err
		})
		// LoadZooKeeper refuses a directory without a log, because only a log has the newest changes. So Export
		// writes a log with one entry, which changes nothing.
		log := zkfiles.AppendLogHeader(nil, 0)
		if zxid > 0 {
			none := &zkfiles.Txn{Zxid: zxid, Type: jute.OpError, Ops: []zkfiles.Op{{Type: jute.OpError}}}
			log = zkfiles.AppendLogEntry(log, none)
		}
		epoch := fmt.Append(nil, zxid>>32)
		for name, content := range map[string][]byte{fmt.Sprintf("log.%x", max(zxid, 1)): log,
			"currentEpoch": epoch, "acceptedEpoch": epoch} {
			if err == nil {
				err = vfs.WriteFile(vfs.OS, filepath.Join(to, name), content)
			}
		}
		return errors.Join(err, vfs.OS.SyncDir(dir), vfs.OS.SyncDir(filepath.Dir(filepath.Clean(dir))))
	})
	return m, err
}

// WriteZooSnapshot writes a state as a ZooKeeper's snapshot.
func WriteZooSnapshot(w io.Writer, s *state.State, keep bool) (*Made, error) {
	m := &Made{Cluster: s.ClusterID(), Zxid: s.Zxid()}
	sessions := map[int64]int32{}
	if keep {
		derived := 0
		s.Sessions().All(func(sess session.Session) {
			sessions[sess.ID] = sess.Timeout
			if sess.Password == zkfiles.Password(sess.ID) {
				derived++
			}
		})
		if n := len(sessions) - derived; n > 0 {
			m.Notes = append(m.Notes,
				fmt.Sprintf("%d of %d sessions were made by zlockd, with passwords that ZooKeeper does not know: "+
					"their clients get new sessions, and the nodes of the old sessions stay until the old "+
					"sessions expire", n, len(sessions)))
		}
	}
	m.Sessions = len(sessions)
	ttls := 0
	zw, err := zkfiles.NewSnapshotWriter(w, -1, sessions, s.Tree().ACLs())
	if err != nil {
		return nil, err
	}
	s.Tree().Walk(func(path string, i tree.Info) bool {
		if i.Kind == tree.EphemeralNode && !keep {
			m.Left = append(m.Left, path)
			return true
		}
		if m.Nodes++; i.Kind == tree.TTLNode {
			ttls++
		}
		err = zw.Node(path, withoutMembers(path, &i))
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	if ttls > 0 {
		m.Notes = append(m.Notes,
			fmt.Sprintf("%d nodes have a time to live: start ZooKeeper with -Dzookeeper.extendedTypesEnabled=true, "+
				"otherwise ZooKeeper deletes these nodes", ttls))
	}
	return m, zw.Close(m.Zxid)
}

// ToZooKeeper turns a backup into a ZooKeeper's snapshot, with sessions and ephemeral nodes. It writes each
// node as soon as it has read it. `acls` are all the ACLs that the nodes have.
func ToZooKeeper(w io.Writer, backup io.Reader, acls [][]jute.ACL) error {
	var zw *zkfiles.SnapshotWriter
	s, err := state.ReadNodes(backup, func(s *state.State) (err error) {
		sessions := map[int64]int32{}
		s.Sessions().All(func(x session.Session) { sessions[x.ID] = x.Timeout })
		zw, err = zkfiles.NewSnapshotWriter(w, -1, sessions, acls)
		return err
	}, func(path string, i *tree.Info) error { return zw.Node(path, withoutMembers(path, i)) })
	if err != nil {
		return err
	}
	return zw.Close(s.Zxid())
}
