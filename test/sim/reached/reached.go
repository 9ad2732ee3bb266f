// Package reached counts how often exact runs of the simulation are in rare states, which long campaigns
// should all reach. The servers' sources do not call this package: test/sim/overlay adds the calls to copies
// of these sources.
package reached

import "sync/atomic"

var counts [256]atomic.Int64

// At counts one visit to a state. The argument is the state's index in States.
func At(state int) { counts[state].Add(1) }

// Counts returns how often each state was reached. It leaves out states that were not reached.
func Counts() map[string]int {
	m := map[string]int{}
	for i, s := range States {
		if n := counts[i].Load(); n > 0 {
			m[s.Name] = int(n)
		}
	}
	return m
}

// State is a rare state of a server.
type State struct {
	Name string
	File string
	// Place is a text that, without the @, is in the file exactly once. The state is reached at the @.
	Place string
	When  string // a condition in Go; empty: always
}
