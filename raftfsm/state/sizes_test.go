package state

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
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

// The longest request, and one byte to either side: what is accepted is applied,
// and read back from a snapshot.
func TestLongestRequestIsReadBackFromASnapshot(t *testing.T) {
	ids := []jute.ID{}
	for range MaxIDs {
		ids = append(ids, jute.ID{Scheme: "digest", ID: strings.Repeat("x", MaxIDBytes/MaxIDs-len("digest"))})
	}
	body := createBody("/big", 0)
	overhead := len(body) - len("data")
	for _, off := range []int{-1, 0, 1} {
		b := newBench(t)
		s := b.session()
		data := make([]byte, MaxFrame-overhead+off)
		body := jute.AppendBuffer(jute.AppendString(nil, "/big"), data)
		body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), 0)
		r := Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, IDs: ids, Body: body}
		if got, want := r.size(), len(r.Append(nil)); got != want {
			t.Fatalf("size %d, encoded %d", got, want)
		}
		err := r.Check()
		if off > 0 {
			if err == nil {
				t.Errorf("%+d: accepted, %d bytes of %d", off, r.size(), MaxRequest)
			}
			continue
		}
		expect.OK(t, err, "%+d", off)
		must.Equal(t, b.do(r)[0].Code, jute.OK, "%+d", off)
		file, err := snapshotBytes(t, b.s)
		must.OK(t, err)
		restored, _, err := ReadSnapshot(bytes.NewReader(file))
		must.OK(t, err, "%+d", off)
		if info, ok := restored.Tree().Get("/big"); !ok || len(info.Data) != len(data) {
			t.Errorf("%+d: %d bytes came back of %d", off, len(info.Data), len(data))
		}
	}
}

// Sessions fill one chunk, and one byte more: then there are two.
func TestSessionsOfAnyNumberAreReadBack(t *testing.T) {
	empty := len(New("c").sessions.Append(nil))
	const fixed = 8 + 16 + 4 + 4 + 4 + 4 + 8 // of a session, without its address
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
		must.Equal(t, len(s.sessions.Append(nil)), sessionsChunk+off, "bytes of sessions")
		file, err := snapshotBytes(t, s)
		must.OK(t, err)
		restored, _, err := ReadSnapshot(bytes.NewReader(file))
		if err != nil {
			t.Errorf("%+d: %v", off, err)
			continue
		}
		expect.List(t, restored.sessions.Append(nil), s.sessions.Append(nil),
			"%+d: other sessions came back", off)
		expect.OK(t, CheckSnapshot(bytes.NewReader(file)), "%+d", off)
	}
}

func TestChunkThatCannotBeReadIsNotWritten(t *testing.T) {
	for _, off := range []int{-1, 0, 1} {
		var file bytes.Buffer
		w := &chunkWriter{w: &file}
		w.raw([]byte(snapshotMagic))
		w.chunk(chunkNodes, make([]byte, MaxChunk+off))
		expect.Equal(t, w.err != nil, off > 0, "%+d: %v", off, w.err)
		if w.err != nil {
			continue
		}
		r := must.Get(openChunks(&file))(t)
		if _, payload, err := r.next(); err != nil || len(payload) != MaxChunk+off {
			t.Errorf("%+d: %d bytes, %v", off, len(payload), err)
		}
	}
}

// What comes from elsewhere and is taken must go into the server's own snapshots,
// whatever stands in front of it there. Nothing is longer than a request at home.
func TestLongNodeFromElsewhereIsSnapshotted(t *testing.T) {
	if testing.Short() {
		t.Skip("some 64 MiB, several times")
	}
	data := make([]byte, MaxChunk)
	for _, long := range []int{MaxFrame, MaxChunk - 512<<10, MaxChunk - 2000} {
		paths := []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
		for i := range 15 { // with those before a chunk as it is written here; a server puts more into one
			paths = append(paths, fmt.Sprintf("/a%02d", i))
		}
		paths = append(paths, "/big")
		a := Adopted{Cluster: "c", Count: len(paths), Zxid: 1, Nodes: func(yield func(string, *tree.Info) bool) {
			for _, p := range paths {
				n := 7000
				if p == "/big" {
					n = long
				}
				if !yield(p, &tree.Info{Data: data[:n], ACL: jute.WorldAnyone}) {
					return
				}
			}
		}}
		var file bytes.Buffer
		if err := a.WriteSnapshot(&file); err != nil {
			expect.That(t, long > MaxFrame, "%d bytes: %v", long, err)
			continue
		}
		s, _, err := ReadSnapshot(&file)
		must.OK(t, err, "%d bytes", long)
		expect.OK(t, expect.Err(snapshotBytes(t, s)), "%d bytes were taken, and then", long)
	}
}
