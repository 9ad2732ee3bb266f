package state

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// collector is a Sink that keeps what Apply produces.
type collector struct {
	outcomes []Outcome
	zxids    []int64 // zxids of the events
	endings  []int64
	births   map[uint32]uint32
	replaced int
}

func (c *collector) Events(zxid int64, _ []tree.Event) { c.zxids = append(c.zxids, zxid) }
func (c *collector) Ended(e *Ending) {
	c.endings = append(c.endings, e.Session.ID)
}
func (c *collector) Attached(*session.Session, bool)         {}
func (c *collector) Opened(id uint32, _ int64, birth uint32) { c.births[id] = birth }
func (c *collector) Replaced()                               { c.replaced++ }
func (c *collector) Outcome(_, _ uint32, _ uint64, o *Outcome) {
	out := *o
	out.Reply = bytes.Clone(o.Reply)
	c.outcomes = append(c.outcomes, out)
}

// bench is a state in which the stream of server 1 is open.
type bench struct {
	t     testing.TB
	s     *State
	got   collector
	birth uint32
	next  uint64
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, s: New("test"), next: 1}
	b.got.births = map[uint32]uint32{}
	b.open(1, 77)
	b.birth = b.got.births[1]
	return b
}

func (b *bench) apply(entry []byte) error {
	b.got.outcomes, b.got.zxids, b.got.endings = nil, nil, nil
	entries.Seal(entry, 1000)
	return b.s.Apply(entry, &b.got)
}

func (b *bench) must(entry []byte) {
	b.t.Helper()
	must.OK(b.t, b.apply(entry))
}

func (b *bench) open(id uint32, nonce int64) {
	m := Member{ID: id, Incarnation: "b"}
	r := Request{Op: OpOpenStream, Body: jute.AppendLong(m.Append(nil), nonce)}
	b.must(one(entries.Block{Origin: id, Count: 1, Requests: r.Append(nil)}))
}

// one() returns an entry with one block.
func one(bl entries.Block) []byte { return bl.Append(entries.Begin(nil, 0)) }

// entry() returns a batch of requests, numbered from `first` on.
func (b *bench) entry(first uint64, list ...Request) []byte {
	bl := entries.Block{Origin: 1, Birth: b.birth, First: first, Count: uint32(len(list))}
	for i := range list {
		bl.Requests = list[i].Append(bl.Requests)
	}
	return one(bl)
}

// do() applies requests as the next ones of the stream, and returns their outcomes.
func (b *bench) do(list ...Request) []Outcome {
	b.t.Helper()
	b.must(b.entry(b.next, list...))
	b.next += uint64(len(list))
	return b.got.outcomes
}

func (b *bench) session() session.Session {
	body := SessionBody{Timeout: 1000, Owner: 1, Addr: "10.0.0.1"}
	return b.do(Request{Op: OpCreateSession, Body: body.Append(nil)})[0].Session
}

func create(s session.Session, path string, flags int32) Request {
	return Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody(path, flags)}
}

func createBody(path string, flags int32) []byte {
	b := jute.AppendString(nil, path)
	b = jute.AppendBuffer(b, []byte("data"))
	b = jute.AppendACL(b, jute.WorldAnyone)
	return jute.AppendInt(b, flags)
}

// An outcome says what its request has cost, even if the request was refused, so that the server can charge
// the client.
func TestOutcomeTellsWhatTheRequestCost(t *testing.T) {
	b := newBench(t)
	s := b.session()
	got := b.do(create(s, "/a", 0), create(s, "/b", 0), create(s, "/b", 0))
	expect.That(t, got[0].Steps > 0, "a create costs nothing")
	expect.Equal(t, got[1].Steps, got[0].Steps, "cost of a second create")
	expect.That(t, got[2].Steps > 0, "a refused create costs nothing")
}

func TestG3RequestsOfAStreamAreAppliedOnce(t *testing.T) {
	b := newBench(t)
	s := b.session()
	first := b.next
	list := []Request{create(s, "/a-", 2), create(s, "/a-", 2), create(s, "/a-", 2)}
	b.do(list...)
	b.must(b.entry(first, list...))
	expect.Equal(t, len(b.got.outcomes), 0, "a repeated batch had %d outcomes", len(b.got.outcomes))
	b.must(b.entry(first+2, list...)) // the first request was applied before, the others are new
	expect.Equal(t, len(b.got.outcomes), 2,
		"a batch of which one was seen had %d outcomes", len(b.got.outcomes))
	b.must(b.entry(first+9, list...))
	expect.Equal(t, len(b.got.outcomes), 0, "a batch behind a gap was applied")
	expect.Equal(t, len(b.s.Tree().Children("/")), 1+5, "children of the root")
}

