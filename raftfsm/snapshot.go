package raftfsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// A snapshot is a stream of chunks behind a magic line:
//
//	snapshot := magic · chunk* · end chunk
//	chunk    := kind u8 · length u32 · crc32c u32 · payload
//
// Chunks come in the order header, sessions, nodes…, end. The end chunk holds
// the number of chunks before it, so a stream cut at a chunk's edge is noticed.
const snapshotMagic = "zlockd snapshot 1\n"

const (
	chunkHeader   byte = 1
	chunkSessions byte = 2
	chunkNodes    byte = 3
	chunkEnd      byte = 4

	chunkFrame = 9
	chunkMax   = 64 << 20

	// nodesPerLock bounds how long the walker holds the read lock, and with
	// it how long a writer can be kept waiting.
	nodesPerLock = 64
	chunkBytes   = 128 << 10
)

// position is a place in the raft log.
type position struct{ index, term uint64 }

// Snapshot implements raft.FSM. It only notes where the state stands; the
// nodes are read later, while writes go on.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.dead.Load() {
		return nil, errors.New("this server has stopped")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	snap := &fsmSnapshot{f: f, nodes: s.tree.StartSnapshot(), zxid: s.zxid}
	snap.header = s.appendHeader(nil, position{f.index.Load(), f.term.Load()})
	snap.sessions = s.sessions.Append(nil)
	snap.counted.requests.Store(f.counted.requests.Load())
	snap.counted.bytes.Store(f.counted.bytes.Load())
	return snap, nil
}

func (s *State) appendHeader(b []byte, at position) []byte {
	b = jute.AppendString(b, s.clusterID)
	b = jute.AppendLong(b, int64(at.index))
	b = jute.AppendLong(b, int64(at.term))
	b = jute.AppendLong(b, s.zxid)
	b = jute.AppendLong(b, int64(s.ended))
	b = jute.AppendInt(b, int32(len(s.streams)))
	for _, id := range slices.Sorted(maps.Keys(s.streams)) {
		m := s.streams[id]
		b = jute.AppendInt(b, int32(id))
		b = jute.AppendInt(b, int32(m.birth))
		b = jute.AppendLong(b, m.nonce)
		b = jute.AppendLong(b, int64(m.last))
	}
	members := s.Members()
	b = jute.AppendInt(b, int32(len(members)))
	for i := range members {
		b = members[i].append(b)
	}
	return b
}

func (s *State) loadHeader(payload []byte) (at position, err error) {
	d := jute.NewDecoder(payload)
	id, _ := d.String()
	s.clusterID = string([]byte(id))
	at = position{uint64(d.Long()), uint64(d.Long())}
	s.zxid = d.Long()
	s.ended = uint64(d.Long())
	s.streams = map[uint32]streamMark{}
	for range d.Count(24) {
		id := uint32(d.Int())
		s.streams[id] = streamMark{birth: uint32(d.Int()), nonce: d.Long(), last: uint64(d.Long())}
	}
	s.members = map[uint32]Member{}
	for range d.Count(16) {
		m := decodeMember(&d)
		s.members[m.ID] = m
	}
	if d.Err() == nil && len(d.Rest()) > 0 {
		return at, errors.New("bytes behind the header")
	}
	return at, d.Err()
}

// fsmSnapshot is a point in time of the state, being written.
type fsmSnapshot struct {
	f        *fsm
	header   []byte
	sessions []byte
	nodes    *tree.Snapshot
	zxid     int64
	counted  snapshotCounters
}

// Persist implements raft.FSMSnapshot.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, ok := sink.(forgetSink); ok {
		s.settle()
		return sink.Close()
	}
	w := &chunkWriter{w: sink}
	w.raw([]byte(snapshotMagic))
	w.chunk(chunkHeader, s.header)
	w.chunk(chunkSessions, s.sessions)
	var buf []byte
	for done := false; !done && w.err == nil; {
		buf = buf[:0]
		for !done && len(buf) < chunkBytes {
			s.f.mu.RLock()
			buf, done = s.nodes.Append(buf, nodesPerLock)
			s.f.mu.RUnlock()
		}
		w.chunk(chunkNodes, buf)
	}
	w.chunk(chunkEnd, binary.BigEndian.AppendUint32(nil, w.chunks))
	if w.err != nil {
		return fmt.Errorf("write snapshot: %w", w.err)
	}
	s.settle()
	return sink.Close()
}

