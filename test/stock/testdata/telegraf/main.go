// Command telegraf reads the servers on its command line with Telegraf's zookeeper input, as a
// Telegraf agent would, and prints a line for each field: port, state, name, type and value.
// It is a module of its own, because no other package needs Telegraf's dependencies.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/influxdata/telegraf"
	"github.com/influxdata/telegraf/config"
	"github.com/influxdata/telegraf/plugins/inputs"
	"github.com/influxdata/telegraf/plugins/inputs/zookeeper"
)

// printer is the part of Telegraf's accumulator that the input uses.
type printer struct {
	telegraf.Accumulator
	failed bool
}

// AddFields implements telegraf.Accumulator.
func (p *printer) AddFields(_ string, fields map[string]any, tags map[string]string, _ ...time.Time) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fmt.Printf("%s %s %s %T %v\n", tags["port"], tags["state"], name, fields[name], fields[name])
	}
}

// AddError implements telegraf.Accumulator.
func (p *printer) AddError(err error) {
	if err != nil {
		p.failed = true
		fmt.Fprintln(os.Stderr, err)
	}
}

func main() {
	input := inputs.Inputs["zookeeper"]().(*zookeeper.Zookeeper)
	input.Servers, input.ParseFloats, input.Timeout = os.Args[1:], "float", config.Duration(time.Minute)
	p := new(printer)
	p.AddError(input.Init())
	p.AddError(input.Gather(p))
	if p.failed {
		os.Exit(1)
	}
}
