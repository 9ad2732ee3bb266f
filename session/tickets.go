package session

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// A ticket is a session without a connection; requests with its secret keep it alive. The table finds a
// ticket by the secret's hash, counts the tickets of each identity, and remembers for a while why tickets
// ended, so that a late request does not open one again.

// Ticket marks a session as a ticket. It never changes.
type Ticket struct {
	Hash     Hash   // hash of its secret
	Identity string // the identity that opened it
	Path     string // path of its lock
	Mode     byte   // its mode, numbered by package server/tickets
	Permits  int32  // how many permits of a semaphore; 0: it is not for a semaphore
	Until    int64  // when it ends even if it is renewed, in ms since 1970; 0: it has no such time
}

// Hash is the hash of a ticket's secret.
type Hash [32]byte

// TicketEnd is the reason why a ticket has ended.
type TicketEnd uint8

// The reasons why tickets end.
const (
	TicketGiven   TicketEnd = 1 + iota // its caller ended it
	TicketExpired                      // its timeout passed
	TicketRevoked                      // it was revoked, which means that it was asked to leave the queue
	TicketRemoved                      // an operator or another client removed its contender
	TicketEnded                        // an operator or a restore ended its session
	TicketTried                        // it only tried and holds nothing; the table does not remember it
)

// EndedTicket is what the table remembers of an ended ticket.
type EndedTicket struct {
	Hash     Hash
	Identity string
	Path     string
	Why      TicketEnd
	At       int64 // when it ended, in ms since 1970
}

// How many ended tickets the table remembers, and for how long.
const (
	KeptEnds    = 10_000
	KeptEndTime = 10 * 60 * 1000 // in ms
)

// tickets holds what the table knows about tickets in addition to their sessions.
type tickets struct {
	byHash map[Hash]int64
	of     map[string]*ticketsOf // tickets of each identity
	until  []lastMoment          // earliest first
	ended  []EndedTicket         // oldest first; an element never changes
	over   map[Hash]EndedTicket
}

// ticketsOf has the tickets of one identity.
type ticketsOf struct {
	ids  []int64 // ids of the sessions, rising
	path map[string]int
}

type lastMoment struct {
	at, id int64
}

func (d lastMoment) compare(o lastMoment) int {
	return cmp.Or(cmp.Compare(d.at, o.at), cmp.Compare(d.id, o.id))
}

func (t *Table) haveTickets() *tickets {
	if t.tickets == nil {
		t.tickets = &tickets{byHash: map[Hash]int64{}, of: map[string]*ticketsOf{},
			over: map[Hash]EndedTicket{}}
	}
	return t.tickets
}

func (t *Table) addTicket(s *Session) {
	k := t.haveTickets()
	k.byHash[s.Ticket.Hash] = s.ID
	of := k.of[s.Ticket.Identity]
	if of == nil {
		of = &ticketsOf{path: map[string]int{}}
		k.of[s.Ticket.Identity] = of
	}
	at, _ := slices.BinarySearch(of.ids, s.ID)
	of.ids = slices.Insert(of.ids, at, s.ID)
	of.path[s.Ticket.Path]++
	if s.Ticket.Until != 0 {
		d := lastMoment{s.Ticket.Until, s.ID}
		at, _ := slices.BinarySearchFunc(k.until, d, lastMoment.compare)
		k.until = slices.Insert(k.until, at, d)
	}
}

func (t *Table) removeTicket(s *Session) {
	k := t.tickets
	delete(k.byHash, s.Ticket.Hash)
	of := k.of[s.Ticket.Identity]
	if at, found := slices.BinarySearch(of.ids, s.ID); found {
		of.ids = slices.Delete(of.ids, at, at+1)
	}
	if of.path[s.Ticket.Path]--; of.path[s.Ticket.Path] == 0 {
		delete(of.path, s.Ticket.Path)
	}
	if len(of.ids) == 0 {
		delete(k.of, s.Ticket.Identity)
	}
	last := lastMoment{s.Ticket.Until, s.ID}
	if at, found := slices.BinarySearchFunc(k.until, last, lastMoment.compare); found {
		k.until = slices.Delete(k.until, at, at+1)
	}
}

// CreateTicket is like Create, for a ticket. The secret must be new.
func (t *Table) CreateTicket(timeout int32, password [jute.PasswordSize]byte, owner uint32, addr string,
	now int64, k Ticket) Session {
	s := &Session{ID: t.newID(owner), Password: password, Timeout: max(timeout, 1), Gen: 1, Owner: owner,
		Addr: addr, Created: now, Ticket: &k}
	t.insert(s)
	return *s
}

