package tree_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// BenchmarkSteps measures what a step of tree.StepNanos takes: multis of one operation that fill a
// frame or the budget, with the events for one client that watches everything. A multi that fails
// at its end also takes everything back.
func BenchmarkSteps(b *testing.B) {
	for _, op := range []jute.OpCode{jute.OpCheck, jute.OpSetData, jute.OpCreate, jute.OpDelete} {
		for _, path := range [][2]int{{1, 1}, {1, 60}, {1, 8000}, {10, 6}, {100, 8}, {1000, 1}} {
			for _, fails := range []bool{false, true} {
				name := fmt.Sprintf("%v/%d names of %d/fails=%v", op, path[0], path[1], fails)
				b.Run(name, func(b *testing.B) { benchSteps(b, op, path[0], path[1], fails) })
			}
		}
	}
}

func benchSteps(b *testing.B, op jute.OpCode, depth, length int, fails bool) {
	dir := strings.Repeat("/"+strings.Repeat("d", length), depth)
	path := func(i int) string { return fmt.Sprintf("%s/%d", dir, i) }
	ops := 1_000_000 / (len(dir) + 60)
	var request []byte
	for i := range ops {
		request = jute.AppendMultiHeader(request, op, false, -1)
		switch op {
		case jute.OpCreate:
			request = append(request, createBody(path(i), "", 0)...)
		case jute.OpSetData:
			request = append(request, setBody(path(i), "x")...)
		default:
			request = append(request, pathVersion(path(i))...)
		}
	}
	if fails {
		request = append(jute.AppendMultiHeader(request, jute.OpCheck, false, -1), pathVersion("/none")...)
	}
	request = jute.AppendMultiHeader(request, jute.OpError, true, -1)
	c := &tree.Change{}
	for steps := 0; b.Loop(); b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step") {
		b.StopTimer()
		tr := tree.New()
		for i := range depth {
			do(b, tr, c, jute.OpCreate, createBody(dir[:(i+1)*(length+1)], "", 0), nil)
		}
		for i := 0; op != jute.OpCreate && i < ops; i++ {
			do(b, tr, c, jute.OpCreate, createBody(path(i), "", 0), nil)
		}
		w := tree.NewWatches[int]()
		w.Add(1, "/", tree.Recursive)
		c = &tree.Change{Zxid: tr.Zxid() + 1, Session: 1}
		b.StartTimer()
		tr.Apply(c, jute.OpMulti, request, nil)
		for i := range c.Events {
			w.Fire(&c.Events[i], func(int) {})
		}
		steps += c.Steps
	}
}
