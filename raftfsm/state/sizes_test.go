package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/tree"
)

func snapshotBytes(t *testing.T, s *State) ([]byte, error) {
	t.Helper()
	var file bytes.Buffer
	snap := s.StartSnapshot(Position{Index: 1, Term: 1})
	defer snap.Close()
	err := snap.Write(&file, func(read func()) { read() })
	return file.Bytes(), err
}

// If a request of about the largest length is accepted, a snapshot can hold its data. The test sends requests
// of the largest length, of one byte less and of one byte more.
func TestLongestRequestIsReadBackFromASnapshot(t *testing.T) {
	race.Alone(t)
	ids := []jute.ID{}
	for range entries.MaxIDs {
		ids = append(ids, jute.ID{Scheme: "digest", ID: strings.Repeat("x", entries.MaxIDBytes/entries.MaxIDs-len("digest"))})
	}
	body := createBody("/big", 0)
	overhead := len(body) - len("data")
	for _, off := range []int{-1, 0, 1} {
		b := newBench(t)
		s := b.session()
		data := make([]byte, entries.MaxFrame-overhead+off)
		body := jute.AppendBuffer(jute.AppendString(nil, "/big"), data)
		body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), 0)
		r := Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, IDs: ids, Body: body}
		err := r.Check()
		if off > 0 {
			expect.Fails(t, err, "%+d: accepted, %d bytes of %d", off, len(r.Append(nil)), entries.MaxRequest)
			continue
		}
		expect.OK(t, err, "%+d", off)
		must.Equal(t, b.do(r)[0].Code, jute.OK, "%+d", off)
		file := must.Get(snapshotBytes(t, b.s))(t)
		restored, _, err := ReadSnapshot(bytes.NewReader(file))
		must.OK(t, err, "%+d", off)
		info, ok := restored.Tree().Get("/big")
		if expect.That(t, ok,
			"%+d: %d bytes came back of %d: want ok", off, len(info.Data), len(data)) {
			expect.Equal(t, len(info.Data), len(data), "%+d: len(info.Data)", off)
		}
	}
}

// If the sessions exactly fill one chunk, they are written as one chunk; with one byte more, as two. Both
// snapshots are read back.
func TestSessionsOfAnyNumberAreReadBack(t *testing.T) {
	race.Alone(t)
	empty := len(New("c").sessions.Hold().Append(nil))
	const fixed = 8 + 16 + 4 + 4 + 4 + 4 + 8 // bytes of a session without its address
	for _, off := range []int{-1, 0, 1} {
		s := New("c")
		left := sessionsChunk - empty + off
		for left > 0 {
			n := min(left, 1<<20)
			if left-n > 0 && left-n < fixed {
				n -= fixed
			}
			s.sessions.Create(1000, [16]byte{1}, 1, strings.Repeat("a", n-fixed), 1)
			left -= n
		}
		must.Equal(t, len(s.sessions.Hold().Append(nil)), sessionsChunk+off, "bytes of sessions")
		file := must.Get(snapshotBytes(t, s))(t)
		restored, _, err := ReadSnapshot(bytes.NewReader(file))
		if err != nil {
			t.Errorf("%+d: %v", off, err)
			continue
		}
		expect.List(t, restored.sessions.Hold().Append(nil), s.sessions.Hold().Append(nil),
			"%+d: other sessions came back", off)
		expect.OK(t, CheckSnapshot(bytes.NewReader(file)), "%+d", off)
	}
}

func TestChunkThatCannotBeReadIsNotWritten(t *testing.T) {
	race.Alone(t)
	for _, off := range []int{-1, 0, 1} {
		var file bytes.Buffer
		w := &chunkWriter{w: &file}
		w.raw([]byte(snapshotMagic))
		w.chunk(chunkNodes, make([]byte, MaxChunk+off))
		expect.Equal(t, w.err != nil, off > 0, "%+d: %v", off, w.err)
		if w.err != nil {
			continue
		}
		size := 0
		c := chunks{take: func(_ byte, payload []byte) error { size = len(payload); return nil }}
		expect.OK(t, expect.Err(c.Write(file.Bytes())), "%+d", off)
		expect.Equal(t, size, MaxChunk+off, "%+d: bytes read back", off)
	}
}