func TestStreamOfAnEarlierLifeIsVoid(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.open(1, 77)
	expect.Equal(t, b.got.births[1], b.birth, "a repeated open took the stream away")
	late := b.entry(b.next, create(s, "/late", 0))
	b.open(1, 78)
	expect.Equal(t, b.got.births[1], b.birth+1, "a new life got no birth of its own")
	b.must(late)
	expect.Equal(t, len(b.got.outcomes), 0, "a request of the earlier life was applied")
}

// When a server was removed and added again, late requests of its former stream have no effect.
func TestStreamOfARemovedServerNeverComesBack(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.do(create(s, "/before", 0))
	first := b.birth
	late := b.entry(b.next, create(s, "/late", 0))
	again := b.entry(1, create(s, "/again", 0))
	forget := Forget(1, 999)
	b.must(one(entries.Block{Count: 1, Requests: forget.Append(nil)}))
	gone := b.got.births[1]
	expect.That(t, gone != first, "its stream is still there")
	m, known := b.s.Member(1)
	expect.That(t, known, "the state has forgotten the removed server")
	expect.Equal(t, m.Incarnation, "", "directory of the removed server")
	b.open(1, 77) // with the nonce of the server's first stream
	if birth := b.got.births[1]; birth <= gone {
		t.Errorf("births %d, %d, %d", first, gone, birth)
	}
	for _, entry := range [][]byte{late, again} {
		if b.must(entry); len(b.got.outcomes) != 0 {
			t.Error("a request of the removed server was applied")
		}
	}
}

func TestG12G14SessionEndsOnceAndTakesItsNodes(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.do(create(s, "/e1", 1), create(s, "/e2", 1), create(s, "/kept", 0))
	before := b.s.Zxid()
	end := End(s.ID, s.Gen, EndClosed)
	out := b.do(end, create(s, "/e3", 1), end)
	expect.Equal(t, b.s.Zxid(), before+1, "the end took %d zxids", b.s.Zxid()-before)
	expect.That(t, !out[0].Refused, "the end of the session is refused")
	expect.That(t, out[1].Refused, "a create after the end of its session is not refused")
	expect.That(t, out[2].Refused, "the second end of the session is not refused")
	for path, want := range map[string]bool{"/e1": false, "/e2": false, "/e3": false, "/kept": true} {
		if _, ok := b.s.Tree().Get(path); ok != want {
			t.Errorf("%s exists: %v", path, ok)
		}
	}
	next := b.session()
	expect.That(t, next.ID != s.ID, "a session id was given twice")
}

// A close that comes over an older connection does not end the session.
func TestG14OlderConnectionsCloseEndsNothing(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.do(create(s, "/held", 1))
	body := SessionBody{Timeout: 2000, Password: s.Password, Owner: 2, Addr: "10.0.0.2"}
	moved := b.do(Request{Session: s.ID, Op: OpAttach, Body: body.Append(nil)})[0].Session
	out := b.do(End(s.ID, s.Gen, EndClosed))
	expect.That(t, out[0].Refused, "the older connection's close: %+v", out[0])
	_, lives := b.s.Sessions().Get(s.ID)
	expect.That(t, lives, "the older connection's close ends the session")
	_, held := b.s.Tree().Get("/held")
	expect.That(t, held, "the session's node is gone")
	out = b.do(End(moved.ID, moved.Gen, EndClosed))
	expect.That(t, !out[0].Refused, "the newer connection's close: %+v", out[0])
	_, lives = b.s.Sessions().Get(s.ID)
	expect.That(t, !lives, "the newer connection's close does not end the session")
}

func TestG14OlderConnectionsWritesAreRefused(t *testing.T) {
	b := newBench(t)
	s := b.session()
	body := SessionBody{Timeout: 2000, Password: s.Password, Owner: 2, Addr: "10.0.0.2"}
	moved := b.do(Request{Session: s.ID, Op: OpAttach, Body: body.Append(nil)})[0].Session
	out := b.do(create(s, "/old", 0), create(moved, "/new", 0))
	expect.That(t, out[0].Refused, "outcomes %+v: want out[0].Refused", out)
	expect.That(t, !out[1].Refused, "outcomes %+v: want !out[1].Refused", out)
	body.Password[0]++
	if o := b.do(Request{Session: s.ID, Op: OpAttach,
		Body: body.Append(nil)})[0]; o.Code != jute.SessionExpired {
		t.Errorf("attach with a wrong password: %+v", o)
	}
	o := b.do(create(moved, "/still", 0))[0]
	expect.That(t, !o.Refused, "a wrong password threw the rightful connection out")
	if b.do(Request{Session: s.ID, Gen: 1, Op: OpExpire}); len(b.got.endings) != 0 {
		t.Error("an expiry decided before the session moved was carried out")
	}
}

