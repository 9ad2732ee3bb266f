package acl

import (
	"fmt"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
)

// ACLs with the same hash are found, released and retained separately.
func TestACLsWithTheSameHash(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {0, 2, 1}} {
		table := NewTable()
		var acls []*Set
		for i := range 3 {
			a := New([]jute.ACL{{Perms: 1, ID: jute.ID{Scheme: "digest", ID: fmt.Sprint(i)}}})
			a.hash = 7
			table.Retain(a)
			acls = append(acls, a)
		}
		for n, i := range order {
			table.Release(acls[i])
			left := slices.Clone(table.by[7])
			if expect.Equal(t, len(left), 2-n, "%v: len(left)", order) {
				expect.Equal(t, table.n, 2-n, "%v: table.n", order)
				expect.That(t, !slices.Contains(left, acls[i]),
					"%v: %d left of %d: want !slices.Contains(left, acls[i])", order, len(left), table.n)
			}
		}
		table.Retain(acls[1])
		table.Retain(acls[1])
		expect.Equal(t, table.n, 1, "%v: table.n", order)
		expect.List(t, table.by[7], acls[1:2], "%v: table.by[7]", order)
		acls[1].refs = 0
		table.Sweep()
		expect.Equal(t, len(table.by), 0)
	}
}

// A set keeps no bytes of the request that brought an ACL, because the request's buffer is used again.
func TestSetsShareNothingWithTheirInputs(t *testing.T) {
	table := NewTable()
	want := []jute.ACL{{Perms: 1, ID: jute.ID{Scheme: "digest", ID: "a:b"}}, jute.WorldAnyone[0]}
	request := jute.AppendACL(nil, want)
	d := jute.NewDecoder(request)
	list, _ := d.ACL()
	set := table.Intern(list)
	jute.Overwrite(request)
	expect.List(t, set.List(), want, "entries")
	expect.Equal(t, set.Key(), string(jute.AppendACL(nil, want)), "the encoded list")
	expect.That(t, table.Intern(want) == set, "the same entries are another ACL")
}
