//go:build !exact

package sim

import "testing"

// exactly does nothing with the plain toolchain: its runs repeat the faults and the requests of a seed, and
// not the order of goroutines.
func exactly(*testing.T, uint64) {}

// apart reports that the runs of several seeds are made in this process.
func apart(*testing.T, uint64, int) bool { return false }