// A node that an import accepts must fit into the server's own snapshots, whatever comes before it in its
// chunk. An import accepts nodes with data of up to entries.MaxFrame bytes.
func TestLongNodeFromElsewhereIsSnapshotted(t *testing.T) {
	if testing.Short() {
		t.Skip("some 64 MiB, several times")
	}
	data := make([]byte, MaxChunk)
	for _, long := range []int{entries.MaxFrame, MaxChunk - 512<<10, MaxChunk - 2000} {
		paths := []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
		for i := range 15 { // short nodes, which may come before the long node in its chunk
			paths = append(paths, fmt.Sprintf("/a%02d", i))
		}
		paths = append(paths, "/big")
		nodes := tree.NewMaker()
		for _, p := range paths {
			n := 7000
			if p == "/big" {
				n = long
			}
			must.OK(t, nodes.Set(p, &tree.Info{Data: data[:n], ACL: jute.WorldAnyone}))
		}
		a, err := Adopt("c", 1, nil, nodes)
		if err != nil {
			expect.That(t, long > entries.MaxFrame, "%d bytes: %v", long, err)
			continue
		}
		s, _, err := ReadSnapshot(bytes.NewReader(must.Get(snapshotBytes(t, a))(t)))
		must.OK(t, err, "%d bytes", long)
		expect.OK(t, expect.Err(snapshotBytes(t, s)), "%d bytes were taken, and then", long)
	}
}

// A server that missed a change counts all later zxids too low. When the leader names a zxid and its digest,
// this server has not reached that zxid yet. So it stops.
func TestF3ServerThatMissedAChangeStops(t *testing.T) {
	b := newBench(t)
	s := b.session()
	for len(b.s.Digests()) == 0 {
		b.do(create(s, "/n-", 2))
	}
	at := func(zxid int64) []byte {
		body := binary.BigEndian.AppendUint64(nil, uint64(zxid))
		r := Request{Op: OpDigest, Body: binary.BigEndian.AppendUint64(body, 7)}
		return one(entries.Block{Count: 1, Requests: r.Append(nil)})
	}
	expect.OK(t, b.apply(at(b.s.Zxid()-1)), "a zxid of which no digest is kept")
	if err := b.apply(at(b.s.Zxid() + 1)); err == nil || !strings.Contains(err.Error(), "differs") {
		t.Errorf("a zxid that this server has not reached: %v", err)
	}
}

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
		r := (Request{Op: c.op, Body: c.body})
		expect.Equal(t, Long(&r), c.long, "operation %d of %d bytes", c.op, len(c.body))
	}
}

// A refusal takes the place of its request in the log, and changes nothing. The answer goes to the connection
// that sent the request, and to no older connection.
func TestR8RefusalKeepsItsPlace(t *testing.T) {
	b := newBench(t)
	sess := b.session()
	r := Request{Session: sess.ID, Gen: sess.Gen, Op: jute.OpSetData, Body: make([]byte, LongRequest+1)}
	digest := b.s.Digest()
	out := b.do(create(sess, "/a", 0), Refusal(&r), create(sess, "/b", 0))
	expect.Equal(t, out[1].Code, jute.Throttled, "out[1].Code")
	expect.That(t, !out[1].Refused, "the refusal does not reach its connection: %+v", out[1])
	expect.Equal(t, out[1].Zxid, out[0].Zxid, "out[1].Zxid")
	expect.Equal(t, out[2].Zxid, out[0].Zxid+1, "out[2].Zxid")
	after := b.s.Digest()
	r.Gen--
	o := b.do(Refusal(&r))[0]
	expect.That(t, o.Refused, "an older connection is answered: %+v", o)
	expect.Equal(t, b.s.Digest(), after, "the digest, after a refusal")
	expect.That(t, after != digest, "two creates have not changed the digest")
}

// told is a collector that lists what it hears of sessions.
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

