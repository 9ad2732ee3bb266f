//go:build !exact

package sim

import (
	"runtime/debug"
	"testing"
)

// exact says whether a run repeats bit for bit and sums up its events.
const exact = false

// pace is the value of GOGC. A bubble has little memory in use and produces much garbage: with the usual
// value of 100, a third of a run's processor time goes into collecting garbage.
const pace = 400

func init() { debug.SetGCPercent(pace) }

// exactly() does nothing with the plain toolchain. With this toolchain a seed repeats the faults and requests
// of a run, but not the order of its goroutines.
func exactly(*testing.T, uint64) {}

// apart() reports false: the runs of several seeds are made in this process.
func apart(*testing.T, uint64, int) bool { return false }
