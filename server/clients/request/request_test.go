package request

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree/bounds"
)

// Before its outcome is known, a request is charged by its length.
func TestRequestsAreChargedByTheirLength(t *testing.T) {
	for _, x := range []struct {
		op   jute.OpCode
		size int
		want int64
	}{
		{jute.OpCreate, 0, 20}, {jute.OpCreate, 1 << 10, 20}, {jute.OpCreate, 1<<10 + 1, 5 + 128},
		{jute.OpSetData, 8000, 5 + 1000}, {jute.OpMulti, 0, 0}, {jute.OpMulti, 100, 200},
		{jute.OpMulti, bounds.MaxSteps/2 + 1, bounds.MaxSteps},
	} {
		expect.Equal(t, WriteCost(x.op, make([]byte, x.size)), x.want, "%v of %d bytes", x.op, x.size)
	}
	for size, want := range map[int]int64{0: 2, 5: 2, 6: 3, 600: 102} {
		expect.Equal(t, ReadCost(make([]byte, size)), want, "a read of %d bytes", size)
	}
}

// A setWatches must be complete: its bytes must contain every list, with all paths of that list.
func TestListsOfASetWatches(t *testing.T) {
	for _, x := range []struct {
		op   jute.OpCode
		body wire.Body
		want bool
	}{
		{jute.OpSetWatches, wire.SetWatches(1, []string{"/a"}, nil, []string{"/b", ""}), true},
		{jute.OpSetWatches2, wire.SetWatches(1, []string{"/a"}, nil, nil), false},
		{jute.OpSetWatches2, wire.SetWatches2(1, nil, nil, nil, nil, []string{"/a"}), true},
		{jute.OpSetWatches, wire.Body{}.Long(1).Int(-1).Int(0).Int(0), false},
		{jute.OpSetWatches, wire.Body{}.Long(1).Int(1).Null().Int(0).Int(0), false},
		{jute.OpSetWatches, wire.Body{}.Long(1).Int(0).Int(0), false},
	} {
		expect.Equal(t, WholeLists(x.op, x.body), x.want, "%v %q", x.op, x.body)
	}
}
