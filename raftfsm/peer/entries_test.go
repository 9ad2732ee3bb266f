package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func randomRequest(rnd *rand.Rand) *raft.AppendEntriesRequest {
	some := func() []byte {
		switch n := rnd.IntN(40); n {
		case 0:
			return nil
		default:
			return bytes.Repeat([]byte{byte(n)}, n-1)
		}
	}
	r := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: some(), Addr: some()},
		Leader: some(), Term: rnd.Uint64(), PrevLogEntry: rnd.Uint64(), PrevLogTerm: rnd.Uint64(), LeaderCommitIndex: rnd.Uint64()} //nolint:staticcheck // what raft 1.7 itself still sends
	for range rnd.IntN(4) {
		e := &raft.Log{Index: rnd.Uint64(), Term: rnd.Uint64(), Type: raft.LogType(rnd.IntN(6)), Data: some(), Extensions: some()}
		if rnd.IntN(2) == 0 {
			e.AppendedAt = time.Unix(0, rnd.Int64())
		}
		r.Entries = append(r.Entries, e)
	}
	return r
}

// What is read is what was written, field by field, whatever raft's structures
// come to hold.
func TestEntriesAreReadAsTheyWereWritten(t *testing.T) {
	if n := reflect.TypeFor[raft.AppendEntriesRequest]().NumField(); n != 7 {
		t.Errorf("a request has %d fields: is there one that is not sent?", n)
	}
	if n := reflect.TypeFor[raft.RPCHeader]().NumField(); n != 3 {
		t.Errorf("a header has %d fields", n)
	}
	if n := reflect.TypeFor[raft.Log]().NumField(); n != 6 {
		t.Errorf("an entry has %d fields", n)
	}
	if n := reflect.TypeFor[raft.AppendEntriesResponse]().NumField(); n != 5 {
		t.Errorf("an answer has %d fields", n)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		want := randomRequest(rnd)
		b := appendRequest([]byte("before"), want)[len("before"):]
		if int(binary.BigEndian.Uint32(b)) != len(b)-4 {
			t.Fatalf("%d bytes say that they are %d", len(b), binary.BigEndian.Uint32(b))
		}
		got, err := parseRequest(b[4:])
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v instead of %+v", got, err, want)
		}
		if got, err := parseRequest(b[4 : 4+rnd.IntN(len(b)-4)]); err == nil {
			t.Fatalf("a part is taken for %+v", got)
		}
		if got, err := parseRequest(append(bytes.Clone(b[4:]), 0)); err == nil {
			t.Fatalf("more is taken for %+v", got)
		}
	}
}

func TestAnswersAreReadAsTheyWereWritten(t *testing.T) {
	for _, c := range []struct {
		r   raft.AppendEntriesResponse
		why string
	}{
		{raft.AppendEntriesResponse{}, ""}, {raft.AppendEntriesResponse{Term: 1 << 60, LastLog: 7, Success: true}, ""},
		{raft.AppendEntriesResponse{Term: 3, NoRetryBackoff: true}, "the disk is gone"},
	} {
		b := appendAnswer(nil, &c.r, c.why)
		var got raft.AppendEntriesResponse
		if why, err := parseAnswer(b[4:], &got); err != nil || why != c.why || !reflect.DeepEqual(got, c.r) {
			t.Errorf("%+v %q, %v instead of %+v", got, why, err, c)
		}
		for n := range len(b) - 4 {
			if _, err := parseAnswer(b[4:4+n], &got); err == nil {
				t.Errorf("%d of %d bytes are taken for an answer", n, len(b)-4)
			}
		}
	}
	long := appendAnswer(nil, &raft.AppendEntriesResponse{}, string(make([]byte, 1<<20)))
	if b, err := readFrame(bufio.NewReader(bytes.NewReader(long)), maxAnswer, nil); err != nil {
		t.Errorf("a long reason: %d bytes, %v", len(b), err)
	}
}

// A length that is claimed takes no memory before the bytes are there, one that
// is too long none at all, and what ends in the middle is an error.
func TestFramesTakeMemoryAsBytesArrive(t *testing.T) {
	claim := binary.BigEndian.AppendUint32(nil, maxEntries)
	n := testing.AllocsPerRun(1, func() {
		b, err := readFrame(bufio.NewReader(bytes.NewReader(append(claim, make([]byte, 100)...))), maxEntries, nil)
		if !errors.Is(err, io.ErrUnexpectedEOF) || cap(b) > 2<<20 {
			t.Errorf("%d bytes, %v", cap(b), err)
		}
	})
	if n > 20 {
		t.Errorf("%v allocations", n)
	}
	if _, err := readFrame(bufio.NewReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, maxEntries+1))), maxEntries, nil); !errors.Is(err, errCoding) {
		t.Errorf("a message longer than any: %v", err)
	}
	if _, err := readFrame(bufio.NewReader(bytes.NewReader(nil)), maxEntries, nil); err != io.EOF {
		t.Errorf("the end between two messages: %v", err)
	}
	for _, size := range []int{0, 1, 1 << 20, 3<<20 + 5} {
		want := bytes.Repeat([]byte{7}, size)
		for _, buf := range [][]byte{nil, make([]byte, 10), make([]byte, 5<<20)} {
			got, err := readFrame(bufio.NewReader(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, uint32(size)), want...))), maxEntries, buf)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: %d, %v", size, len(got), err)
			}
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 10 {
		f.Add(appendRequest(nil, randomRequest(rnd))[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			return
		}
		again, err := parseRequest(appendRequest(nil, r)[4:])
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v, %v instead of %+v", again, err, r)
		}
	})
}
