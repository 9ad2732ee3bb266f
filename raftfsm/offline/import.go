package offline

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"math"
	"slices"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// Made says what a new data directory holds.
type Made struct {
	Cluster  string   `json:"cluster,omitempty"`
	Zxid     int64    `json:"-"`
	Nodes    int      `json:"nodes"`
	Sessions int      `json:"sessions"`
	Left     []string `json:"left"` // paths of ephemeral nodes that were left out
	Notes    []string `json:"notes"`
}

// Import makes the data directory of a server, which is a cluster of one, from a ZooKeeper's data. If `keep`
// is true, it keeps the sessions, their passwords and their ephemeral nodes. Otherwise it removes these nodes
// from z. `now` is the time, in ms since 1970.
func Import(ctx context.Context, z *ZooKeeper, dir string, server uint32, keep bool, now int64) (*Made,
	error) {
	m := &Made{Cluster: disk.NewID(rand.Reader), Zxid: z.Zxid, Notes: z.Notes}
	var sessions []session.Session
	if keep {
		for id, timeout := range z.Sessions {
			sessions = append(sessions, session.Session{ID: id, Password: zkfiles.Password(id), Timeout: timeout,
				Owner: server, Created: now})
		}
	}
	for id := range z.Nodes.Owners() {
		if _, alive := z.Sessions[id]; keep && alive {
			continue
		}
		for _, path := range z.Nodes.SomeEphemeralsOf(id, math.MaxInt) {
			z.Nodes.Remove(path, func(path string, _ *tree.Info) { m.Left = append(m.Left, path) })
		}
	}
	slices.Sort(m.Left)
	z.Nodes.Recount() // the nodes that were left out no longer count for a quota
	m.Nodes, m.Sessions = z.Nodes.Count(), len(sessions)
	slices.SortFunc(sessions, func(x, y session.Session) int { return compareIDs(x.ID, y.ID) })
	var err error
	z.Nodes.Walk(func(path string, n tree.Info) bool {
		// Releases of ZooKeeper before 3.4 did not store the pzxid of every node.
		if least := n.Czxid; path == config.Path || n.Pzxid < least || n.Mzxid < least {
			n.Pzxid, n.Mzxid = max(n.Pzxid, least), max(n.Mzxid, least)
			err = z.Nodes.Set(path, withoutMembers(path, &n))
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	s, err := state.Adopt(m.Cluster, z.Zxid, sessions, z.Nodes)
	if err != nil {
		return nil, err
	}
	return m, found(ctx, dir, server, m.Cluster, func(w io.Writer) error { return WriteBackup(w, s) })
}

// withoutMembers empties n if it is the node that lists the members. ZooKeeper and zlockd each write their
// own list, so the list does not move from one to the other.
func withoutMembers(path string, n *tree.Info) *tree.Info {
	if path == config.Path {
		n.Data, n.Version, n.Czxid, n.Mzxid, n.Ctime, n.Mtime = []byte{}, 0, 0, 0, 0, 0
	}
	return n
}

func compareIDs(a, b int64) int { return cmp.Compare(uint64(a), uint64(b)) }

// found() makes a data directory whose log begins at entry 1.
func found(ctx context.Context, dir string, server uint32, cluster string,
	write func(io.Writer) error) error {
	f := disk.Founding{Server: server, Cluster: cluster, Index: 1, Term: 1}
	return disk.Found(dir, f, func(w io.Writer) error { return write(disk.Until(ctx, w)) })
}
