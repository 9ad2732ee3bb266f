//go:build !exact

package sim

import (
	"runtime/debug"
	"testing"
)

// exact tells that runs repeat bit for bit, and sum up what happens in them.
const exact = false

// pace is the garbage, in hundredths of what is in use, at which it is collected. Bubbles use little and throw
// much away: at the usual 100 a third of a run's processor time went into that.
const pace = 400

func init() { debug.SetGCPercent(pace) }

// exactly does nothing with the plain toolchain: its runs repeat the faults and the requests of a seed, and
// not the order of goroutines.
func exactly(*testing.T, uint64) {}

// apart reports that the runs of several seeds are made in this process.
func apart(*testing.T, uint64, int) bool { return false }
