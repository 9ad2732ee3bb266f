package history

import (
	"fmt"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// Backup is a backup that a server gave during the history. All its nodes must be as if they were read at its
// zxid, after a sync.
type Backup struct {
	Server string
	Start  time.Duration // when it was asked for
	End    time.Duration // when it was complete
	Zxid   int64
	Nodes  []BackupNode // the nodes at and below the root of the history, in the order of their paths
}

// BackupNode is a node of a backup.
type BackupNode struct {
	Path string
	Stat jute.Stat
	Data []byte
	ACL  []jute.ACL
}

func (b *Backup) String() string {
	return fmt.Sprintf("backup of server %s at zxid %d, with %d nodes", b.Server, b.Zxid, len(b.Nodes))
}

// super is the user that may read everything.
var super = []jute.ID{{Scheme: "super"}}

// backup compares a backup with the model.
func (c *checker) backup(b *Backup, record int) {
	kids := map[string][]string{}
	for i := range b.Nodes {
		if path := b.Nodes[i].Path; path != c.Root {
			kids[parentOf(path)] = append(kids[parentOf(path)], path[strings.LastIndexByte(path, '/')+1:])
		}
	}
	if len(b.Nodes) == 0 {
		c.missing(c.Root, b.Zxid, record, "a backup lacks it")
		return
	}
	for i := range b.Nodes {
		x := &b.Nodes[i]
		n := c.there(x.Path, b.Zxid, record, "a backup has it")
		if n == nil {
			continue
		}
		c.compareChildren(n, &Op{Zxid: b.Zxid, Children: kids[x.Path]}, record)
		if n = c.model.nodes[x.Path]; n == nil {
			continue
		}
		c.compare(n, &x.Stat, b.Zxid, record)
		c.compareData(n, x.Data, record)
		c.compareACL(n, x.ACL, super, b.Zxid, record)
	}
}
