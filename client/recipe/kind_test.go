package recipe

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// The names of nodes tell what a directory is used for, and so which kinds of locks are beside a contender.
func TestUseOfADirectory(t *testing.T) {
	id := NewID(7, 1)
	uses := map[string]Use{
		SimpleName: UseSimple, PermitsName: UsePermits, id.Hex(): UseBarePermits,
		PolicyNode{ID: id, Kind: HoldRead}.Name(true):             UsePolicy,
		NodeName(LayoutCurator, RoleLock, id, "") + "0000000001":  UseQueue,
		NodeName(LayoutHost, RoleRead, id, "host") + "0000000001": UseQueue,
		NodeName(LayoutCurator, RoleLatch, id, "") + "0000000001": UseQueue,
	}
	for name, want := range uses {
		for own := range UseBarePermits + 1 {
			got, rivals := Use(0), 0
			for rival, use := range own.Rivals([]string{name}) {
				expect.Equal(t, rival, name, "the rival of use %d", own)
				got = use
				rivals++
			}
			if own == want {
				expect.Equal(t, rivals, 0, "rivals of use %d: %s", own, name)
				continue
			}
			expect.Equal(t, rivals, 1, "rivals of use %d: %s", own, name)
			expect.Equal(t, got, want, "the use of %s", name)
		}
	}
	others := []string{"x", "locks", NodeName(LayoutCurator, RoleLease, id, "") + "0000000001"}
	for own := range UseBarePermits + 1 {
		for name, use := range own.Rivals(others) {
			t.Errorf("%s is a rival of use %d, by use %d", name, own, use)
		}
	}
}
