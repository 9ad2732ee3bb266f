package turns

import (
	"iter"

	"github.com/zlockd/zlockd/client/recipe"
)

// Use is the kind of lock for which a path is used.
//
// Different kinds of locks on one path do not exclude each other by themselves, because each looks only at
// nodes of its own kind. So an attempt makes its node and then, before the grant, searches the directory for
// holders of other kinds. Of two attempts at the same time at least one sees the other, because each makes
// its node before it searches. For kinds that may have no node, the data of the directory show the kind.
type Use uint8

const (
	UseQueue       Use = iota // numbered nodes; Rule.Place distinguishes their kinds
	UsePolicy                 // read-write lock with a policy
	UseSimple                 // one node named `lock`, of another program
	UsePermits                // semaphore with nodes in the directory `leases`
	UseBarePermits            // kazoo's semaphore: nodes named by an id alone
)

// useOf returns the use that the name of a directory's child shows.
func useOf(name string) (Use, bool) {
	switch {
	case name == recipe.SimpleName:
		return UseSimple, true
	case name == recipe.PermitsName:
		return UsePermits, true
	case recipe.IsPolicyNode(name):
		return UsePolicy, true
	}
	if c, _, ok := recipe.ParseName(name); ok && c.Kind != recipe.RoleLease {
		return UseQueue, true
	}
	if _, ok := recipe.ParseHex(name); ok {
		return UseBarePermits, true
	}
	return 0, false
}

// Rivals returns the children of a path whose names belong to another kind of lock, each with its use. The
// client refuses a contender of the use `own` if a rival is alive. A rival of the use UsePermits is alive if
// it contains a permit, and any other rival is alive if it is ephemeral.
func (own Use) Rivals(names []string) iter.Seq2[string, Use] {
	return func(yield func(string, Use) bool) {
		for _, name := range names {
			if name[0] == '_' && own == UseQueue {
				continue // most names are of contenders of the queue itself
			}
			if u, ok := useOf(name); ok && u != own && !yield(name, u) {
				return
			}
		}
	}
}
