//go:build !race

package sim

// rarer is by how much fewer cases run under the race detector, of a test that tries many.
const rarer = 1

// withoutMoves returns all steps. Under the race detector it leaves some out.
func withoutMoves(steps []string) []string { return steps }
