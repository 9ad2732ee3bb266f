package proc

import (
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Fill creates n nodes of 100 bytes, a thousand in a directory, in few
// requests.
func Fill(t testing.TB, s *cluster.Server, n int) {
	t.Helper()
	c := must.Get(s.Open())(t)
	defer c.CloseSession()
	const perMulti, perDir = 500, 1000
	data := make([]byte, 100)
	var ops []wire.Op
	flush := func() {
		f, err := c.Call(jute.OpMulti, wire.Multi(ops...))
		if err == nil && f.Code != jute.OK {
			err = f.Code
		}
		must.OK(t, err, "fill")
		ops = ops[:0]
	}
	add := func(path string, data []byte) {
		ops = append(ops, wire.Op{Type: jute.OpCreate, Body: wire.Create(path, data, jute.WorldAnyone,
			jute.FlagPersistent)})
		if len(ops) == perMulti {
			flush()
		}
	}
	add("/big", nil)
	for i := range n {
		dir := fmt.Sprintf("/big/%05d", i/perDir)
		if i%perDir == 0 {
			add(dir, nil)
		}
		add(fmt.Sprintf("%s/node-%07d", dir, i), data)
	}
	if len(ops) > 0 {
		flush()
	}
}
