//go:build !race

package sim

// rarer divides the number of cases of a long test; the race detector's build has a larger value.
const rarer = 1

// withoutMoves returns all steps. The function of the same name for the race detector leaves some out.
func withoutMoves(steps []string) []string { return steps }
