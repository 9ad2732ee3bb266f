package session

import (
	"errors"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// The table's encoding is
//
//	next i64 · count i64 · session*
//	session := id i64 · password 16 bytes · timeout i32 · gen i32 · owner i32 · address string
//	           · created i64
//
// with sessions in the order of ids as unsigned numbers, so that equal tables encode to equal bytes. The
// snapshot around it has the version, length and checksum.

// minEncoded is the size of an encoded session with an empty address.
const minEncoded = 8 + jute.PasswordSize + 4 + 4 + 4 + 4 + 8

// Errors of Load.
var (
	errCount   = errors.New("session: the number of sessions is too large for the data")
	errOrder   = errors.New("session: the ids of a snapshot are not in ascending order")
	errSession = errors.New("session: a timeout, generation or address is impossible")
)

// Held is the content that a table had at the call of Hold. It can be read while the table changes.
type Held struct {
	next  uint64
	count int
	live  [256][]*Session
	ended []EndedTicket
}

// Hold returns the present content of the table. It copies only a word for each session; Append does the
// slower work.
func (t *Table) Hold() *Held {
	h := &Held{next: t.next, count: len(t.byID)}
	for c := range t.order {
		h.live[c] = slices.Clone(t.order[c].live)
	}
	if t.tickets != nil {
		h.ended = t.tickets.ended
	}
	return h
}

// Append appends the encoding of the content.
func (h *Held) Append(b []byte) []byte {
	b = jute.AppendLong(b, int64(h.next))
	b = jute.AppendLong(b, int64(h.count))
	for _, list := range h.live {
		for _, s := range list {
			if s != nil {
				b = s.append(b)
			}
		}
	}
	return b
}

func (s *Session) append(b []byte) []byte {
	b = jute.AppendLong(b, s.ID)
	b = append(b, s.Password[:]...)
	b = jute.AppendInt(b, s.Timeout)
	b = jute.AppendInt(b, int32(s.Gen))
	b = jute.AppendInt(b, int32(s.Owner))
	b = jute.AppendString(b, s.Addr)
	return jute.AppendLong(b, s.Created)
}

// Load replaces the table by a table that Append wrote. After an error the table is unchanged.
func (t *Table) Load(d *jute.Decoder) error {
	next, count := d.Long(), d.Long()
	if err := d.Err(); err != nil {
		return err
	}
	if count < 0 || count > int64(len(d.Rest())/minEncoded) {
		return errCount
	}
	l := NewTable(0)
	l.next, l.byID = uint64(next), make(map[int64]*Session, count)
	sessions := make([]Session, count)
	last := uint64(0)
	for i := range sessions {
		s := &sessions[i]
		if err := s.decode(d); err != nil {
			return err
		}
		if uint64(s.ID) <= last {
			return errOrder
		}
		last = uint64(s.ID)
		l.insert(s)
	}
	*t = *l
	return nil
}

func (s *Session) decode(d *jute.Decoder) error {
	s.ID = d.Long()
	for i := range s.Password {
		s.Password[i] = d.Byte()
	}
	s.Timeout = d.Int()
	s.Gen = uint32(d.Int())
	s.Owner = uint32(d.Int())
	addr, ok := d.String()
	s.Created = d.Long()
	if err := d.Err(); err != nil {
		return err
	}
	if s.Timeout < 1 || s.Gen < 1 || !ok {
		return errSession
	}
	s.Addr = strings.Clone(addr)
	return nil
}
