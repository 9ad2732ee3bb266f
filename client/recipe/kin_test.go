package recipe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// The kin of a name decides, on every server alike, whether a node is created. So a change of this table
// needs new rules of Apply, too; see rules.go of raftfsm/state.
func TestKinsOfNames(t *testing.T) {
	const self, curator = "_c_0b4ae3a4-4fbd-8f4b-8d0f-4e5a7a0c1d01-", "_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-"
	const n = "0000000007"
	for name, want := range map[string]Kin{
		self + "lock-" + n:                              kinLock,
		self + "__READ__" + n:                           kinRW,
		self + "__WRIT__" + n:                           kinRW,
		self + "latch-" + n:                             kinLatch,
		self + "lease-" + n:                             kinPermit,
		curator + "lock-" + n:                           kinOtherLock,
		curator + "__READ__" + n:                        kinOtherRW,
		curator + "__WRIT__" + n:                        kinOtherRW,
		curator + "latch-" + n:                          kinOtherLatch,
		curator + "lease-" + n:                          kinPermit,
		"_c_0b4ae3a44fbd4f4b8d0f4e5a7a0c1d01-lock-" + n: kinOtherLock, // made by go-zookeeper
		"lock-" + n:                                     kinOtherLock,
		"my-lock-" + n:                                  kinOtherLock,
		"lock--1234567890":                              kinOtherLock,
		"lock--000000007":                               kinOtherLock,
		"f65a711639a74cab9e5222dd97208501__lock__" + n:  kinKazoo,
		"f65a711639a74cab9e5222dd97208501__rlock__" + n: kinKazoo,
		"f65a711639a74cab9e5222dd97208501":              kinBarePermit,
		"web1-R-" + n:                                   kinHost,
		"web1~1-W-" + n:                                 kinHost,
		"q-0b4ae3a4-4fbd-8f4b-8d0f-4e5a7a0c1d01-R-" + n: kinPolicy,
		"h-0b4ae3a4-4fbd-8f4b-8d0f-4e5a7a0c1d01-W":      kinPolicy,
		"x-0x1000a2b3c4d0000-" + n:                      kinZooKeeper,
		"x-72058245120000000-" + n:                      kinZooKeeper,
		"lock":                                          kinSimple,
		// Names of other nodes, or names that do not say enough about the lock.
		"block-" + n: KinNone, "lock" + n: KinNone, "member_" + n: KinNone, "n_" + n: KinNone, "lock-": KinNone,
		"lock-7": KinNone, "x-" + n: KinNone, "x-ray-" + n: KinNone, "": KinNone, "leases": KinNone,
		"f65a711639a74cab9e5222dd97208501__party__": KinNone, "F65A711639A74CAB9E5222DD97208501": KinNone,
		"read-" + n: KinNone, strings.Repeat("z", 32): KinNone,
	} {
		t.Run(name, func(t *testing.T) { expect.Equal(t, KinOf(name), want) })
	}
}

// Contenders of package client in Curator's layout see each other. Contenders of other programs see their own
// family. No contender sees another layout.
func TestKinsThatDoNotSeeEachOther(t *testing.T) {
	sees := map[string]bool{}
	for _, group := range [][]Kin{{kinLock, kinRW, kinLatch}, {kinLock, kinOtherLock}, {kinRW, kinOtherRW},
		{kinLatch, kinOtherLatch}} {
		for _, a := range group {
			for _, b := range group {
				sees[fmt.Sprint(a, b)] = true
			}
		}
	}
	for a := range Kin(Kins) {
		for b := range Kin(Kins) {
			judged := a != KinNone && b != KinNone && a != kinPermit && b != kinPermit
			want := judged && a != b && !sees[fmt.Sprint(a, b)]
			expect.Equal(t, a.Blind().Has(b), want, "kin %d beside kin %d", a, b)
		}
	}
}

func TestKinOfNamesOfAnyBytes(t *testing.T) {
	for _, name := range []string{"x-", "x", "-", "\xff-\x000000000001", strings.Repeat("-", 44)} {
		expect.That(t, int(KinOf(name)) < Kins, "%q", name)
	}
}
