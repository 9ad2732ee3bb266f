package recipe

import "strings"

// Kin is a class of contenders. A contender's kin follows from its name alone. It says which other contenders
// in the directory the program of this contender looks at. Contenders of one kin exclude each other according
// to their roles.
//
// With --one-layout, every server decides by kin which creations to refuse, while it applies the log. So a
// later release that changes the kin of a name, or which kins a kin sees, needs new rules of Apply; see
// rules.go of raftfsm/state.
type Kin uint8

// The kins. A name that any node could have has no kin.
const (
	KinNone Kin = iota
	// The kins of package client's nodes in Curator's layout, one for each family.
	kinLock
	kinRW
	kinLatch
	// The kins of nodes that other programs make with Curator's recipes.
	kinOtherLock
	kinOtherRW
	kinOtherLatch

	kinKazoo
	kinHost
	kinPolicy
	kinZooKeeper
	kinSimple
	kinBarePermit
	kinPermit // node in a semaphore's directory of permits

	Kins = int(kinPermit) + 1 // the number of kins
)

// KinOf returns the kin of an ephemeral node.
func KinOf(name string) Kin {
	if IsPolicyNode(name) { // checked first, because such a name also looks like one of LayoutHost
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
			return kinLock + Kin(c.Kind.Family())
		}
		return kinOtherLock + Kin(c.Kind.Family())
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
	// Permits is the set of the kins of permits below a directory.
	Permits = KinSet(1 << kinPermit)
	// Queues is the set of the kins of contenders that queue in a directory. These contenders and the permits
	// below the directory do not exclude each other.
	Queues = KinSet(1<<kinPermit - 1<<kinLock)

	ours = KinSet(1<<kinLock | 1<<kinRW | 1<<kinLatch)
)

// Blind returns the kins whose contenders do not see a contender of kin k, or are not seen by it. A contender
// of kin k and one of these kins could both hold the lock.
//
// A kazoo lock can be configured to look at the nodes of package client. The names of its nodes do not show
// that, so Blind assumes that the lock does not look at them.
func (k Kin) Blind() KinSet {
	switch k {
	case KinNone, kinPermit:
		return 0
	case kinLock, kinRW, kinLatch: // package client looks at the nodes of all three kins
		return Queues &^ (ours | 1<<(k-kinLock+kinOtherLock))
	case kinOtherLock, kinOtherRW, kinOtherLatch:
		return Queues &^ (1<<k | 1<<(k-kinOtherLock+kinLock))
	}
	return Queues &^ (1 << k)
}