func TestG26EntriesThatCannotBeTrustedStop(t *testing.T) {
	b := newBench(t)
	s := b.session()
	good := b.entry(b.next, create(s, "/x", 0))
	entries.Seal(good, 1000)
	for at := range good {
		bad := bytes.Clone(good)
		bad[at] ^= 4
		expect.Fails(t, b.s.Apply(bad, &b.got), "an entry damaged at byte %d was applied", at)
	}
	for name, tune := range map[string]func([]byte){
		"newer version": func(e []byte) { e[0]++ },
		"unknown kind":  func(e []byte) { e[1] = 15 },
	} {
		bad := bytes.Clone(good)
		tune(bad)
		expect.Fails(t, b.apply(bad), "%s was applied", name)
	}
}

func TestG9G26ServersThatDifferStop(t *testing.T) {
	b := newBench(t)
	s := b.session()
	for len(b.s.Digests()) == 0 {
		b.do(create(s, "/n-", 2))
	}
	d := b.s.Digests()[0]
	act := func(sum uint64) []byte {
		body := binary.BigEndian.AppendUint64(nil, uint64(d.Zxid))
		r := Request{Op: OpDigest, Body: binary.BigEndian.AppendUint64(body, sum)}
		return one(entries.Block{Count: 1, Requests: r.Append(nil)})
	}
	expect.OK(t, b.apply(act(d.Sum)), "equal digests")
	err := b.apply(act(d.Sum + 1))
	expect.That(t, err != nil && strings.Contains(err.Error(), "differs"), "different digests: %v", err)
}

// A state and the state read from its snapshot are equal, and stay equal after the same requests.
func TestG4G19SnapshotRestoresTheWholeState(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var sessions []session.Session
	for range 5 {
		sessions = append(sessions, b.session())
	}
	random := func() Request {
		s := sessions[rng.IntN(len(sessions))]
		return create(s, "/n-", int32(rng.IntN(4)))
	}
	for range 300 {
		b.do(random())
	}
	var file bytes.Buffer
	snap := b.s.StartSnapshot(Position{Index: 7, Term: 3})
	must.OK(t, snap.Write(&file, func(read func()) { read() }))
	snap.Close()
	restored, at := must.Get2(ReadSnapshot(&file))(t)
	expect.Equal(t, at, Position{Index: 7, Term: 3}, "restored at")
	must.Equal(t, restored.Zxid(), b.s.Zxid(),
		"restored zxid %d digest %x, was %d %x: restored.Zxid()",
		restored.Zxid(), restored.Digest(), b.s.Zxid(), b.s.Digest())
	must.Equal(t, restored.Digest(), b.s.Digest(),
		"restored zxid %d digest %x, was %d %x: restored.Digest()",
		restored.Zxid(), restored.Digest(), b.s.Zxid(), b.s.Digest())
	other := &collector{births: map[uint32]uint32{}}
	for range 300 {
		e := b.entry(b.next, random())
		b.next++
		b.must(e)
		other.outcomes = nil
		must.OK(t, restored.Apply(e, other))
		mine, theirs := b.got.outcomes[0], other.outcomes[0]
		must.Equal(t, mine.Zxid, theirs.Zxid,
			"outcomes differ: %+v and %+v: mine.Zxid", mine, theirs)
		must.Equal(t, mine.Code, theirs.Code,
			"outcomes differ: %+v and %+v: mine.Code", mine, theirs)
		must.That(t, bytes.Equal(mine.Reply, theirs.Reply),
			"outcomes differ: %+v and %+v: want bytes.Equal(mine.Reply, theirs.Reply)",
			mine, theirs)
	}
	expect.Equal(t, restored.Digest(), b.s.Digest(), "digests differ after the same entries")
}

// FuzzEntry applies any bytes as a sealed entry. Apply may fail, but must not panic.
func FuzzEntry(f *testing.F) {
	b := newBench(f)
	s := b.session()
	f.Add(b.entry(b.next, create(s, "/x", 0), Request{Session: s.ID, Gen: 1, Op: jute.OpSync,
		Body: jute.AppendString(nil, "/")}))
	named := create(s, "/x", 0)
	named.IDs = idsOf("a", 50)
	short, _ := entries.NameOnce(b.entry(b.next, named, named))
	f.Add(short)
	f.Fuzz(func(t *testing.T, e []byte) {
		if len(e) < entries.HeaderSize {
			return
		}
		b := newBench(t)
		b.session()
		e = bytes.Clone(e)
		head := entries.Begin(nil, 0)
		e[0], e[1] = head[0], head[1]+e[1]%2 // at random, with or without sets of identities
		b.apply(e)
	})
}

// FuzzSnapshot reads any bytes as a snapshot.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		ReadSnapshot(bytes.NewReader(b))
	})
}
