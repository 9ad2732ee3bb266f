package tree

import (
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// multiOp is one decoded operation of a multi.
type multiOp struct {
	op     jute.OpCode
	create jute.CreateRequest
	set    jute.SetDataRequest // its PathVersion is also for delete and check
}

// next() reads the next operation of a multi into o and reports whether there is one.
// Everything that it finds wrong makes the whole request undecodable: a missing end,
// an operation that is no write or is not allowed in a multi, a null path, illegal
// create flags.
func (o *multiOp) next(d *jute.Decoder) (more, ok bool) {
	h := d.MultiHeader()
	if d.Err() != nil || h.Done {
		return false, d.Err() == nil
	}
	o.op = h.Type
	var noPath bool
	switch h.Type {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		d.ReadCreate(h.Type, &o.create)
		o.op = multiCreate(h.Type, o.create.Flags)
		noPath = o.create.NoPath
	case jute.OpDelete, jute.OpCheck:
		o.set.PathVersion = d.PathVersion()
		noPath = o.set.NoPath
	case jute.OpSetData:
		o.set = d.SetDataRequest()
		noPath = o.set.NoPath
	default:
		return false, false
	}
	ok = d.Err() == nil && !noPath && o.op != jute.OpError
	return ok, ok
}

// multiCreate returns the operation of a create inside a multi: here the flags, not the operation, decide on
// the kind of node. Illegal flags yield OpError. If the flags ask for a time to live and the operation has
// none, step() reports an error.
func multiCreate(op jute.OpCode, flags int32) jute.OpCode {
	switch flags {
	case jute.FlagPersistent, jute.FlagEphemeral, jute.FlagPersistentSequential, jute.FlagEphemeralSequential:
		if op == jute.OpCreateContainer {
			return jute.OpCreate2
		}
		return op
	case jute.FlagContainer:
		return jute.OpCreateContainer
	case jute.FlagPersistentTTL, jute.FlagPersistentSequentialTTL:
		return op
	}
	return jute.OpError
}

// step() applies one operation of a multi. The code MARSHALLINGERROR is the answer to the whole multi. It is
// for a null id in an ACL, or for a create that has no time to live although its flags ask for one.
func (t *Tree) step(c *Change, o *multiOp, reply []byte) ([]byte, jute.ErrCode) {
	kind := o.op
	switch o.op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		if o.create.Flags >= jute.FlagPersistentTTL && o.op != jute.OpCreateTTL {
			return reply, jute.MarshallingError
		}
		if o.op != jute.OpCreate {
			kind = jute.OpCreate2 // the result of every create that answers with a Stat has this type
		}
		reply = jute.AppendMultiHeader(reply, kind, false, jute.OK)
		return t.create(c, o.op, &o.create, reply)
	case jute.OpSetData:
		reply = jute.AppendMultiHeader(reply, kind, false, jute.OK)
		return t.setDataOf(c, &o.set, reply)
	}
	reply = jute.AppendMultiHeader(reply, kind, false, jute.OK)
	if o.op == jute.OpDelete {
		return reply, t.delete(c, &o.set.PathVersion)
	}
	return reply, t.check(c, &o.set.PathVersion)
}

// multiSize is the memory that the operations of a multi and their results need in total. It is allocated at
// once, because memory that grows is copied again and again.
type multiSize struct {
	ops, changes, writes, events, reply int
}

func (m *multiSize) add(o *multiOp) {
	const header, sequence = 9, 10
	m.ops++
	m.reply += header
	switch o.op {
	case jute.OpCheck:
		return
	case jute.OpDelete:
		m.events += 2
	case jute.OpSetData:
		m.writes++
		m.events++
		m.reply += jute.StatSize
	default:
		m.events += 2
		m.reply += 4 + len(o.create.Path) + sequence
		if o.op != jute.OpCreate {
			m.reply += jute.StatSize
		}
	}
	m.changes++
}

// multi() applies all operations of a multi or none. Each operation sees the effects of those before it.
// multi() reads the request twice, first to check that all of it is well formed: keeping tens of thousands of
// decoded operations would take many times the memory of the request.
func (t *Tree) multi(c *Change, d *jute.Decoder, reply []byte) (out []byte, code jute.ErrCode, changed bool) {
	var o multiOp
	var all multiSize
	first := *d
	for more, ok := o.next(d); more || !ok; more, ok = o.next(d) {
		if !ok {
			return reply, jute.MarshallingError, false
		}
		all.add(&o)
	}
	c.spend(all.ops / 2)
	count, events := all.ops, len(c.Events)
	c.Events = slices.Grow(c.Events, all.events)
	t.undo = t.newUndo(all)
	out, d = slices.Grow(reply, all.reply), &first
	for i := range count {
		o.next(d)
		out, code = t.step(c, &o, out)
		if code == jute.OK {
			continue
		}
		t.rollback()
		clear(c.Events[events:])
		c.Events = c.Events[:events]
		if code == jute.MarshallingError {
			return reply, code, false
		}
		return appendFailure(reply, count, i, code), jute.OK, false
	}
	for _, s := range t.undo.steps {
		if s.at >= 0 && hasQuotaText(s.node) {
			delete(t.quotaTexts, s.node)
		}
	}
	t.undo = nil
	// A multi of checks alone changes no node, but it is a write like any
	// other and consumes its zxid.
	t.zxid = c.Zxid
	return jute.AppendMultiHeader(out, jute.OpError, true, -1), jute.OK, true
}

// appendFailure appends the results of a multi of n operations. One of them failed with the given code;
// `failed` is the index of this operation. The operations before it have OK, and those after it were not
// tried.
func appendFailure(b []byte, n, failed int, code jute.ErrCode) []byte {
	for i := range n {
		e := jute.RuntimeInconsistency
		switch {
		case i < failed:
			e = jute.OK
		case i == failed:
			e = code
		}
		b = jute.AppendMultiHeader(b, jute.OpError, false, e)
		b = jute.AppendInt(b, int32(e))
	}
	return jute.AppendMultiHeader(b, jute.OpError, true, -1)
}

// newUndo returns an empty log of changes, by which a multi that fails is undone.
func (t *Tree) newUndo(m multiSize) *undoLog {
	return &undoLog{hash: t.hash, zxid: t.zxid, steps: make([]undoStep, 0, m.changes),
		data: make([]undoData, 0, m.writes)}
}
