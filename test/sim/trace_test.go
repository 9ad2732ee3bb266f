package sim

import "flag"

var (
	waysFlag = flag.Int("sim.ways", 0, "how an exact run chooses goroutines: 0 as usual, 1 any, 2 by ranks, "+
		"-1 as the seed says")
	traceFlag  = flag.String("sim.trace", "", "a file for each event, to see where two runs of a seed part")
	aloneFlag  = flag.Bool("sim.alone", false, "make an exact run in this process")
	twiceFlag  = flag.Bool("sim.twice", false, "make each exact run twice, and want both equal")
	ledgerFlag = flag.String("sim.ledger", "", "a file to append a line to that tells what was run")
	farmFlag   = flag.String("sim.farm", "", "a folder for the output of seeds that fail; the others go on")
)

// report is what a run tells about itself.
type report struct {
	Seed     uint64
	Trace    string
	Hours    float64 // simulated
	Answered int
	Unknown  int
	Faults   map[string]int
}

func (r *report) total() (n int) {
	for _, k := range r.Faults {
		n += k
	}
	return n
}
