package offline

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// fromZooKeeper converts a node of a ZooKeeper to a node of zlockd.
func fromZooKeeper(path string, n *zkfiles.Node) *tree.Info {
	kind, ttl := n.Kind()
	i := &tree.Info{
		Stat: jute.Stat{Czxid: n.Czxid, Mzxid: n.Mzxid, Pzxid: n.Pzxid, Ctime: n.Ctime, Mtime: n.Mtime,
			Version: n.Version, Aversion: n.Aversion},
		Data: n.Data, ACL: n.ACL, Counter: n.Cversion,
	}
	switch kind {
	case zkfiles.Ephemeral:
		i.Kind, i.EphemeralOwner = tree.EphemeralNode, n.Owner
	case zkfiles.Container:
		i.Kind = tree.ContainerNode
	case zkfiles.TTL:
		i.Kind, i.TTL = tree.TTLNode, ttl
	}
	// Releases before 3.4 did not keep pzxid from the start.
	i.Pzxid = max(i.Pzxid, i.Czxid)
	i.Mzxid = max(i.Mzxid, i.Czxid)
	if path == state.ConfigPath { // each kind of server writes its own
		i.Data, i.Version, i.Czxid, i.Mzxid, i.Ctime, i.Mtime = []byte{}, 0, 0, 0, 0, 0
	}
	return i
}

// toZooKeeper converts a node the other way round.
func toZooKeeper(path string, i *tree.Info) *zkfiles.Node {
	n := toZooKeeperAsIs(i)
	if path == state.ConfigPath {
		n.Data, n.Version, n.Czxid, n.Mzxid, n.Ctime, n.Mtime = []byte{}, 0, 0, 0, 0, 0
	}
	return n
}

// toZooKeeperAsIs is toZooKeeper that converts the node of the members as it is, too.
func toZooKeeperAsIs(i *tree.Info) *zkfiles.Node {
	n := &zkfiles.Node{Data: i.Data, ACL: i.ACL, Stat: zkfiles.Stat{
		Czxid: i.Czxid, Mzxid: i.Mzxid, Pzxid: i.Pzxid, Ctime: i.Ctime, Mtime: i.Mtime,
		Version: i.Version, Cversion: i.Counter, Aversion: i.Aversion,
	}}
	switch i.Kind {
	case tree.EphemeralNode:
		n.Owner = i.EphemeralOwner
	case tree.ContainerNode:
		n.Owner = zkfiles.OwnerOf(zkfiles.Container, 0)
	case tree.TTLNode:
		n.Owner = zkfiles.OwnerOf(zkfiles.TTL, i.TTL)
	}
	return n
}
