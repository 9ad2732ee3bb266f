package tree

import (
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// divides() reports whether a contender created under `parent` and a living contender would not see each
// other, so that both could hold the lock. Only the first call for a directory has a cost that depends on the
// number of contenders.
func (t *Tree) divides(parent *nodes.Node, name string) bool {
	own := recipe.KinOf(name)
	switch {
	case own == recipe.KinNone:
		return false
	case recipe.Permits.Has(own):
		return parent.Name == recipe.PermitsName && t.living(parent.Parent, recipe.Queues)
	}
	permits := t.Below(parent, recipe.PermitsName)
	return t.living(parent, own.Blind()) || permits != nil && t.living(permits, recipe.Permits)
}

// living() reports whether a directory has contenders of one of the kins.
func (t *Tree) living(n *nodes.Node, of recipe.KinSet) bool {
	for k, count := range t.kinsOf(n) {
		if count > 0 && of.Has(recipe.Kin(k)) {
			return true
		}
	}
	return false
}

// kinsOf returns how many living contenders of each kin a directory has. It counts them on first use; later
// the counts are updated.
func (t *Tree) kinsOf(parent *nodes.Node) *kins {
	if known := t.kins[parent]; known != nil {
		return known
	}
	if t.kins == nil {
		t.kins = map[*nodes.Node]*kins{}
	}
	made := &kins{}
	t.kins[parent] = made
	if parent.Dir != nil {
		for _, n := range parent.Dir.Nodes {
			t.countKin(n, 1)
		}
	}
	return made
}

// countKin adds to the count of n's kin: 1 for a new node, -1 for a deleted node.
func (t *Tree) countKin(n *nodes.Node, by int32) {
	if known := t.kins[n.Parent]; known != nil && n.Kind == nodes.EphemeralNode {
		known[recipe.KinOf(n.Name)] += by
	}
}

// kins counts the living contenders of a directory by kin.
type kins [recipe.Kins]int32
