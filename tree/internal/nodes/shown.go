package nodes

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
)

var anyone = []jute.ID{jute.WorldAnyone[0].ID}

// ShowsNames reports whether every client may list the names below the node: world:anyone may read it and
// each node above it. Operators without a password see only such names.
func (r Ref) ShowsNames() bool {
	for n := r.n; n != nil; n = n.Parent {
		if !n.ACL.Allows(anyone, jute.PermRead) {
			return false
		}
	}
	return true
}

// Shows reports whether every client may learn a path by listing; see ShowsNames. A watch may wait at a path
// that does not exist; then the existing part of the path counts.
func (t *Nodes) Shows(path string) bool {
	dir := path[:max(strings.LastIndexByte(path, '/'), 0)]
	n := t.Root
	for part := range strings.SplitSeq(strings.TrimPrefix(dir, "/"), "/") {
		below := t.Below(n, part)
		if below == nil {
			break
		}
		n = below
	}
	return path == "/" || Ref{n}.ShowsNames()
}
