package locks

import (
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
)

// A cleared piece refers to nothing that it has read, so that this memory can be freed.
func TestAClearedPieceKeepsNothing(t *testing.T) {
	made := tree.New()
	for i, path := range []string{"/locks", "/locks/a-0000000001"} {
		c := tree.Change{Zxid: int64(i + 1)}
		_, code, _ := made.Apply(&c, jute.OpCreate, wire.Create(path, []byte("data"), jute.WorldAnyone, 0), nil)
		must.That(t, code == jute.OK, "%v", code)
	}
	node, ok := made.Find("/locks/a-0000000001")
	must.That(t, ok, "there is no node")
	p := newPiece(4, 4, 100)
	at, _ := p.dir(made, node.Parent())
	p.node(node, nil, at)
	p.clear()
	expect.That(t, len(p.nodes)+len(p.dirs)+len(p.paths) == 0, "%d nodes, %d directories and %d bytes are left",
		len(p.nodes), len(p.dirs), len(p.paths))
	for _, n := range p.nodes[:cap(p.nodes)] {
		expect.That(t, n.Node == recipe.Node{}, "it keeps the node %+v", n)
	}
	for _, d := range p.dirs[:cap(p.dirs)] {
		expect.That(t, d == dir{}, "it keeps the directory %+v", d)
	}
}
