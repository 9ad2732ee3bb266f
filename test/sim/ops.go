package sim

import (
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/history"
	"github.com/zlockd/zlockd/test/wire"
)

func (c *Client) key() string { return fmt.Sprintf("%s/k%d", Root, c.Rand.IntN(keys)) }

func (c *Client) data() []byte {
	b := fmt.Appendf(nil, "%s-%d", c.Name, c.Rand.IntN(1_000_000))
	if c.Bulk != nil && c.Bulk.IntN(20) == 0 {
		b = append(b, make([]byte, c.Bulk.IntN(200<<10))...)
	}
	return b
}

// version is mostly -1 for any, sometimes a version that may be right.
func (c *Client) version() int32 {
	if c.Rand.IntN(3) > 0 {
		return -1
	}
	return int32(c.Rand.IntN(4))
}

// random returns a random request.
func (c *Client) random() *history.Op {
	op := new(history.Op)
	switch k := c.Rand.IntN(100); {
	case k < 12:
		op.Step = history.Step{Op: jute.OpCreate, Path: c.key(), Data: c.data()}
	case k < 18:
		op.Step = history.Step{Op: jute.OpCreate2, Path: c.key(), Data: c.data(), Flags: jute.FlagEphemeral}
	case k < 24:
		op.Step = history.Step{Op: jute.OpCreate, Path: Root + "/q-", Data: c.data(),
			Flags: jute.FlagEphemeralSequential}
	case k < 36:
		op.Step = history.Step{Op: jute.OpDelete, Path: c.key(), Version: c.version()}
	case k < 52:
		op.Step = history.Step{Op: jute.OpSetData, Path: c.key(), Data: c.data(), Version: c.version()}
	case k < 66:
		op.Step = history.Step{Op: jute.OpGetData, Path: c.key()}
		op.Watch = c.Rand.IntN(2) == 0
	case k < 76:
		op.Step = history.Step{Op: jute.OpExists, Path: c.key()}
		op.Watch = c.Rand.IntN(2) == 0
	case k < 84:
		op.Step = history.Step{Op: jute.OpGetChildren2, Path: Root}
		op.Watch = c.Rand.IntN(2) == 0
	case k < 87:
		op.Step = history.Step{Op: jute.OpSync, Path: Root}
	case k < 88 && len(c.watches.lasting) < 3:
		op.Step = history.Step{Op: jute.OpAddWatch, Path: c.key()}
		op.Mode = int32(c.Rand.IntN(2))
	case k < 99:
		op.Op = jute.OpMulti
		for range 1 + c.Rand.IntN(3) {
			op.Steps = append(op.Steps, c.step())
		}
	default:
		op.Op = jute.OpCloseSession
	}
	return op
}

// step returns a random operation of a multi.
func (c *Client) step() history.Step {
	switch c.Rand.IntN(4) {
	case 0:
		return history.Step{Op: jute.OpCreate, Path: c.key(), Data: c.data()}
	case 1:
		return history.Step{Op: jute.OpDelete, Path: c.key(), Version: c.version()}
	case 2:
		return history.Step{Op: jute.OpCheck, Path: c.key(), Version: c.version()}
	}
	return history.Step{Op: jute.OpSetData, Path: c.key(), Data: c.data(), Version: c.version()}
}

// body encodes a request.
func body(op *history.Op) wire.Body {
	switch op.Op {
	case jute.OpGetData, jute.OpExists, jute.OpGetChildren2:
		return wire.PathWatch(op.Path, op.Watch)
	case jute.OpSync:
		return wire.Path(op.Path)
	case jute.OpAddWatch:
		return wire.PathVersion(op.Path, op.Mode)
	case jute.OpSetWatches2:
		r := op.Watches
		return wire.SetWatches2(r.RelativeZxid, r.Data, r.Exist, r.Child, r.Persistent, r.Recursive)
	case jute.OpMulti:
		var ops []wire.Op
		for i := range op.Steps {
			ops = append(ops, wire.Op{Type: op.Steps[i].Op, Body: stepBody(&op.Steps[i])})
		}
		return wire.Multi(ops...)
	case jute.OpCloseSession:
		return nil
	}
	return stepBody(&op.Step)
}

func stepBody(s *history.Step) wire.Body {
	switch s.Op {
	case jute.OpDelete, jute.OpCheck:
		return wire.PathVersion(s.Path, s.Version)
	case jute.OpSetData:
		return wire.SetData(s.Path, s.Data, s.Version)
	}
	return wire.Create(s.Path, s.Data, jute.WorldAnyone, s.Flags)
}

// fill decodes a successful reply into the request's record.
func fill(op *history.Op, d *jute.Decoder) {
	switch op.Op {
	case jute.OpGetData:
		op.Value = append([]byte(nil), d.Buffer()...)
		op.Stat = stat(d)
	case jute.OpExists:
		op.Stat = stat(d)
	case jute.OpGetChildren2:
		op.Children, _ = d.Strings()
		op.Stat = stat(d)
	case jute.OpMulti:
		fillMulti(op, d)
	case jute.OpCreate, jute.OpCreate2, jute.OpSetData:
		fillStep(&op.Step, op.Op, d)
	}
}

func stat(d *jute.Decoder) *jute.Stat {
	s := d.Stat()
	return &s
}

func fillStep(s *history.Step, result jute.OpCode, d *jute.Decoder) {
	switch result {
	case jute.OpCreate:
		s.Created, _ = d.String()
	case jute.OpCreate2:
		s.Created, _ = d.String()
		s.Stat = stat(d)
	case jute.OpSetData:
		s.Stat = stat(d)
	}
}

// fillMulti decodes the results of a multi; the first error, if any, becomes the code of the multi.
func fillMulti(op *history.Op, d *jute.Decoder) {
	for i := range op.Steps {
		h := d.MultiHeader()
		if h.Type == jute.OpError {
			op.Steps[i].Code = jute.ErrCode(d.Int())
			if code := op.Steps[i].Code; op.Code == jute.OK && code != jute.OK {
				op.Code = code
			}
			continue
		}
		fillStep(&op.Steps[i], h.Type, d)
	}
	d.MultiHeader()
}
