package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An entry that was cut short is refused as corrupt, even with a valid checksum. A server that applied a part of
// it would differ from the others.
func TestEntryCutShortIsCorrupt(t *testing.T) {
	b := newBench(t)
	s := b.session()
	good := b.entry(b.next, create(s, "/x", 0), create(s, "/y", 0))
	entries.Seal(good, 1000)
	for n := range good {
		expect.Is(t, entries.Check(good[:n]), entries.ErrCorrupt, "%d of %d bytes", n, len(good))
		if n <= entries.HeaderSize {
			continue
		}
		// The checksum is valid, as if the leader had proposed the entry like this.
		cut := bytes.Clone(good[:n])
		entries.Seal(cut, 1000)
		expect.Is(t, b.s.Apply(cut, &b.got), entries.ErrCorrupt, "a sealed entry of %d of %d bytes", n, len(good))
	}
}

// The bodies of servers' own requests are corrupt if they are cut short.
func TestServersRequestsCutShortAreCorrupt(t *testing.T) {
	session := SessionBody{Timeout: 1000, Owner: 1, Addr: "10.0.0.1"}
	member := Member{ID: 2, Incarnation: "i", PeerAddr: "a:1", ClientAddr: "b:2"}
	for _, test := range []struct {
		op   jute.OpCode
		body []byte
	}{
		{OpCreateSession, session.Append(nil)},
		{OpAttach, session.Append(nil)},
		{OpOpenStream, jute.AppendLong(member.Append(nil), 5)},
		{OpDigest, make([]byte, 16)},
	} {
		for n := range test.body {
			b := newBench(t)
			before := b.s.Digest()
			err := b.apply(b.entry(b.next, Request{Op: test.op, Body: test.body[:n]}))
			expect.Is(t, err, entries.ErrCorrupt, "op %d with %d of %d bytes", test.op, n, len(test.body))
			expect.Equal(t, b.s.Digest(), before,
				"op %d with %d of %d bytes left a trace: b.s.Digest()", test.op, n, len(test.body))
			expect.Equal(t, b.s.Sessions().Len(), 0,
				"op %d with %d of %d bytes left a trace: b.s.Sessions().Len()",
				test.op, n, len(test.body))
			expect.Equal(t, len(b.s.Members()), 1,
				"op %d with %d of %d bytes left a trace: len(b.s.Members())",
				test.op, n, len(test.body))
		}
	}
	b := newBench(t)
	if err := b.apply(b.entry(b.next, Request{Op: OpDigest, Body: make([]byte, 17)})); !errors.Is(err,
		entries.ErrCorrupt) {
		t.Errorf("a digest of 17 bytes: %v", err)
	}
	b = newBench(t)
	nobody := Member{ID: 0, Incarnation: "i"}
	if err := b.apply(b.entry(b.next, Request{Op: OpOpenStream, Body: jute.AppendLong(nobody.Append(nil),
		5)})); !errors.Is(err, entries.ErrCorrupt) {
		t.Errorf("a stream of server 0: %v", err)
	}
	// The only request outside a stream is the one that opens a stream.
	sync := Request{Op: jute.OpSync, Body: jute.AppendString(nil, "/")}
	expect.Is(t, b.apply(one(entries.Block{Origin: 1, Count: 1, Requests: sync.Append(nil)})), entries.ErrCorrupt,
		"a request outside any stream")
}

// snapshotOf returns the snapshot of a state with sessions and nodes, as a whole and cut into its chunks.
func snapshotOf(t *testing.T) (whole []byte, chunks [][]byte) {
	t.Helper()
	b := newBench(t)
	s := b.session()
	b.do(create(s, "/e", 1), create(s, "/p", 0))
	var file bytes.Buffer
	snap := b.s.StartSnapshot(Position{Index: 7, Term: 3})
	defer snap.Close()
	must.OK(t, snap.Write(&file, func(read func()) { read() }))
	whole = file.Bytes()
	for rest := whole[len(snapshotMagic):]; len(rest) > 0; {
		n := chunkFrame + int(binary.BigEndian.Uint32(rest[1:]))
		chunks = append(chunks, rest[:n])
		rest = rest[n:]
	}
	must.Equal(t, len(chunks), 4, "chunks")
	return whole, chunks
}

func TestHeadOfASnapshot(t *testing.T) {
	whole, chunks := snapshotOf(t)
	begin := len(snapshotMagic)
	s, _ := must.Get2(ReadSnapshot(bytes.NewReader(whole)))(t)
	expect.Equal(t, must.Get(ReadCluster(bytes.NewReader(whole[:begin+len(chunks[0])])))(t), s.ClusterID())
	at, err := ReadPosition(bytes.NewReader(whole[:begin+len(chunks[0])]))
	expect.OK(t, err)
	expect.Equal(t, at, Position{Index: 7, Term: 3}, "the position that the snapshot says")
	for n := range begin + len(chunks[0]) {
		if at, err := ReadPosition(bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("%d bytes were taken for the beginning: %+v", n, at)
		}
		expect.Fails(t, expect.Err(ReadCluster(bytes.NewReader(whole[:n]))), "%d bytes tell the cluster", n)
	}
	if _, err := ReadPosition(bytes.NewReader(append([]byte(snapshotMagic), chunks[1]...))); err == nil {
		t.Error("sessions were taken for the header")
	}
}

