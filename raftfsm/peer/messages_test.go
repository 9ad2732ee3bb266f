package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// samples returns messages of each kind with random content.
func samples(rnd *rand.Rand) (requests, answers []any) {
	some := func() []byte {
		switch n := rnd.IntN(40); n {
		case 0:
			return nil
		default:
			return bytes.Repeat([]byte{byte(n)}, n-1)
		}
	}
	head := func() raft.RPCHeader {
		return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: some(), Addr: some()}
	}
	yes := func() bool { return rnd.IntN(2) == 0 }
	r := &raft.AppendEntriesRequest{RPCHeader: head(), Leader: some(), //nolint:staticcheck // raft 1.7 itself sends it
		Term: rnd.Uint64(), PrevLogEntry: rnd.Uint64(), PrevLogTerm: rnd.Uint64(), LeaderCommitIndex: rnd.Uint64()}
	for range rnd.IntN(4) {
		e := &raft.Log{Index: rnd.Uint64(), Term: rnd.Uint64(), Type: raft.LogType(rnd.IntN(6)), Data: some(),
			Extensions: some()}
		if yes() {
			e.AppendedAt = time.Unix(0, rnd.Int64())
		}
		r.Entries = append(r.Entries, e)
	}
	requests = []any{r,
		&raft.RequestVoteRequest{RPCHeader: head(), Term: rnd.Uint64(), Candidate: some(), //nolint:staticcheck // raft 1.7 sends it
			LastLogIndex: rnd.Uint64(), LastLogTerm: rnd.Uint64(), LeadershipTransfer: yes()},
		&raft.RequestPreVoteRequest{RPCHeader: head(), Term: rnd.Uint64(), LastLogIndex: rnd.Uint64(),
			LastLogTerm: rnd.Uint64()},
		&timeoutNow{raft.TimeoutNowRequest{RPCHeader: head()}, rnd.Uint64()},
		&raft.InstallSnapshotRequest{RPCHeader: head(), SnapshotVersion: 1, Term: rnd.Uint64(), Leader: some(),
			LastLogIndex: rnd.Uint64(),
			LastLogTerm:  rnd.Uint64(), Peers: some(), Configuration: some(), ConfigurationIndex: rnd.Uint64(),
			Size: rnd.Int64()}}
	answers = []any{&raft.AppendEntriesResponse{Term: rnd.Uint64(), LastLog: rnd.Uint64(), Success: yes(),
		NoRetryBackoff: yes()},
		&raft.RequestVoteResponse{Term: rnd.Uint64(), Granted: yes()}, &raft.RequestPreVoteResponse{
			Term: rnd.Uint64(), Granted: yes()},
		&raft.TimeoutNowResponse{}, &raft.InstallSnapshotResponse{Term: rnd.Uint64(), Success: yes()}}
	return requests, answers
}

// A message is read back equal in every field. The test fails if raft adds a field. A changed or shortened
// message is refused.
func TestMessagesAreReadAsTheyWereWritten(t *testing.T) {
	for fields, kind := range map[reflect.Type]int{
		reflect.TypeFor[raft.RPCHeader](): 3, reflect.TypeFor[raft.Log](): 6,
		reflect.TypeFor[raft.AppendEntriesRequest](): 7, reflect.TypeFor[raft.AppendEntriesResponse](): 5,
		reflect.TypeFor[raft.RequestVoteRequest](): 6, reflect.TypeFor[raft.RequestVoteResponse](): 4,
		reflect.TypeFor[raft.RequestPreVoteRequest](): 4, reflect.TypeFor[raft.RequestPreVoteResponse](): 3,
		reflect.TypeFor[raft.TimeoutNowRequest](): 1, reflect.TypeFor[raft.TimeoutNowResponse](): 1,
		reflect.TypeFor[raft.InstallSnapshotRequest](): 10, reflect.TypeFor[raft.InstallSnapshotResponse](): 3,
	} {
		n := fields.NumField()
		expect.Equal(t, n, kind, "fields of %v; does the coder write a new one?", fields)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		requests, answers := samples(rnd)
		for i, want := range requests {
			b := appendRequest([]byte("before"), want)[len("before"):]
			must.Equal(t, int(binary.BigEndian.Uint32(b)), len(b)-4,
				"the length in a message of %d bytes", len(b))
			got, err := parseRequest(b[4:])
			must.OK(t, err, "%+v is not read back", want)
			must.That(t, reflect.DeepEqual(got, want), "%+v is read back as %+v", want, got)
			if got, err := parseRequest(b[4 : 4+rnd.IntN(len(b)-4)]); err == nil {
				t.Fatalf("a part is taken for %+v", got)
			}
			if got, err := parseRequest(append(bytes.Clone(b[4:]), 0)); err == nil {
				t.Fatalf("more is taken for %+v", got)
			}
			flipped := bytes.Clone(b[4:])
			flipped[rnd.IntN(len(flipped))] ^= 1 << rnd.IntN(8)
			if got, err := parseRequest(flipped); err == nil {
				t.Fatalf("a flipped bit makes it %+v", got)
			}
			for _, why := range []string{"", "the disk is gone"} {
				b := appendAnswer(nil, answers[i], why)
				got := reflect.New(reflect.TypeOf(answers[i]).Elem()).Interface()
				said := must.Get(parseAnswer(b[4:], got))(t)
				must.Equal(t, said, why, "the error in an answer")
				must.That(t, reflect.DeepEqual(got, answers[i]), "the answer %+v is read back as %+v", answers[i], got)
				other := reflect.New(reflect.TypeOf(answers[(i+1)%len(answers)]).Elem()).Interface()
				if _, err := parseAnswer(b[4:], other); err == nil {
					t.Fatalf("%+v is taken for %+v", answers[i], other)
				}
			}
		}
	}
	long := appendAnswer(nil, &raft.AppendEntriesResponse{}, string(make([]byte, 1<<20)))
	if b, err := readFrame(bufio.NewReader(bytes.NewReader(long)), maxAnswer, nil); err != nil {
		t.Errorf("a long reason: %d bytes, %v", len(b), err)
	}
}

