package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// The coding of AppendEntries, which is nearly all that servers say to each
// other's rafts. Requests and answers alternate:
//
//	request := length u32 · term u64 · previous index u64 · previous term u64
//	           · commit index u64 · raft's protocol u32 · id · address · leader
//	           · number of entries u32 · entry*
//	entry   := index u64 · term u64 · time i64 · type u8 · data · extensions
//	answer  := length u32 · term u64 · last index u64 · success u8 · at once u8 · error
//
// The rest is length i32 · bytes, with -1 for none.

const (
	// maxEntries is the longest request: what is sent at once to a fast server,
	// and the longest entry that there can be. More would be for raft's own
	// transport, which knows no bound.
	maxEntries = paceMost + state.MaxEntry + 1<<20
	maxAnswer  = 64 << 10
	entrySize  = 3*8 + 1 + 2*4 // without data
)

var errCoding = errors.New("bad message with log entries")

// appendRequest appends the encoding of a request.
func appendRequest(b []byte, r *raft.AppendEntriesRequest) []byte {
	b, at := jute.BeginFrame(b)
	for _, v := range []uint64{r.Term, r.PrevLogEntry, r.PrevLogTerm, r.LeaderCommitIndex} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = jute.AppendInt(b, int32(r.ProtocolVersion))
	b = jute.AppendBuffer(b, r.ID)
	b = jute.AppendBuffer(b, r.Addr)
	b = jute.AppendBuffer(b, r.Leader) //nolint:staticcheck // what raft 1.7 itself still sends
	b = jute.AppendInt(b, int32(len(r.Entries)))
	for _, e := range r.Entries {
		b = binary.BigEndian.AppendUint64(b, e.Index)
		b = binary.BigEndian.AppendUint64(b, e.Term)
		var stamp int64
		if !e.AppendedAt.IsZero() {
			stamp = e.AppendedAt.UnixNano()
		}
		b = jute.AppendLong(b, stamp)
		b = append(b, byte(e.Type))
		b = jute.AppendBuffer(b, e.Data)
		b = jute.AppendBuffer(b, e.Extensions)
	}
	jute.EndFrame(b, at)
	return b
}

// parseRequest reads a request without its length. The result points into b.
func parseRequest(b []byte) (*raft.AppendEntriesRequest, error) {
	d := jute.NewDecoder(b)
	r := &raft.AppendEntriesRequest{Term: uint64(d.Long()), PrevLogEntry: uint64(d.Long()), PrevLogTerm: uint64(d.Long()), LeaderCommitIndex: uint64(d.Long())}
	r.ProtocolVersion = raft.ProtocolVersion(d.Int())
	r.ID, r.Addr, r.Leader = d.Buffer(), d.Buffer(), d.Buffer() //nolint:staticcheck // see appendRequest
	n := d.Count(entrySize)
	if n > 0 {
		entries := make([]raft.Log, n)
		r.Entries = make([]*raft.Log, n)
		for i := range entries {
			e := &entries[i]
			r.Entries[i] = e
			e.Index, e.Term = uint64(d.Long()), uint64(d.Long())
			if stamp := d.Long(); stamp != 0 {
				e.AppendedAt = time.Unix(0, stamp)
			}
			e.Type = raft.LogType(d.Byte())
			e.Data, e.Extensions = d.Buffer(), d.Buffer()
		}
	}
	if d.Err() != nil || n < 0 || len(d.Rest()) > 0 {
		return nil, errCoding
	}
	return r, nil
}

// appendAnswer appends the encoding of an answer; why is empty unless raft could
// not do what it was asked.
func appendAnswer(b []byte, r *raft.AppendEntriesResponse, why string) []byte {
	b, at := jute.BeginFrame(b)
	b = binary.BigEndian.AppendUint64(b, r.Term)
	b = binary.BigEndian.AppendUint64(b, r.LastLog)
	b = jute.AppendBool(b, r.Success)
	b = jute.AppendBool(b, r.NoRetryBackoff)
	b = jute.AppendString(b, why[:min(len(why), maxAnswer/2)])
	jute.EndFrame(b, at)
	return b
}

// parseAnswer reads an answer without its length.
func parseAnswer(b []byte, r *raft.AppendEntriesResponse) (why string, err error) {
	d := jute.NewDecoder(b)
	r.Term, r.LastLog = uint64(d.Long()), uint64(d.Long())
	r.Success, r.NoRetryBackoff = d.Bool(), d.Bool()
	text, _ := d.String()
	if d.Err() != nil || len(d.Rest()) > 0 {
		return "", errCoding
	}
	return string([]byte(text)), nil
}

// readFrame reads a length of at most limit and as many bytes, into buf if they
// fit. Memory is taken as bytes arrive.
func readFrame(r *bufio.Reader, limit int, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return nil, fmt.Errorf("%w: %d bytes", errCoding, n)
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

// noEOF tells the end of a connection within a message from one between two.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
