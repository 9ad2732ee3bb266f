package offline

import (
	"io"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// ToZooKeeper turns a backup into a ZooKeeper's snapshot while it reads the backup, with sessions
// and ephemeral nodes. acls are all the ACLs that the nodes have.
func ToZooKeeper(w io.Writer, backup io.Reader, acls [][]jute.ACL) error {
	var zw *zkfiles.SnapshotWriter
	nodes := tree.NewReader(func(path string, i *tree.Info) error { return zw.Node(path, toZooKeeper(path, i)) })
	s, err := state.ReadNodes(backup, func(s *state.State) (err error) {
		sessions := map[int64]int32{}
		s.Sessions().All(func(x session.Session) { sessions[x.ID] = x.Timeout })
		zw, err = zkfiles.NewSnapshotWriter(w, -1, sessions, acls)
		return err
	}, nodes.Add)
	if err == nil {
		err = nodes.Done()
	}
	if err != nil {
		return err
	}
	return zw.Close(s.Zxid())
}
