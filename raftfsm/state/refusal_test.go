package state

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
)

func TestLongRequestsAreThoseThatGrow(t *testing.T) {
	long := make([]byte, LongRequest+1)
	multi := func(ops ...jute.OpCode) (b []byte) {
		for _, op := range ops {
			b = jute.AppendMultiHeader(b, op, false, -1)
			b = jute.AppendString(b, "/"+strings.Repeat("x", LongRequest))
			if op == jute.OpSetData {
				b = jute.AppendBuffer(b, nil)
			}
			b = jute.AppendInt(b, -1)
		}
		return jute.AppendMultiHeader(b, jute.OpError, true, -1)
	}
	for _, c := range []struct {
		op   jute.OpCode
		body []byte
		long bool
	}{
		{jute.OpSetData, long, true}, {jute.OpSetData, long[1:], false},
		{jute.OpCreate, long, true}, {jute.OpCreate2, long, true}, {jute.OpCreateTTL, long, true},
		{jute.OpCreateContainer, long, true},
		{jute.OpSetACL, long, true}, {jute.OpSync, long, true},
		{jute.OpDelete, long, false}, {jute.OpCloseSession, long, false}, {OpAttach, long, false},
		{OpCreateSession, long, false},
		{jute.OpMulti, multi(jute.OpDelete, jute.OpCheck), false},
		{jute.OpMulti, multi(jute.OpDelete, jute.OpSetData), true},
		{jute.OpMulti, long, true}, {jute.OpMulti, multi(jute.OpDelete)[:LongRequest+9], true},
	} {
		if r := (Request{Op: c.op, Body: c.body}); r.Long() != c.long {
			t.Errorf("operation %d of %d bytes: %v", c.op, len(c.body), r.Long())
		}
	}
}

// A refusal is answered at the state that its place in the log gives it, to the
// connection that asked and no older one, and changes nothing.
func TestR8RefusalKeepsItsPlace(t *testing.T) {
	b := newBench(t)
	sess := b.session()
	r := Request{Session: sess.ID, Gen: sess.Gen, Op: jute.OpSetData, Body: make([]byte, LongRequest+1)}
	digest := b.s.Digest()
	out := b.do(create(sess, "/a", 0), r.Refusal(), create(sess, "/b", 0))
	if out[1].Code != jute.Throttled || out[1].Refused || out[1].Zxid != out[0].Zxid ||
		out[2].Zxid != out[0].Zxid+1 {
		t.Errorf("%+v", out)
	}
	after := b.s.Digest()
	r.Gen--
	if o := b.do(r.Refusal())[0]; !o.Refused {
		t.Errorf("an older connection is answered: %+v", o)
	}
	expect.That(t, b.s.Digest() == after && after != digest, "a refusal changed the state")
}
