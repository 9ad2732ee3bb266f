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
			expect.That(t, len(left) == 2-n && table.n == 2-n && !slices.Contains(left, acls[i]), "%v: %d left of %d",
				order, len(left), table.n)
		}
		table.retain(acls[1])
		table.retain(acls[1])
		expect.That(t, table.n == 1 && slices.Equal(table.by[7], acls[1:2]), "%v: not there again", order)
		acls[1].refs = 0
		table.sweep()
		expect.Equal(t, len(table.by), 0)
	}
}
