//go:build !race

package sim

// lessOften leaves out nothing. Under the race detector it leaves out most crash points and random runs.
const lessOften = 1

// withoutMoves returns all steps. Under the race detector it leaves some out.
func withoutMoves(steps []string) []string { return steps }
