package state

import (
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// AppendUnchanged appends operations to a multi that make and remove a node in a directory. They fail with
// NONODE unless the directory gives the number next to its next sequential node, which tells that no node was
// made there since the number was read (tree.Ref.Counter). A node that was made again at the same path cannot
// be told from the former one by its version.
func AppendUnchanged(multi []byte, dir string, next int32) []byte {
	prefix := strings.TrimSuffix(dir, "/") + "/zlockd-look-" // the root ends in a slash
	multi = jute.AppendMultiHeader(multi, jute.OpCreate, false, -1)
	multi = jute.AppendBuffer(jute.AppendString(multi, prefix), nil)
	multi = jute.AppendInt(jute.AppendACL(multi, jute.WorldAnyone), jute.FlagPersistentSequential)
	multi = jute.AppendMultiHeader(multi, jute.OpDelete, false, -1)
	return jute.AppendInt(jute.AppendString(multi, fmt.Sprintf("%s%010d", prefix, next)), -1)
}