// A message takes memory only as its bytes arrive, however long it claims to be. A length beyond the limit,
// and a message that ends early, are errors.
func TestFramesTakeMemoryAsBytesArrive(t *testing.T) {
	claim := binary.BigEndian.AppendUint32(nil, maxRequest)
	n := testing.AllocsPerRun(20, func() { // many runs, so that allocations of other goroutines count little
		b, err := readFrame(bufio.NewReader(bytes.NewReader(append(claim, make([]byte, 100)...))), maxRequest, nil)
		expect.Is(t, err, io.ErrUnexpectedEOF, "a message that ends early")
		expect.That(t, cap(b) <= 2<<20, "a claim takes %d bytes, want at most %d", cap(b), 2<<20)
	})
	expect.That(t, n <= 20, "%v allocations", n)
	_, err := readFrame(bufio.NewReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, maxRequest+1))),
		maxRequest, nil)
	expect.Is(t, err, errCoding, "a length beyond the limit")
	expect.Equal(t, expect.Err(readFrame(bufio.NewReader(bytes.NewReader(nil)), maxRequest, nil)), io.EOF,
		"the end between two messages")
	for _, size := range []int{0, 1, 1 << 20, 3<<20 + 5} {
		want := bytes.Repeat([]byte{7}, size)
		for _, buf := range [][]byte{nil, make([]byte, 10), make([]byte, 5<<20)} {
			got, err := readFrame(
				bufio.NewReader(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, uint32(size)), want...))),
				maxRequest, buf)
			if expect.OK(t, err, "%d bytes", size) {
				expect.That(t, bytes.Equal(got, want), "%d bytes are read back as %d, or as others", size, len(got))
			}
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 10 {
		requests, _ := samples(rnd)
		for _, r := range requests {
			f.Add(appendRequest(nil, r)[4+4:])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { // b lacks the checksum, which random bytes never match
		b = append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, crcTable)), b...)
		r, err := parseRequest(b)
		if err != nil {
			return
		}
		again, err := parseRequest(appendRequest(nil, r)[4:])
		if expect.OK(t, err, "%+v is not read back", r) {
			expect.That(t, reflect.DeepEqual(again, r), "%+v is read back as %+v", r, again)
		}
	})
}

// Raft passes one request to several goroutines, one for each server. The coder must not write to it: the
// race detector would report that.
func TestOneRequestGoesToSeveralServersAtOnce(t *testing.T) {
	head := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("1"), Addr: []byte("a:1")}
	for _, request := range []any{
		&raft.RequestVoteRequest{RPCHeader: head, Term: 2}, &raft.RequestPreVoteRequest{RPCHeader: head, Term: 2},
		&raft.InstallSnapshotRequest{RPCHeader: head, SnapshotVersion: 1, Size: 5},
	} {
		want := appendRequest(nil, request)
		done := make(chan []byte)
		for range 2 {
			go func() { done <- appendRequest(nil, request) }()
		}
		for range 2 {
			expect.List(t, <-done, want, "%T", request)
		}
	}
}

