package recipe

import "strings"

// Kin says of a contender's name, with nothing else known, which contenders of its directory its program
// sees. Contenders of one kin exclude each other as their roles say.
//
// Servers refuse by it the creation of a node (--one-layout), each for itself while it applies the log. So
// a later release that gives a name another kin, or kins other sights, needs rules of the state for it.
type Kin uint8

// The kins. A name that cannot be told from other nodes' names has none.
const (
	KinNone Kin = iota
	// Of this package, in Curator's layout: one for each family.
	kinLock
	kinRW
	kinLatch
	// Of other programs with Curator's recipes.
	kinOtherLock
	kinOtherRW
	kinOtherLatch

	kinKazoo
	kinHost
	kinPolicy
	kinZooKeeper
	kinSimple
	kinBarePermit
	kinPermit // stands in a semaphore's directory of permits

	Kins = int(kinPermit) + 1 // how many there are
)

// KinOf returns the kin of an ephemeral node.
func KinOf(name string) Kin {
	if IsPolicyNode(name) { // it also looks like one with a host's name
		return kinPolicy
	}
	if c, l, ok := ParseName(name); ok && separate(c, l) {
		switch {
		case l == LayoutKazoo:
			return kinKazoo
		case l == LayoutHost:
			return kinHost
		case c.Kind == RoleLease:
			return kinPermit
		case c.Maker == MakerSelf:
			return kinLock + Kin(c.Kind.family())
		}
		return kinOtherLock + Kin(c.Kind.family())
	}
	switch {
	case name == SimpleName:
		return kinSimple
	case strings.HasPrefix(name, "x-"):
		if head, _, ok := cutSeq(name); ok && isSession(strings.TrimSuffix(head[2:], "-")) {
			return kinZooKeeper
		}
	case len(name) == 32:
		if _, ok := ParseHex(name); ok {
			return kinBarePermit
		}
	}
	return KinNone
}

// KinSet is a set of kins, a bit for each.
type KinSet uint16

// Has reports whether a kin is in the set.
func (s KinSet) Has(k Kin) bool { return s&(1<<k) != 0 }

const (
	// Permits are the kins of the permits below a directory.
	Permits = KinSet(1 << kinPermit)
	// Queues are the kins of contenders for a directory. They and permits below it exclude nothing.
	Queues = KinSet(1<<kinPermit - 1<<kinLock)

	ours = KinSet(1<<kinLock | 1<<kinRW | 1<<kinLatch)
)

// Blind returns the kins beside a contender that do not see it, or that it does not see: it and one of them
// may both hold the lock.
//
// A kazoo lock can be told to look at the nodes of this package. Its name does not say whether it was, so it
// counts as one that does not.
func (k Kin) Blind() KinSet {
	switch k {
	case KinNone, kinPermit:
		return 0
	case kinLock, kinRW, kinLatch: // this package looks at all three
		return Queues &^ (ours | 1<<(k-kinLock+kinOtherLock))
	case kinOtherLock, kinOtherRW, kinOtherLatch:
		return Queues &^ (1<<k | 1<<(k-kinOtherLock+kinLock))
	}
	return Queues &^ (1 << k)
}
