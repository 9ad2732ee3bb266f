package sim

import "flag"

var traceFlag = flag.String("sim.trace", "", "a file for each event, to see where two runs of a seed part")

// report is the result of a run.
type report struct {
	Seed     uint64
	Trace    string
	Runtime  string  // the state of the runtime at the end
	Hours    float64 // simulated time
	Answered int
	Unknown  int
	Faults   map[string]int
	Drawn    map[string]int // how many faults (key "f") and how many requests of each client were drawn
	Reached  map[string]int `json:",omitempty"` // how often each rare state was reached
	Longest  longest        // set after a long day
}
