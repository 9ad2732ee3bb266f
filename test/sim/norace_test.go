//go:build !race

package sim

// withoutMoves returns all steps. Under the race detector it leaves some out.
func withoutMoves(steps []string) []string { return steps }
