package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// A snapshot is a stream of chunks after a magic line:
//
//	snapshot := magic · chunk* · end chunk
//	chunk    := kind u8 · length u32 · crc32c u32 · payload
//
// Chunks come in the order header, sessions, more sessions…, tickets, nodes…, end. The end chunk holds the
// number of chunks before it, so that a reader notices a stream cut at a chunk's edge. No chunk is
// longer than MaxChunk.
const snapshotMagic = "zlockd snapshot 1\n"

const (
	chunkHeader   byte = 1
	chunkSessions byte = 2
	chunkNodes    byte = 3
	chunkEnd      byte = 4
	chunkMore     byte = 5 // contains more sessions
	// says which sessions are tickets, and has the rates; if it is missing, tickets are not allowed
	chunkTickets byte = 6

	chunkFrame = 9

	// nodesPerLock is how many nodes Write reads in one call of read(). It bounds how long a call of Apply
	// waits for the read lock.
	nodesPerLock = 64
	chunkBytes   = 128 << 10
)

// All limits of sizes in a snapshot. Writers and readers use the same limits, as for log entries.
const (
	// MaxChunk is the longest chunk of a snapshot: chunkBytes and the bytes that the tree adds at once, or
	// one node of MaxFrame with its path and ACL.
	MaxChunk = entries.MaxFrame + 1<<20
	// maxNode is the longest node that an import or a restore may bring: its chunk stays below MaxChunk,
	// whatever a snapshot puts before the node.
	maxNode = MaxChunk - 512<<10
	// sessionsChunk is how many bytes of the sessions go into one chunk.
	sessionsChunk = 64 << 20
)

// Position is a place in the raft log.
type Position struct{ Index, Term uint64 }

// Snapshot is the state at one moment. Write can write it while the state changes.
type Snapshot struct {
	zxid     int64
	header   []byte
	sessions *session.Held
	tickets  bool // whether the cluster may have tickets
	rates    map[string]beginning
	nodes    *tree.Snapshot
}

// StartSnapshot records the state's place in the log; Write reads the nodes later. No other goroutine may use
// the state during the call, as for Apply. Only one snapshot can be open at a time.
func (s *State) StartSnapshot(at Position) *Snapshot {
	return &Snapshot{
		zxid:     s.zxid,
		header:   s.header(at),
		sessions: s.sessions.Hold(),
		tickets:  s.ticketing,
		rates:    maps.Clone(s.begun.by),
		nodes:    s.tree.StartSnapshot(),
	}
}

// Write writes the snapshot. It reads the state inside short calls of read(), which must prevent
// calls of Apply during that time.
func (s *Snapshot) Write(to io.Writer, read func(func())) error {
	w := beginChunks(to, s.header, s.sessions.Append(nil))
	if s.tickets {
		w.long(chunkTickets, chunkTickets, appendRates(s.sessions.AppendTickets(nil), s.rates))
	}
	var buf []byte
	for done := false; !done && w.err == nil; {
		buf = buf[:0]
		for !done && len(buf) < chunkBytes {
			read(func() { buf, done = s.nodes.Append(buf, nodesPerLock) })
		}
		w.chunk(chunkNodes, buf)
	}
	return w.end()
}

// Zxid returns the zxid of the newest change in the snapshot.
func (s *Snapshot) Zxid() int64 { return s.zxid }

// Close ends the snapshot, whether it was written or not. No other goroutine may use the state
// during the call.
func (s *Snapshot) Close() { s.nodes.Close() }

func (s *State) header(at Position) []byte {
	b := jute.AppendString(nil, s.clusterID)
	b = jute.AppendLong(b, int64(at.Index))
	b = jute.AppendLong(b, int64(at.Term))
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
		b = members[i].Append(b)
	}
	b = jute.AppendString(b, s.words)
	return s.appendRules(jute.AppendLong(b, s.restored))
}

func (s *State) loadHeader(payload []byte) (at Position, err error) {
	d := jute.NewDecoder(payload)
	id, _ := d.String()
	s.clusterID = string([]byte(id))
	at = Position{uint64(d.Long()), uint64(d.Long())}
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
	words, _ := d.String()
	s.words = string([]byte(words))
	s.restored = d.Long()
	if d.Err() == nil {
		if err := s.loadRules(&d); err != nil {
			return at, err
		}
	}
	if d.Err() == nil && len(d.Rest()) > 0 {
		return at, errors.New("bytes follow the header")
	}
	return at, d.Err()
}

// chunkWriter frames chunks. After the first error it writes nothing, and keeps that error.
type chunkWriter struct {
	w      io.Writer
	chunks uint32
	err    error
}

// beginChunks writes the chunks before the nodes: the encoded header and sessions, in chunks of a legal
// length.
func beginChunks(to io.Writer, header, sessions []byte) *chunkWriter {
	w := &chunkWriter{w: to}
	w.raw([]byte(snapshotMagic))
	w.chunk(chunkHeader, header)
	w.long(chunkSessions, chunkMore, sessions)
	return w
}

// long() writes a payload that may not fit into one chunk.
func (w *chunkWriter) long(kind, more byte, b []byte) {
	for first := true; first || len(b) > 0; first = false {
		n := min(len(b), sessionsChunk)
		w.chunk(kind, b[:n])
		kind, b = more, b[n:]
	}
}

// end() writes the end chunk.
func (w *chunkWriter) end() error {
	w.chunk(chunkEnd, binary.BigEndian.AppendUint32(nil, w.chunks))
	return w.err
}

func (w *chunkWriter) raw(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

func (w *chunkWriter) chunk(kind byte, payload []byte) {
	if w.err == nil && len(payload) > MaxChunk {
		w.err = fmt.Errorf("a chunk has %d bytes: at most %d are allowed", len(payload),
			MaxChunk)
	}
	var head [chunkFrame]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	binary.BigEndian.PutUint32(head[5:], chunkSum(kind, payload))
	w.raw(head[:])
	w.raw(payload)
	w.chunks++
}

// castagnoli returns the table of CRC-32C. The table is made on first use; see crcTable in package entries.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func chunkSum(kind byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli()), castagnoli(), payload)
}
