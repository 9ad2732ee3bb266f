package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

// The coding of raft's messages. On a connection requests and answers alternate:
//
//	frame := length u32 · CRC-32C of the rest u32 · kind u8 · fields
//	answer := a frame of the same kind, whose first field is an error
//
// Numbers are big-endian; bytes and strings begin with their length, an i32, which is -1 if they are nil. The
// bytes of a snapshot follow the frame of its message; they have a checksum of their own. Each log entry has
// these fields:
//
//	index u64 · term u64 · time i64 · type u8 · data · extensions

// Kinds of messages.
const (
	kindAppend byte = iota + 1
	kindVote
	kindPreVote
	kindTimeoutNow
	kindSnapshot
)

const (
	// maxRequest is the longest request: the longest message to a fast server, plus the longest possible
	// entry.
	maxRequest = paceMost + entries.MaxSize + 1<<20
	maxAnswer  = 64 << 10
	entrySize  = 3*8 + 1 + 2*4 // size of an entry without its data
	frameHead  = 4 + 1         // size of the fields between the length of a frame and the message
)

var (
	errCoding = errors.New("bad message between servers")
	crcTable  = crc32.MakeTable(crc32.Castagnoli)
)

// timeoutNow is raft's request to stand for election, with the term in which its sender leads. A former
// leader may not know that its term is over; because of the term in the request, it cannot depose its
// successor.
type timeoutNow struct {
	raft.TimeoutNowRequest
	Term uint64
}

// coder visits the fields of a message, and writes or reads them. While it writes, it does not change the
// message, because raft sends one request to several servers at once.
type coder struct {
	b    []byte        // bytes written so far
	read *jute.Decoder // reads the message; nil: the coder writes
}

// number() writes or reads a number of eight bytes.
func number[T uint64 | int64 | raft.ProtocolVersion | raft.SnapshotVersion](c *coder, v *T) {
	if c.read != nil {
		*v = T(c.read.Long())
	} else {
		c.b = jute.AppendLong(c.b, int64(*v))
	}
}

func (c *coder) bytes(v *[]byte) {
	if c.read != nil {
		*v = c.read.Buffer()
	} else {
		c.b = jute.AppendBuffer(c.b, *v)
	}
}

func (c *coder) bool(v *bool) {
	if c.read != nil {
		*v = c.read.Bool()
	} else {
		c.b = jute.AppendBool(c.b, *v)
	}
}

func (c *coder) header(h *raft.RPCHeader) {
	number(c, &h.ProtocolVersion)
	c.bytes(&h.ID)
	c.bytes(&h.Addr)
}

// fields writes or reads a request or an answer of raft. It returns the kind of the message; the kind is 0 if
// the message is not one of raft's.
func (c *coder) fields(message any) (kind byte) {
	switch m := message.(type) {
	case *raft.AppendEntriesRequest:
		c.header(&m.RPCHeader)
		for _, v := range []*uint64{&m.Term, &m.PrevLogEntry, &m.PrevLogTerm, &m.LeaderCommitIndex} {
			number(c, v)
		}
		c.bytes(&m.Leader) //nolint:staticcheck // raft 1.7 itself still sends it
		c.entries(m)
		return kindAppend
	case *raft.AppendEntriesResponse:
		number(c, &m.Term)
		number(c, &m.LastLog)
		c.bool(&m.Success)
		c.bool(&m.NoRetryBackoff)
		return kindAppend
	case *raft.RequestVoteRequest:
		c.header(&m.RPCHeader)
		number(c, &m.Term)
		c.bytes(&m.Candidate) //nolint:staticcheck // raft 1.7 itself still sends it
		number(c, &m.LastLogIndex)
		number(c, &m.LastLogTerm)
		c.bool(&m.LeadershipTransfer)
		return kindVote
	case *raft.RequestVoteResponse:
		number(c, &m.Term)
		c.bool(&m.Granted)
		return kindVote
	case *raft.RequestPreVoteRequest:
		c.header(&m.RPCHeader)
		number(c, &m.Term)
		number(c, &m.LastLogIndex)
		number(c, &m.LastLogTerm)
		return kindPreVote
	case *raft.RequestPreVoteResponse:
		number(c, &m.Term)
		c.bool(&m.Granted)
		return kindPreVote
	case *timeoutNow:
		c.header(&m.RPCHeader)
		number(c, &m.Term)
		return kindTimeoutNow
	case *raft.TimeoutNowResponse:
		return kindTimeoutNow
	case *raft.InstallSnapshotRequest:
		c.header(&m.RPCHeader)
		number(c, &m.SnapshotVersion)
		for _, v := range []*uint64{&m.Term, &m.LastLogIndex, &m.LastLogTerm, &m.ConfigurationIndex} {
			number(c, v)
		}
		number(c, &m.Size)
		c.bytes(&m.Leader)
		c.bytes(&m.Peers)
		c.bytes(&m.Configuration)
		return kindSnapshot
	case *raft.InstallSnapshotResponse:
		number(c, &m.Term)
		c.bool(&m.Success)
		return kindSnapshot
	}
	return 0
}

