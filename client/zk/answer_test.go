package zk

import (
	"errors"
	"net"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An answer with fewer results than the multi has operations is an error.
func TestAnswerOfAMultiThatEndsEarly(t *testing.T) {
	for _, answer := range [][]byte{nil, jute.AppendMultiHeader(nil, -1, true, -1)} {
		d := jute.NewDecoder(answer)
		results, err := readMulti(&d, "", make([]Op, 1))
		expect.Equal(t, err, jute.ErrShort, "%x: the error", answer)
		expect.That(t, results == nil, "%x: %v, %v", answer, results, err)
	}
}

// An answer that is read while the session ends sets no watch, because that watch would never fire.
func TestAnswerBehindTheEndSetsNoWatch(t *testing.T) {
	c := must.Get(Open(must.Refused(t), Options{}))(t)
	near, far := net.Pipe()
	defer far.Close()
	l, r := &link{c: c, conn: near}, newExists("", "/none", watchData)
	r.c = c
	c.mu.Lock()
	l.put(&r.call)
	c.link = l
	c.mu.Unlock()
	got := must.Get(l.match(1, 1))(t)
	c.end(ErrClosed, Closed)
	d := jute.NewDecoder(nil)
	must.OK(t, l.answer(got, jute.NoNode, &d))
	_, err := r.Wait(t.Context())
	must.Is(t, err, ErrClosed)
	must.Equal(t, c.Watches(), 0)
	<-c.finished
}

// A server may answer a create in a multi in the old form, without the node's metadata.
func TestOldAnswerOfACreateInAMulti(t *testing.T) {
	b := jute.AppendString(jute.AppendMultiHeader(nil, jute.OpCreate, false, jute.OK), "/top/a")
	d := jute.NewDecoder(jute.AppendMultiHeader(b, jute.OpError, true, -1))
	results, err := readMulti(&d, "/top", make([]Op, 1))
	if expect.OK(t, err) {
		if expect.Equal(t, len(results), 1, "len(results)") {
			expect.Equal(t, results[0], Result{Path: "/a"}, "results[0]")
		}
	}
}

// If a multi is refused, the first operation that has an error code of its own caused the refusal. The other
// operations have no error, or the code that says that another operation failed.
func TestOperationToBlame(t *testing.T) {
	const runtimeInconsistency = -2
	for want, codes := range [][]jute.ErrCode{
		{jute.NoNode, runtimeInconsistency, runtimeInconsistency}, {jute.OK, jute.NoNode, runtimeInconsistency},
		{runtimeInconsistency, jute.OK, jute.NoNode}, {jute.OK, jute.OK, jute.OK, jute.NoNode, jute.NodeExists},
	} {
		var b []byte
		ops := make([]Op, len(codes))
		for i, code := range codes {
			b = jute.AppendInt(jute.AppendMultiHeader(b, jute.OpError, false, code), int32(code))
			ops[i] = Check{Path: "/a", Version: int32(i)}
		}
		d := jute.NewDecoder(jute.AppendMultiHeader(b, jute.OpError, true, -1))
		results, err := readMulti(&d, "", ops)
		refused, _ := errors.AsType[*MultiError](err)
		must.That(t, refused != nil, "%v: %v, %v: want refused != nil", codes, results, err)
		must.That(t, results == nil, "%v: %v, %v: want results == nil", codes, results, err)
		expect.Equal(t, refused.Index, want, "%v: refused.Index", codes)
		expect.Equal(t, refused.Op, ops[want], "%v: refused.Op", codes)
		expect.Is(t, err, ErrNoNode, "%v", codes)
	}
}