// SetTimeout sets a ticket's timeout and raises its generation, so that an end that was proposed earlier has
// no effect. It returns false if there is no such ticket.
func (t *Table) SetTimeout(id int64, timeout int32) (Session, bool) {
	was, ok := t.byID[id]
	if !ok || was.Ticket == nil {
		return Session{}, false
	}
	s := *was
	s.Timeout = max(timeout, 1)
	s.Gen++
	t.put(&s)
	return s, true
}

// Ticket returns the ticket with a secret.
func (t *Table) Ticket(secret Hash) (Session, bool) {
	if t.tickets == nil {
		return Session{}, false
	}
	id, ok := t.tickets.byHash[secret]
	if !ok {
		return Session{}, false
	}
	return *t.byID[id], true
}

// Tickets returns how many tickets there are.
func (t *Table) Tickets() int {
	if t.tickets == nil {
		return 0
	}
	return len(t.tickets.byHash)
}

// TicketsOf returns how many tickets an identity has in all, and how many on a path.
func (t *Table) TicketsOf(identity, path string) (all, there int) {
	if t.tickets == nil || t.tickets.of[identity] == nil {
		return 0, 0
	}
	of := t.tickets.of[identity]
	return len(of.ids), of.path[path]
}

// SomeTicketsOf returns some of the tickets of an identity. The oldest ticket of each server comes first.
func (t *Table) SomeTicketsOf(identity string, most int) (list []Session) {
	if t.tickets == nil || t.tickets.of[identity] == nil {
		return nil
	}
	for _, id := range t.tickets.of[identity].ids {
		if len(list) == most {
			break
		}
		list = append(list, *t.byID[id])
	}
	return list
}

// AllTickets calls f with each ticket, in no order.
func (t *Table) AllTickets(f func(*Session)) {
	if t.tickets == nil {
		return
	}
	for _, id := range t.tickets.byHash {
		f(t.byID[id])
	}
}

// TicketsDue appends to out the tickets whose Until has passed, at most most of them.
func (t *Table) TicketsDue(now int64, most int, out []int64) []int64 {
	if t.tickets == nil {
		return out
	}
	for _, d := range t.tickets.until {
		if d.at > now || most == 0 {
			break
		}
		most--
		out = append(out, d.id)
	}
	return out
}

// NoteTicketEnd records the reason for the end of a ticket.
func (t *Table) NoteTicketEnd(k *Ticket, why TicketEnd, now int64) {
	t.rememberEnd(EndedTicket{k.Hash, k.Identity, k.Path, why, now})
}

func (t *Table) rememberEnd(e EndedTicket) {
	k := t.tickets
	k.ended, k.over[e.Hash] = append(k.ended, e), e
	for len(k.ended) > KeptEnds || k.ended[0].At+KeptEndTime <= e.At {
		if old := k.ended[0]; k.over[old.Hash] == old {
			delete(k.over, old.Hash)
		}
		k.ended = k.ended[1:]
	}
}

// EndOfTicket returns why the ticket with a secret has ended, if the table remembers it.
func (t *Table) EndOfTicket(secret Hash, now int64) (e EndedTicket, known bool) {
	if t.tickets == nil {
		return e, false
	}
	e, known = t.tickets.over[secret]
	return e, known && e.At+KeptEndTime > now
}

// succeedTickets copies what old remembers of ended tickets, and records that the tickets that only old has
// have ended.
func (t *Table) succeedTickets(old *Table, now int64) {
	if old.tickets == nil {
		return
	}
	k := t.haveTickets()
	k.ended, k.over = nil, map[Hash]EndedTicket{}
	for _, e := range old.tickets.ended {
		if _, lives := k.byHash[e.Hash]; !lives {
			t.rememberEnd(e)
		}
	}
	old.All(func(s Session) {
		if s.Ticket == nil {
			return
		}
		if _, lives := k.byHash[s.Ticket.Hash]; !lives {
			t.NoteTicketEnd(s.Ticket, TicketEnded, now)
		}
	})
}

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
		t.addTicket(s)
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

// text reads a string and copies it, because the decoder's memory may be reused.
func text(d *jute.Decoder) string {
	s, _ := d.String()
	return strings.Clone(s)
}