// settle takes what the snapshot covers off the count of what is not covered.
func (s *fsmSnapshot) settle() {
	s.f.counted.requests.Add(-s.counted.requests.Load())
	s.f.counted.bytes.Add(-s.counted.bytes.Load())
}

// Release implements raft.FSMSnapshot.
func (s *fsmSnapshot) Release() {
	s.f.mu.Lock()
	s.nodes.Close()
	s.f.mu.Unlock()
}

// chunkWriter frames chunks; the first error sticks.
type chunkWriter struct {
	w      io.Writer
	chunks uint32
	err    error
}

func (w *chunkWriter) raw(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

func (w *chunkWriter) chunk(kind byte, payload []byte) {
	var head [chunkFrame]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	binary.BigEndian.PutUint32(head[5:], chunkSum(kind, payload))
	w.raw(head[:])
	w.raw(payload)
	w.chunks++
}

func chunkSum(kind byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, crcTable), crcTable, payload)
}

// chunkReader reads chunks back and verifies them.
type chunkReader struct {
	r      *bufio.Reader
	buf    []byte
	chunks uint32
}

func (r *chunkReader) next() (kind byte, payload []byte, err error) {
	var head [chunkFrame]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("snapshot ends in chunk %d: %w", r.chunks, err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > chunkMax {
		return 0, nil, fmt.Errorf("snapshot chunk %d claims %d bytes", r.chunks, n)
	}
	r.buf = slices.Grow(r.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return 0, nil, fmt.Errorf("snapshot ends in chunk %d: %w", r.chunks, err)
	}
	if chunkSum(head[0], r.buf) != binary.BigEndian.Uint32(head[5:]) {
		return 0, nil, fmt.Errorf("snapshot chunk %d is damaged (checksum)", r.chunks)
	}
	r.chunks++
	return head[0], r.buf, nil
}

// readSnapshot reads and verifies a whole snapshot.
func readSnapshot(from io.Reader) (*State, position, error) {
	r := &chunkReader{r: bufio.NewReaderSize(from, 256<<10)}
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != snapshotMagic {
		return nil, position{}, errors.New("not a snapshot this program can read")
	}
	s := &State{sessions: session.NewTable(0)}
	nodes := tree.NewLoader()
	var at position
	want := chunkHeader
	for {
		kind, payload, err := r.next()
		if err != nil {
			return nil, at, err
		}
		switch {
		case kind == chunkHeader && want == chunkHeader:
			at, err = s.loadHeader(payload)
			want = chunkSessions
		case kind == chunkSessions && want == chunkSessions:
			d := jute.NewDecoder(payload)
			err = s.sessions.Load(&d)
			want = chunkNodes
		case kind == chunkNodes && want == chunkNodes:
			err = nodes.Add(payload)
		case kind == chunkEnd && want == chunkNodes:
			if len(payload) != 4 || binary.BigEndian.Uint32(payload) != r.chunks-1 {
				return nil, at, errors.New("snapshot has lost chunks")
			}
			s.tree, err = nodes.Finish()
			if err == nil {
				info, _ := s.tree.Get("/zookeeper/config")
				s.configured = len(info.Data) > 0
				err = s.verify()
			}
			return s, at, err
		default:
			err = fmt.Errorf("chunk of kind %d is out of place", kind)
		}
		if err != nil {
			return nil, at, fmt.Errorf("snapshot chunk %d: %w", r.chunks-1, err)
		}
	}
}

// verify checks what must hold between the parts: an ephemeral without its
// session would never go away.
func (s *State) verify() error {
	for id := range s.tree.Ephemerals() {
		if _, ok := s.sessions.Get(id); !ok {
			return fmt.Errorf("node of session 0x%x, which does not exist", id)
		}
	}
	return nil
}
