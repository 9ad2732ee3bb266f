package recipe

import (
	"fmt"
	"slices"
	"strconv"
)

// Layout is the form of contenders' names in a lock's directory. It determines which other programs can share
// the lock.
type Layout uint8

const (
	// LayoutCurator is shared with Apache Curator and with go-zookeeper's Lock.
	LayoutCurator Layout = iota
	// LayoutKazoo is shared with kazoo, the Python client.
	LayoutKazoo
	// LayoutHost is shared with programs whose nodes are host-R-0000000001 and
	// host-W-0000000002.
	LayoutHost
	// LayoutPolicy is for read-write locks with the option WithPolicy; no other program uses it.
	LayoutPolicy
	// LayoutLatch is for elections shared with Curator's LeaderLatch.
	LayoutLatch

	// This package recognises the layouts below, but package client makes no locks in them. LayoutZooKeeper
	// is the layout of ZooKeeper's own recipes: x-SESSION-0000000001.
	LayoutZooKeeper
	// LayoutPlain is any other name that ends in a number.
	LayoutPlain
	// LayoutLone is a name without a number: the node alone is the lock.
	LayoutLone
)

// layoutNames are the layouts as text. The layouts of package client's locks come first.
var layoutNames = [...]string{"curator", "kazoo", "host", "rw1", "latch", "x", "plain", "lone"}

// String returns "curator", "kazoo", "host", "rw1", "latch", "x", "plain" or "lone".
func (l Layout) String() string {
	if int(l) < len(layoutNames) {
		return layoutNames[l]
	}
	return "layout " + strconv.Itoa(int(l))
}

// MarshalText writes the text that String returns.
func (l Layout) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the text that String returns.
func (l *Layout) UnmarshalText(b []byte) error {
	return unmarshalName(layoutNames[:], "layout", b, (*uint8)(l))
}

// unmarshalName sets *into to the index of `name` in `names`.
func unmarshalName(names []string, what string, name []byte, into *uint8) error {
	i := slices.Index(names, string(name))
	if i < 0 {
		return fmt.Errorf("%w: %s %.30q", ErrInvalid, what, name)
	}
	*into = uint8(i)
	return nil
}

// ParseLayout reads the name of a layout in which package client makes locks.
func ParseLayout(s string) (l Layout, err error) {
	err = unmarshalName(layoutNames[:LayoutZooKeeper], "layout", []byte(s), (*uint8)(&l))
	return l, err
}

// Role is the part that a contender plays in its lock.
type Role uint8

// The roles.
const (
	RoleLock   Role = iota // exclusive
	RoleWrite              // exclusive, in a read-write lock
	RoleRead               // shared
	RoleLease              // a permit of a semaphore
	RoleLatch              // Curator's LeaderLatch; exclusive
	RoleMember             // kazoo's party; its members do not take turns
)

// Exclusive reports whether a contender in the role holds the lock alone.
func (k Role) Exclusive() bool { return k != RoleRead && k != RoleLease && k != RoleMember }

// Mode returns the right that the role asks for.
func (k Role) Mode() Mode {
	switch k {
	case RoleRead:
		return Shared
	case RoleLease:
		return Permit
	case RoleMember:
		return Participant
	}
	return Exclusive
}

// Family is the part of a directory that a program with Curator's recipes sees: each recipe looks
// only at its own nodes.
type Family uint8

const (
	FamilyLock Family = iota
	FamilyReadWrite
	FamilyLatch
)

// Family returns the family to which nodes of the role belong.
func (k Role) Family() Family {
	switch k {
	case RoleRead, RoleWrite:
		return FamilyReadWrite
	case RoleLatch:
		return FamilyLatch
	}
	return FamilyLock
}

func (f Family) String() string {
	return [...]string{"exclusive lock", "read-write lock", "leader latch"}[f]
}

// Maker is the program that made a node, if the node's name shows it.
type Maker uint8

// The makers.
const (
	MakerUnknown Maker = iota
	MakerSelf          // package client
	MakerCurator
	MakerGo        // go-zookeeper's Lock
	MakerKazoo     // kazoo
	MakerZooKeeper // ZooKeeper's own recipes
)

var makerNames = [...]string{"unknown", "zlock", "curator", "go-zookeeper", "kazoo", "zookeeper"}

// String returns "zlock", "curator", "go-zookeeper", "kazoo", "zookeeper" or "unknown".
func (m Maker) String() string { return makerNames[m] }

// MarshalText writes the text that String returns.
func (m Maker) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the text that String returns.
func (m *Maker) UnmarshalText(b []byte) error {
	return unmarshalName(makerNames[:], "maker", b, (*uint8)(m))
}

// Mode is the right that a contender has or waits for.
type Mode string

// The modes.
const (
	Exclusive   Mode = "exclusive"
	Shared      Mode = "shared"
	Permit      Mode = "permit"      // a permit of a semaphore
	Participant Mode = "participant" // no right: the node only shows that its session exists
)