// A message on a link is an error if it lacks bytes or is too long.
func TestMessagesCutShortAreErrors(t *testing.T) {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	must.OK(t, errors.Join(WriteMessage(w, LinkBlock, []byte("payload")), w.Flush()))
	whole := b.Bytes()
	for n := range whole {
		if _, _, err := ReadMessage(bufio.NewReader(bytes.NewReader(whole[:n]))); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(whole))
		}
	}
	typ, payload, err := ReadMessage(bufio.NewReader(bytes.NewReader(whole)))
	expect.OK(t, err)
	expect.Equal(t, typ, LinkBlock, "the type of the message read back")
	expect.Equal(t, string(payload), "payload", "the content read back")
	huge := binary.BigEndian.AppendUint32([]byte{LinkBlock}, MaxMessage+1)
	_, _, err = ReadMessage(bufio.NewReader(bytes.NewReader(huge)))
	if expect.Fails(t, err, "a message beyond the limit") {
		expect.Has(t, err.Error(), "message of")
	}
	full := bufio.NewWriterSize(refusing{}, 16)
	expect.Fails(t, errors.Join(WriteMessage(full, LinkBlock, make([]byte, 100))),
		"a message that could not be written")
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errors.New("no") }

func TestTouchesAndAcksHaveTheirLength(t *testing.T) {
	touches := Touches{Number: 5, Applied: 6, Heard: []state.Touch{{Session: 7, Age: 8}, {Session: -9, Age: 10}}}
	whole := touches.Append(nil)
	for n := range len(whole) + 13 {
		b := append(bytes.Clone(whole), make([]byte, 13)...)[:n]
		got, err := ParseTouches(b)
		expect.Equal(t, err == nil, n >= 16 && (n-16)%12 == 0, "touches of %d bytes are accepted: %+v, %v", n, got, err)
	}
	got, err := ParseTouches(whole)
	if expect.OK(t, err, "touches") {
		expect.Equal(t, got.Number, 5, "number of the touches")
		expect.Equal(t, got.Applied, 6, "the entry applied, in the touches")
		expect.List(t, got.Heard, touches.Heard, "sessions in the touches")
	}
	ack := Touches{Number: 3, Applied: 4}
	got, err = ParseTouches(ack.Append(nil))
	if expect.OK(t, err, "an acknowledgement") {
		expect.Equal(t, got.Number, 3, "number of the acknowledgement")
		expect.Equal(t, got.Applied, 4, "the entry applied, in the acknowledgement")
		expect.Equal(t, len(got.Heard), 0, "sessions in the acknowledgement")
	}
}

func TestAnswersAndQuestionsCutShortAreErrors(t *testing.T) {
	var b bytes.Buffer
	must.OK(t, writeAnswer(&b, errors.New("not now")))
	refusal := b.Bytes()
	for n := range refusal {
		err := readAnswer(bytes.NewReader(refusal[:n]))
		expect.Fails(t, err, "%d of %d bytes of a refusal", n, len(refusal))
		expect.That(t, !errors.Is(err, ErrRefused), "%d of %d bytes count as a refusal", n, len(refusal))
	}
	err := readAnswer(bytes.NewReader(refusal))
	if expect.Is(t, err, ErrRefused) {
		expect.Has(t, err.Error(), "not now")
	}
	expect.OK(t, readAnswer(bytes.NewReader([]byte{0})), "consent")
	b.Reset()
	must.OK(t, writeJSON(&b, &Greeting{From: 7}))
	whole := b.Bytes()
	for n := range whole {
		var g Greeting
		expect.Fails(t, readJSON(bytes.NewReader(whole[:n]), &g),
			"%d of %d bytes of a greeting were taken", n, len(whole))
	}
	var g Greeting
	err = readJSON(bytes.NewReader(whole), &g)
	if expect.OK(t, err, "a greeting") {
		expect.Equal(t, g.From, 7, "sender of the greeting")
	}
	err = readJSON(bytes.NewReader([]byte{0, 16, 0, 1}), &g)
	if expect.Fails(t, err, "a greeting beyond the limit") {
		expect.Has(t, err.Error(), "message of")
	}
}

// The longest block passes a link. WriteMessage refuses a block too long for the reader.
func TestLongestBlockPassesALink(t *testing.T) {
	for _, off := range []int{-1, 0, 1} {
		bl := entries.Block{Origin: 1, Birth: 1, First: 1, Requests: make([]byte, entries.MaxRequest+off)}
		payload := bl.Append(nil)
		var wire bytes.Buffer
		w := bufio.NewWriter(&wire)
		err := WriteMessage(w, LinkBlock, payload)
		expect.Equal(t, err != nil, off > 0, "%+d: %v", off, err)
		if err != nil {
			continue
		}
		must.OK(t, w.Flush())
		typ, got, err := ReadMessage(bufio.NewReader(&wire))
		if expect.OK(t, err, "%+d", off) {
			expect.Equal(t, typ, LinkBlock, "%+d: typ", off)
			expect.That(t, bytes.Equal(got, payload),
				"%+d: type %d, %d bytes, %v: want bytes.Equal(got, payload)", off, typ, len(got), err)
		}
	}
}