// entries writes or reads log entries.
func (c *coder) entries(m *raft.AppendEntriesRequest) {
	if c.read == nil {
		c.b = jute.AppendInt(c.b, int32(len(m.Entries)))
	} else {
		list := make([]raft.Log, max(0, c.read.Count(entrySize)))
		m.Entries = slices.Grow(m.Entries, len(list))
		for i := range list {
			m.Entries = append(m.Entries, &list[i])
		}
	}
	for _, e := range m.Entries {
		number(c, &e.Index)
		number(c, &e.Term)
		var stamp int64
		if !e.AppendedAt.IsZero() {
			stamp = e.AppendedAt.UnixNano()
		}
		if number(c, &stamp); c.read == nil {
			c.b = append(c.b, byte(e.Type))
		} else {
			if stamp != 0 {
				e.AppendedAt = time.Unix(0, stamp)
			}
			e.Type = raft.LogType(c.read.Byte())
		}
		c.bytes(&e.Data)
		c.bytes(&e.Extensions)
	}
}

// appendRequest appends a request as a frame.
func appendRequest(b []byte, request any) []byte { return appendFrame(b, request, nil) }

// appendAnswer appends an answer as a frame. `why` is raft's error; if raft returned no error, `why` is "".
func appendAnswer(b []byte, answer any, why string) []byte { return appendFrame(b, answer, &why) }

func appendFrame(b []byte, message any, why *string) []byte {
	b, at := jute.BeginFrame(b)
	head := len(b)
	c := coder{b: append(b, make([]byte, frameHead)...)}
	if why != nil {
		c.b = jute.AppendString(c.b, (*why)[:min(len(*why), maxAnswer/2)])
	}
	c.b[head+4] = c.fields(message)
	binary.BigEndian.PutUint32(c.b[head:], crc32.Checksum(c.b[head+4:], crcTable))
	jute.EndFrame(c.b, at)
	return c.b
}

// parseRequest parses a request frame without its length. The result points into b.
func parseRequest(b []byte) (request any, err error) {
	kind, b, err := openFrame(b)
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindAppend:
		request = new(raft.AppendEntriesRequest)
	case kindVote:
		request = new(raft.RequestVoteRequest)
	case kindPreVote:
		request = new(raft.RequestPreVoteRequest)
	case kindTimeoutNow:
		request = new(timeoutNow)
	case kindSnapshot:
		request = new(raft.InstallSnapshotRequest)
	default:
		return nil, fmt.Errorf("%w: kind %d", errCoding, kind)
	}
	d := jute.NewDecoder(b)
	c := coder{read: &d}
	c.fields(request)
	if s, is := request.(*raft.InstallSnapshotRequest); is && s.Size < 0 ||
		c.read.Err() != nil || len(c.read.Rest()) > 0 {
		return nil, errCoding
	}
	return request, nil
}

// parseAnswer parses an answer frame without its length into answer, which has the expected type. `why` is
// the error in the answer.
func parseAnswer(b []byte, answer any) (why string, err error) {
	kind, b, err := openFrame(b)
	if err != nil {
		return "", err
	}
	d := jute.NewDecoder(b)
	c := coder{read: &d}
	text, _ := c.read.String()
	if c.fields(answer) != kind || c.read.Err() != nil || len(c.read.Rest()) > 0 {
		return "", errCoding
	}
	return string([]byte(text)), nil
}

// openFrame checks a frame without its length, and returns its parts.
func openFrame(b []byte) (kind byte, fields []byte, err error) {
	if len(b) < frameHead || crc32.Checksum(b[4:], crcTable) != binary.BigEndian.Uint32(b) {
		return 0, nil, fmt.Errorf("%w: its checksum is wrong", errCoding)
	}
	return b[4], b[frameHead:], nil
}

// readFrame reads a length, at most `limit`, and then that many bytes. It uses buf if the bytes fit, so no
// string or slice may still point into buf. Otherwise it allocates memory only as the bytes arrive.
func readFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	jute.Overwrite(buf)
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return nil, fmt.Errorf("%w: a message of %d bytes", errCoding, n)
	}
	const step = 1 << 20
	for buf = buf[:0]; len(buf) < n; {
		at, to := len(buf), min(n, len(buf)+step)
		if to > cap(buf) {
			buf = append(make([]byte, 0, min(n, max(to, 2*cap(buf)))), buf...)
		}
		buf = buf[:to]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return nil, noEOF(err)
		}
	}
	return buf, nil
}

// noEOF turns the end of a connection within a message into the error io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
