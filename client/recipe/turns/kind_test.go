package turns

import (
	"maps"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
)

// The names of nodes show what a directory is used for, and so which kinds of locks a contender meets there.
func TestUseOfADirectory(t *testing.T) {
	id := recipe.NewID(7, 1)
	uses := map[string]Use{
		recipe.SimpleName: UseSimple, recipe.PermitsName: UsePermits, id.Hex(): UseBarePermits,
		recipe.PolicyNode{ID: id, Kind: recipe.HoldRead}.Name(true):                    UsePolicy,
		recipe.NodeName(recipe.LayoutCurator, recipe.RoleLock, id, "") + "0000000001":  UseQueue,
		recipe.NodeName(recipe.LayoutHost, recipe.RoleRead, id, "host") + "0000000001": UseQueue,
		recipe.NodeName(recipe.LayoutCurator, recipe.RoleLatch, id, "") + "0000000001": UseQueue,
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
	others := []string{"x", "locks", recipe.PermitName(id, 0) + "0000000001"}
	for own := range UseBarePermits + 1 {
		for name, use := range own.Rivals(others) {
			t.Errorf("%s is a rival of use %d, by use %d", name, own, use)
		}
		want, got := 0, 0
		for _, use := range uses {
			if use != own {
				want++
			}
		}
		for range own.Rivals(append(others, slices.Collect(maps.Keys(uses))...)) {
			got++
		}
		expect.Equal(t, got, want, "rivals of use %d among all names", own)
	}
}
