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
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// samples are messages of each kind with random content.
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
	r := &raft.AppendEntriesRequest{RPCHeader: head(), Leader: some(), //nolint:staticcheck // what raft 1.7 itself still sends
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
		&raft.RequestVoteRequest{RPCHeader: head(), Term: rnd.Uint64(), Candidate: some(), //nolint:staticcheck // as above
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

// A message is read back as written, field by field, even if raft's structures get new fields. Nothing else
// is accepted as a message.
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
		expect.Equal(t, n, kind, "%v has %d fields, not %d: is there one that", fields, n, kind)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		requests, answers := samples(rnd)
		for i, want := range requests {
			b := appendRequest([]byte("before"), want)[len("before"):]
			must.Equal(t, int(binary.BigEndian.Uint32(b)), len(b)-4,
				"%d bytes say that they are %d", len(b), binary.BigEndian.Uint32(b))
			got, err := parseRequest(b[4:])
			must.OK(t, err, "%+v, %v instead of %+v", got, err, want)
			must.That(t, reflect.DeepEqual(got, want),
				"%+v, %v instead of %+v: want reflect.DeepEqual(got, want)", got, err, want)
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
				must.Equal(t, said, why, "said")
				must.That(t, reflect.DeepEqual(got, answers[i]),
					"want reflect.DeepEqual(got, answers[i])")
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

// A claimed length takes memory only as the bytes arrive, and a length beyond the limit takes none. A message
// that ends in the middle is an error.
func TestFramesTakeMemoryAsBytesArrive(t *testing.T) {
	claim := binary.BigEndian.AppendUint32(nil, maxRequest)
	n := testing.AllocsPerRun(20, func() { // what other goroutines allocate is little of so many
		b, err := readFrame(bufio.NewReader(bytes.NewReader(append(claim, make([]byte, 100)...))), maxRequest, nil)
		expect.Is(t, err, io.ErrUnexpectedEOF, "%d bytes, %v", cap(b), err)
		expect.That(t, cap(b) <= 2<<20, "%d bytes, %v: want cap(b) <= 2<<20", cap(b), err)
	})
	expect.That(t, n <= 20, "%v allocations", n)
	if _, err := readFrame(bufio.NewReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, maxRequest+1))),
		maxRequest, nil); !errors.Is(err, errCoding) {
		t.Errorf("a message longer than any: %v", err)
	}
	expect.Equal(t, expect.Err(readFrame(bufio.NewReader(bytes.NewReader(nil)), maxRequest, nil)), io.EOF,
		"the end between two messages")
	for _, size := range []int{0, 1, 1 << 20, 3<<20 + 5} {
		want := bytes.Repeat([]byte{7}, size)
		for _, buf := range [][]byte{nil, make([]byte, 10), make([]byte, 5<<20)} {
			got, err := readFrame(
				bufio.NewReader(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, uint32(size)), want...))),
				maxRequest, buf)
			if expect.OK(t, err, "%d bytes", size) {
				expect.That(t, bytes.Equal(got, want),
					"%d bytes: %d, %v: want bytes.Equal(got, want)", size, len(got), err)
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
	f.Fuzz(func(t *testing.T, b []byte) { // without the checksum, which nothing random has
		b = append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, crcTable)), b...)
		r, err := parseRequest(b)
		if err != nil {
			return
		}
		again, err := parseRequest(appendRequest(nil, r)[4:])
		if expect.OK(t, err, "%+v, %v instead of %+v", again, err, r) {
			expect.That(t, reflect.DeepEqual(again, r),
				"%+v, %v instead of %+v: want reflect.DeepEqual(again, r)", again, err, r)
		}
	})
}

// Raft hands one request to several goroutines, one for each server. The race detector
// finds a coder that writes to it.
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

// What comes over a link is whole, or it is an error.

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
	expect.That(t, err == nil && typ == LinkBlock && string(payload) == "payload",
		"read back as %d %q, %v", typ, payload, err)
	huge := binary.BigEndian.AppendUint32([]byte{LinkBlock}, MaxMessage+1)
	if _, _, err := ReadMessage(bufio.NewReader(bytes.NewReader(huge))); err == nil ||
		!strings.Contains(err.Error(), "message of") {
		t.Errorf("a message larger than any: %v", err)
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
		expect.Equal(t, n >= 16 && (n-16)%12 == 0, err == nil,
			"touches of %d bytes: %+v, %v", n, got, err)
	}
	got, err := ParseTouches(whole)
	if expect.OK(t, err, "read back as %+v, %v", got, err) {
		expect.Equal(t, got.Number, 5, "read back as %+v, %v: got.Number", got, err)
		expect.Equal(t, got.Applied, 6, "read back as %+v, %v: got.Applied", got, err)
		if expect.Equal(t, len(got.Heard), 2, "read back as %+v, %v: len(got.Heard)", got, err) {
			expect.Equal(t, got.Heard[0], touches.Heard[0],
				"read back as %+v, %v: got.Heard[0]", got, err)
			expect.Equal(t, got.Heard[1], touches.Heard[1],
				"read back as %+v, %v: got.Heard[1]", got, err)
		}
	}
	ack := Touches{Number: 3, Applied: 4}
	got, err = ParseTouches(ack.Append(nil))
	if expect.OK(t, err, "an ack is read back as %+v, %v", got, err) {
		expect.Equal(t, got.Number, 3, "an ack is read back as %+v, %v: got.Number", got, err)
		expect.Equal(t, got.Applied, 4,
			"an ack is read back as %+v, %v: got.Applied", got, err)
		expect.Equal(t, len(got.Heard), 0,
			"an ack is read back as %+v, %v: len(got.Heard)", got, err)
	}
}

func TestAnswersAndQuestionsCutShortAreErrors(t *testing.T) {
	var b bytes.Buffer
	must.OK(t, writeAnswer(&b, errors.New("not now")))
	refusal := b.Bytes()
	for n := range refusal {
		if err := readAnswer(bytes.NewReader(refusal[:n])); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("%d of %d bytes of a refusal: %v", n, len(refusal), err)
		}
	}
	if err := readAnswer(bytes.NewReader(refusal)); !errors.Is(err, ErrRefused) ||
		!strings.Contains(err.Error(), "not now") {
		t.Errorf("a refusal: %v", err)
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
	err := readJSON(bytes.NewReader(whole), &g)
	if expect.OK(t, err, "a greeting") {
		expect.Equal(t, g.From, 7, "a greeting: g.From")
	}
	if err := readJSON(bytes.NewReader([]byte{0, 16, 0, 1}), &g); err == nil ||
		!strings.Contains(err.Error(), "message of") {
		t.Errorf("a greeting larger than any: %v", err)
	}
}

// The longest block passes a link; a block too long for the reader is not sent.
func TestLongestBlockPassesALink(t *testing.T) {
	for _, off := range []int{-1, 0, 1} {
		bl := state.Block{Origin: 1, Birth: 1, First: 1, Requests: make([]byte, state.MaxRequest+off)}
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