func TestSnapshotOfAnythingElseIsRefused(t *testing.T) {
	whole, chunks := snapshotOf(t)
	_, _, err := ReadSnapshot(bytes.NewReader(whole))
	must.OK(t, err)
	for n := range whole {
		s, _, err := ReadSnapshot(bytes.NewReader(whole[:n]))
		expect.Fails(t, err, "%d of %d bytes", n, len(whole))
		expect.That(t, s == nil, "%d of %d bytes give a state", n, len(whole))
	}
	for i := range snapshotMagic {
		bad := bytes.Clone(whole)
		bad[i] ^= 1
		_, _, err := ReadSnapshot(bytes.NewReader(bad))
		if expect.Fails(t, err, "the first line with another byte %d", i) {
			expect.Has(t, err.Error(), "not a snapshot this program can read", "the first line with another byte %d", i)
		}
	}
	again := func(list ...[]byte) []byte { return append([]byte(snapshotMagic), bytes.Join(list, nil)...) }
	chunk := func(kind byte, payload []byte) []byte {
		var b bytes.Buffer
		(&chunkWriter{w: &b}).chunk(kind, payload)
		return b.Bytes()
	}
	header, sessions, nodes, end := chunks[0], chunks[1], chunks[2], chunks[3]
	none := chunk(chunkSessions, New("test").sessions.Hold().Append(nil))
	for name, file := range map[string][]byte{
		"no header":               again(sessions, nodes, end),
		"no sessions":             again(header, nodes, end),
		"sessions twice":          again(header, sessions, sessions, nodes, end),
		"header behind":           again(sessions, header, nodes, end),
		"end before the sessions": again(header, end),
		"a chunk of nodes lost":   again(header, sessions, end),
		"a chunk of nodes more":   again(header, sessions, nodes, chunk(chunkNodes, nil), end),
		"an end of three bytes":   again(header, sessions, nodes, chunk(chunkEnd, []byte{0, 0, 0})),
		"an unknown kind":         again(header, sessions, chunk(9, nil), nodes, end),
		"bytes behind the header": again(chunk(chunkHeader, append(bytes.Clone(header[chunkFrame:]), 0)), sessions,
			nodes, end),
		"half a header": again(chunk(chunkHeader, header[chunkFrame:len(header)-3]), sessions, nodes, end),
		"half the sessions": again(header, chunk(chunkSessions, sessions[chunkFrame:len(sessions)-3]), nodes,
			end),
		"half the nodes":         again(header, sessions, chunk(chunkNodes, nodes[chunkFrame:len(nodes)-3]), end),
		"a node without session": again(header, none, nodes, end),
	} {
		_, _, err := ReadSnapshot(bytes.NewReader(file))
		expect.Fails(t, err, "%s was taken", name)
	}
	claims := bytes.Clone(header)
	binary.BigEndian.PutUint32(claims[1:], MaxChunk+1)
	_, _, err = ReadSnapshot(bytes.NewReader(again(claims)))
	if expect.Fails(t, err, "a chunk beyond the limit") {
		expect.Has(t, err.Error(), "impossible length")
	}
}

// failing is a writer whose nth write fails, as on a disk that is full for a moment.
type failing struct{ n int }

var errFull = errors.New("full")

func (w *failing) Write(b []byte) (int, error) {
	if w.n--; w.n == 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestSnapshotThatCannotBeWrittenIsNone(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.do(create(s, "/p", 0))
	for n := 1; ; n++ {
		w := &failing{n}
		snap := b.s.StartSnapshot(Position{})
		err := snap.Write(w, func(read func()) { read() })
		snap.Close()
		if w.n > 0 { // the snapshot has fewer than n writes
			expect.OK(t, err, "no write failed")
			expect.That(t, n >= 5, "a snapshot has %d writes, want 5 or more", n)
			return
		}
		expect.Is(t, err, errFull, "write %d fails", n)
	}
}

// Two states have different digests if a session differs in anything.
func TestDigestSeesAllOfASession(t *testing.T) {
	plain := SessionBody{Timeout: 1000, Owner: 1, Addr: "10.0.0.1"}
	seen := map[uint64]string{}
	note := func(name string, s *State) {
		other, ok := seen[s.Digest()]
		expect.That(t, !ok, "%s has the digest of %s", name, other)
		seen[s.Digest()] = name
	}
	opened := func(body SessionBody) *bench {
		b := newBench(t)
		b.do(Request{Op: OpCreateSession, Body: body.Append(nil)})
		return b
	}
	note("no session", newBench(t).s)
	b := opened(plain)
	note("a session", b.s)
	id := b.got.outcomes[0].Session.ID
	b.do(Request{Op: OpAttach, Session: id, Body: plain.Append(nil)})
	note("attached", b.s)
	b.do(Request{Op: OpAttach, Session: id, Body: plain.Append(nil)})
	note("attached again", b.s)
	b.do(Request{Op: jute.OpCloseSession, Session: id})
	note("closed", b.s)
	for i := range plain.Password {
		body := plain
		body.Password[i] = 1
		note(fmt.Sprintf("password byte %d", i), opened(body).s)
	}
	longer := plain
	longer.Timeout++
	note("another timeout", opened(longer).s)
}