// The sink hears of each event of a session once, and of its end with the cause.
func TestSinkIsToldOfEverySession(t *testing.T) {
	b := newBench(t)
	sink := &told{}
	do := func(r Request) Outcome {
		t.Helper()
		e := b.entry(b.next, r)
		b.next++
		entries.Seal(e, 1000)
		sink.outcomes = nil
		must.OK(t, b.s.Apply(e, sink))
		must.Equal(t, len(sink.outcomes), 1, "outcomes")
		return sink.outcomes[0]
	}
	body := SessionBody{Timeout: 1000, Owner: 1, Addr: "10.0.0.1"}
	open := func() session.Session {
		return do(Request{Op: OpCreateSession, Body: body.Append(nil)}).Session
	}

	a := open()
	wrong := body
	wrong.Password[15] = 1
	refused := do(Request{Op: OpAttach, Session: a.ID, Body: wrong.Append(nil)})
	expect.Equal(t, refused.Code, jute.SessionExpired, "the answer to another password")
	expect.Equal(t, refused.Session.ID, 0, "the session that another password gets")
	o := do(Request{Op: OpAttach, Session: a.ID, Body: body.Append(nil)})
	expect.Equal(t, o.Session.Gen, a.Gen+1, "attached: o.Session.Gen")
	expect.Equal(t, o.Code, jute.OK, "attached: o.Code")
	do(End(a.ID, a.Gen, EndExpired)) // has no effect: the session has a later generation
	do(End(a.ID, o.Session.Gen, EndExpired))
	do(End(a.ID, o.Session.Gen, EndExpired)) // has no effect: the session has ended
	c := open()
	do(End(c.ID, c.Gen, EndOperator))
	d := open()
	do(Request{Op: jute.OpCloseSession, Session: d.ID})
	again := do(Request{Op: jute.OpCloseSession, Session: d.ID})
	expect.That(t, again.Refused, "closed twice: %+v", again)
	e := open()
	late := do(End(e.ID, e.Gen+1, EndClosed))
	expect.That(t, late.Refused, "closed by a connection that does not have it: %+v", late)
	do(End(e.ID, e.Gen, EndClosed))
	want := []string{
		"attached gen 1, created true", "attached gen 2, created false", fmt.Sprintf("ended by %d at 2",
			EndExpired),
		"attached gen 1, created true", fmt.Sprintf("ended by %d at 4", EndOperator),
		"attached gen 1, created true", fmt.Sprintf("ended by %d at 6", EndClosed),
		"attached gen 1, created true", fmt.Sprintf("ended by %d at 8", EndClosed),
	}
	expect.List(t, sink.list, want, "what the sink hears")
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
	expect.Equal(t, list[0].Code, jute.OK, "sync")
	expect.List(t, list[0].Reply, path, "the reply to a sync")
	expect.That(t, !list[0].Refused, "a sync of the session's connection is refused")
	expect.Equal(t, list[0].Zxid, b.s.Zxid(), "zxid of a sync")
	expect.Equal(t, list[1].Code, jute.MarshallingError, "a sync with half a path")
	expect.That(t, !list[1].Refused, "a sync with half a path is refused without an answer")
	for _, o := range list[2:] {
		expect.That(t, o.Refused, "the sync of another connection is answered: %+v", o)
		expect.Equal(t, len(o.Reply), 0, "bytes of the reply to another connection")
	}
}

// A state remembers its newest digests in order, and compares each of them with what the leader says.
func TestDigestsAreRememberedInOrder(t *testing.T) {
	b := newBench(t)
	_, known := b.s.LastDigest()
	expect.That(t, !known, "a new state has a digest")
	expect.Equal(t, len(b.s.Digests()), 0, "digests of a new state")
	s := b.session()
	sums := map[int64]uint64{}
	const rounds = 70 // more digests than the state remembers
	for b.s.Zxid() < rounds*digestEvery {
		b.do(create(s, "/n-", 2))
		sums[b.s.Zxid()] = b.s.Digest()
		last, known := b.s.LastDigest()
		must.Equal(t, known, b.s.Zxid() >= digestEvery, "zxid %d: there is a digest", b.s.Zxid())
		if known {
			must.Equal(t, last.Zxid, b.s.Zxid()/digestEvery*digestEvery, "zxid of the last digest")
		}
	}
	list := b.s.Digests()
	must.Equal(t, len(list), 64, "digests")
	for i, d := range list {
		want := int64(rounds-len(list)+1+i) * digestEvery
		expect.Equal(t, d.Zxid, want, "zxid of digest %d", i)
		expect.Equal(t, d.Sum, sums[want], "digest %d", i)
		for _, flip := range []uint64{0, 1} {
			body := binary.BigEndian.AppendUint64(nil, uint64(d.Zxid))
			body = binary.BigEndian.AppendUint64(body, d.Sum^flip)
			err := b.apply(b.entry(b.next, Request{Op: OpDigest, Body: body}))
			b.next++
			expect.Equal(t, err == nil, flip == 0,
				"digest of zxid %d with %d flipped: %v", d.Zxid, flip, err)
		}
	}
	// A digest of a zxid that this server has not reached is an error: the leader had reached that zxid before
	// it proposed the entry.
	body := binary.BigEndian.AppendUint64(nil, uint64(b.s.Zxid()+1))
	if err := b.apply(b.entry(b.next, Request{
		Op: OpDigest, Body: append(body, make([]byte, 8)...)})); err == nil {
		t.Error("a digest from ahead was passed over")
	}
}

func TestZxidOfADigest(t *testing.T) {
	body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 77), 99)
	for n, want := range map[int]int64{0: 0, 8: 0, 15: 0, 16: 77} {
		expect.Equal(t, DigestZxid(body[:n]), want, "%d bytes", n)
	}
	expect.Equal(t, DigestZxid(append(body, 0)), 0, "17 bytes")
}
