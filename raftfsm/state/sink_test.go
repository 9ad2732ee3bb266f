package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// told is a collector that writes down what it is told of sessions.
type told struct {
	collector
	list []string
}

func (s *told) Attached(sess *session.Session, created bool) {
	s.list = append(s.list, fmt.Sprintf("attached gen %d, created %v", sess.Gen, created))
}

func (s *told) Ended(e *Ending) {
	s.list = append(s.list, fmt.Sprintf("ended by %d at %d", e.Cause, e.Zxid))
}

// Everything that happens to a session is told, once, with its cause.
func TestSinkIsToldOfEverySession(t *testing.T) {
	b := newBench(t)
	sink := &told{}
	do := func(r Request) Outcome {
		t.Helper()
		e := b.entry(b.next, r)
		b.next++
		SealEntry(e, 1000)
		sink.outcomes = nil
		must.OK(t, b.s.Apply(e, sink))
		must.Equal(t, len(sink.outcomes), 1, "outcomes")
		return sink.outcomes[0]
	}
	body := SessionBody{Timeout: 1000, Owner: 1, Addr: "10.0.0.1"}
	open := func() session.Session { return do(Request{Op: OpCreateSession, Body: body.Append(nil)}).Session }

	a := open()
	wrong := body
	wrong.Password[15] = 1
	if o := do(Request{Op: OpAttach, Session: a.ID, Body: wrong.Append(nil)}); o.Code != jute.SessionExpired ||
		o.Session.ID != 0 {
		t.Errorf("attached with another password: %+v", o)
	}
	o := do(Request{Op: OpAttach, Session: a.ID, Body: body.Append(nil)})
	expect.That(t, o.Session.Gen == a.Gen+1 && o.Code == jute.OK, "attached: %+v", o)
	do(Request{Op: OpExpire, Session: a.ID, Gen: a.Gen}) // was heard of since
	do(Request{Op: OpExpire, Session: a.ID, Gen: o.Session.Gen})
	do(Request{Op: OpExpire, Session: a.ID, Gen: o.Session.Gen}) // is gone
	c := open()
	do(Request{Op: OpExpire, Session: c.ID, Gen: c.Gen, Body: []byte{1}})
	d := open()
	do(Request{Op: jute.OpCloseSession, Session: d.ID})
	if again := do(Request{Op: jute.OpCloseSession, Session: d.ID}); !again.Refused {
		t.Errorf("closed twice: %+v", again)
	}
	want := []string{
		"attached gen 1, created true", "attached gen 2, created false", fmt.Sprintf("ended by %d at 2",
			EndExpired),
		"attached gen 1, created true", fmt.Sprintf("ended by %d at 4", EndOperator),
		"attached gen 1, created true", fmt.Sprintf("ended by %d at 6", EndClosed),
	}
	if !slices.Equal(sink.list, want) {
		t.Errorf("told\n%q\nwant\n%q", sink.list, want)
	}
}

func TestSyncIsAnsweredToWhoMayAsk(t *testing.T) {
	b := newBench(t)
	s := b.session()
	path := jute.AppendString(nil, "/x")
	list := b.do(
		Request{Session: s.ID, Gen: s.Gen, Op: jute.OpSync, Body: path},
		Request{Session: s.ID, Gen: s.Gen, Op: jute.OpSync, Body: path[:5]},
		Request{Session: s.ID, Gen: s.Gen + 1, Op: jute.OpSync, Body: path},
		Request{Session: s.ID + 1, Gen: s.Gen, Op: jute.OpSync, Body: path})
	if o := list[0]; o.Code != jute.OK || !bytes.Equal(o.Reply, path) || o.Refused || o.Zxid != b.s.Zxid() {
		t.Errorf("sync: %+v", o)
	}
	if o := list[1]; o.Code != jute.MarshallingError || o.Refused {
		t.Errorf("sync of half a path: %+v", o)
	}
	for _, o := range list[2:] {
		expect.That(t, o.Refused && len(o.Reply) == 0, "sync of somebody else: %+v", o)
	}
}

// The newest digests are remembered, in order, and compared with what the
// leader says of any of them.
func TestDigestsAreRememberedInOrder(t *testing.T) {
	b := newBench(t)
	if _, known := b.s.LastDigest(); known || len(b.s.Digests()) != 0 {
		t.Error("a new state remembers a digest")
	}
	s := b.session()
	sums := map[int64]uint64{}
	const rounds = 70 // more than the ring holds
	for b.s.Zxid() < rounds*digestEvery {
		b.do(create(s, "/n-", 2))
		sums[b.s.Zxid()] = b.s.Digest()
		if last, known := b.s.LastDigest(); known != (b.s.Zxid() >= digestEvery) || known &&
			last.Zxid != b.s.Zxid()/digestEvery*digestEvery {
			t.Fatalf("at %d the last digest is that of %d", b.s.Zxid(), last.Zxid)
		}
	}
	list := b.s.Digests()
	must.Equal(t, len(list), 64, "digests")
	for i, d := range list {
		if want := int64(rounds-len(list)+1+i) * digestEvery; d.Zxid != want || d.Sum != sums[want] {
			t.Errorf("digest %d is %x of zxid %d, want %x of %d", i, d.Sum, d.Zxid, sums[want], want)
		}
		for _, flip := range []uint64{0, 1} {
			body := binary.BigEndian.AppendUint64(nil, uint64(d.Zxid))
			body = binary.BigEndian.AppendUint64(body, d.Sum^flip)
			err := b.apply(b.entry(b.next, Request{Op: OpDigest, Body: body}))
			b.next++
			expect.Equal(t, err == nil, flip == 0,
				"digest of zxid %d with %d flipped: %v", d.Zxid, flip, err)
		}
	}
	// The leader cannot have been further before it proposed the entry.
	body := binary.BigEndian.AppendUint64(nil, uint64(b.s.Zxid()+1))
	if err := b.apply(b.entry(b.next, Request{
		Op: OpDigest, Body: append(body, make([]byte, 8)...)})); err == nil {
		t.Error("a digest from ahead was passed over")
	}
}
