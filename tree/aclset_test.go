package tree

import (
	"fmt"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
)

// ACLs whose hashes are equal are found, released and retained apart.
func TestACLsWithTheSameHash(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {0, 2, 1}} {
		table := newACLTable()
		var acls []*ACL
		for i := range 3 {
			a := NewACL([]jute.ACL{{Perms: 1, ID: jute.ID{Scheme: "digest", ID: fmt.Sprint(i)}}})
			a.hash = 7
			table.retain(a)
			acls = append(acls, a)
		}
		for n, i := range order {
			table.release(acls[i])
			left := slices.Clone(table.by[7])
			if expect.Equal(t, len(left), 2-n, "%v: len(left)", order) {
				expect.Equal(t, table.n, 2-n, "%v: table.n", order)
				expect.That(t, !slices.Contains(left, acls[i]),
					"%v: %d left of %d: want !slices.Contains(left, acls[i])", order, len(left), table.n)
			}
		}
		table.retain(acls[1])
		table.retain(acls[1])
		expect.Equal(t, table.n, 1, "%v: table.n", order)
		expect.List(t, table.by[7], acls[1:2], "%v: table.by[7]", order)
		acls[1].refs = 0
		table.sweep()
		expect.Equal(t, len(table.by), 0)
	}
}
