package acl

import (
	"hash/maphash"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// Table finds the ACL of an encoded list, its key. A key may be long, so each ACL stores the hash of its key.
type Table struct {
	seed maphash.Seed
	by   map[uint64][]*Set // the ACLs for each hash of a key, almost always only one
	n    int
	size int64 // bytes of all keys
}

// NewTable returns a Table without ACLs.
func NewTable() Table { return Table{seed: maphash.MakeSeed(), by: map[uint64][]*Set{}} }

// Len returns how many ACLs there are.
func (t *Table) Len() int { return t.n }

// Bytes returns how long the keys of all ACLs are in total.
func (t *Table) Bytes() int64 { return t.size }

// Each calls f for every ACL, in no particular order.
func (t *Table) Each(f func(*Set)) {
	for _, same := range t.by {
		for _, a := range same {
			f(a)
		}
	}
}

// Intern returns the ACL with these entries. The caller calls Retain for each node that gets the ACL.
func (t *Table) Intern(acl []jute.ACL) *Set {
	var room [128]byte
	key := jute.AppendACL(room[:0], acl)
	hash := maphash.Bytes(t.seed, key)
	for _, a := range t.by[hash] {
		if a.key == string(key) {
			return a
		}
	}
	a := parse(string(key))
	a.hash = hash
	t.enter(a)
	return a
}

func (t *Table) enter(a *Set) {
	a.listed = true
	t.by[a.hash] = append(t.by[a.hash], a)
	t.n++
	t.size += int64(len(a.key))
}

// Retain counts one more node with the ACL a.
func (t *Table) Retain(a *Set) {
	if a.refs++; !a.listed {
		t.enter(a)
	}
}

// Release undoes one call of Retain: a node no longer has the ACL a.
func (t *Table) Release(a *Set) {
	if a.refs--; a.refs == 0 {
		t.prune(a.hash)
	}
}

// prune() drops each ACL with this hash that no node has.
func (t *Table) prune(hash uint64) {
	kept := slices.DeleteFunc(t.by[hash], func(a *Set) bool {
		if a.listed = a.refs > 0; !a.listed {
			t.n--
			t.size -= int64(len(a.key))
		}
		return !a.listed
	})
	if t.by[hash] = kept; len(kept) == 0 {
		delete(t.by, hash)
	}
}

// Sweep drops ACLs that no node has.
func (t *Table) Sweep() {
	for hash := range t.by {
		t.prune(hash)
	}
}
