package session

import (
	"errors"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// The tickets' encoding is
//
//	count i64 · ticket* · count i64 · ended*
//	ticket := session i64 · hash 32 bytes · identity string · path string · mode u8 · permits i32
//	          · until i64
//	ended  := hash 32 bytes · identity string · path string · why u8 · at i64
//
// with tickets in the order of their sessions. A table without them encodes to two zeros.

const (
	minTicket = 8 + 32 + 4 + 4 + 1 + 4 + 8
	minEnded  = 32 + 4 + 4 + 1 + 8
)

var errTicket = errors.New("session: impossible ticket")

// AppendTickets appends the encoding of the tickets in h.
func (h *Held) AppendTickets(b []byte) []byte {
	at, n := len(b), int64(0)
	b = jute.AppendLong(b, 0)
	for _, list := range h.live {
		for _, s := range list {
			if s == nil || s.Ticket == nil {
				continue
			}
			n++
			k := s.Ticket
			b = append(jute.AppendLong(b, s.ID), k.Hash[:]...)
			b = append(jute.AppendString(jute.AppendString(b, k.Identity), k.Path), k.Mode)
			b = jute.AppendLong(jute.AppendInt(b, k.Permits), k.Until)
		}
	}
	copy(b[at:], jute.AppendLong(nil, n))
	b = jute.AppendLong(b, int64(len(h.ended)))
	for i := range h.ended {
		e := &h.ended[i]
		b = append(b, e.Hash[:]...)
		b = append(jute.AppendString(jute.AppendString(b, e.Identity), e.Path), byte(e.Why))
		b = jute.AppendLong(b, e.At)
	}
	return b
}

// LoadTickets reads what AppendTickets wrote, and marks the tickets among the sessions that Load has just
// read. After an error the table must not be used.
func (t *Table) LoadTickets(d *jute.Decoder) error {
	n := d.Long()
	if d.Err() != nil || n < 0 || n > int64(len(d.Rest())/minTicket) {
		return errTicket
	}
	last := uint64(0)
	for range n {
		id := d.Long()
		k := &Ticket{Hash: decodeHash(d), Identity: text(d), Path: text(d), Mode: d.Byte(), Permits: d.Int(),
			Until: d.Long()}
		s := t.byID[id]
		if d.Err() != nil || s == nil || s.Ticket != nil || uint64(id) <= last || k.Permits < 0 || k.Until < 0 {
			return errTicket
		}
		if _, twice := t.Ticket(k.Hash); twice {
			return errTicket
		}
		last, s.Ticket = uint64(id), k
		t.haveTickets().add(id, k)
	}
	n = d.Long()
	if d.Err() != nil || n < 0 || n > int64(min(len(d.Rest())/minEnded, KeptEnds)) {
		return errTicket
	}
	for range n {
		e := EndedTicket{Hash: decodeHash(d), Identity: text(d), Path: text(d), Why: TicketEnd(d.Byte()),
			At: d.Long()}
		if d.Err() != nil || e.Why < TicketGiven || e.Why > TicketEnded {
			return errTicket
		}
		k := t.haveTickets()
		k.ended, k.over[e.Hash] = append(k.ended, e), e
	}
	return nil
}

func decodeHash(d *jute.Decoder) (h Hash) {
	for i := range h {
		h[i] = d.Byte()
	}
	return h
}

// text() reads a string and copies it, because the decoder's memory may be reused.
func text(d *jute.Decoder) string {
	s, _ := d.String()
	return strings.Clone(s)
}
