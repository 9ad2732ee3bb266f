package state

import (
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// AppendUnchanged appends two operations to `multi`: they make and remove a node in a directory. They fail
// with NONODE if the directory's next sequential node would not get the number `next`. If they succeed, no
// node was made in the directory since that number was read (tree.Ref.Counter). A check of a version is not
// enough: a node that was deleted and made again can have the version of the former node.
func AppendUnchanged(multi []byte, dir string, next int32) []byte {
	prefix := strings.TrimSuffix(dir, "/") + "/zlockd-look-" // the root ends in a slash
	multi = jute.AppendMultiHeader(multi, jute.OpCreate, false, -1)
	multi = jute.AppendBuffer(jute.AppendString(multi, prefix), nil)
	multi = jute.AppendInt(jute.AppendACL(multi, jute.WorldAnyone), jute.FlagPersistentSequential)
	multi = jute.AppendMultiHeader(multi, jute.OpDelete, false, -1)
	return jute.AppendInt(jute.AppendString(multi, fmt.Sprintf("%s%010d", prefix, next)), -1)
}
