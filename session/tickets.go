package session

import (
	"cmp"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

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

// SomeTicketsOf returns at most `most` tickets of an identity. They are ordered by the server that opened
// them, and by age.
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

// TicketsDue appends to `out` the ids of tickets whose Until has passed, but at most `most` of them.
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

// A ticket is a session without a connection; requests with its secret keep it alive. The table finds a
// ticket by the secret's hash, counts the tickets of each identity, and remembers for a while why tickets
// ended, so that a late request does not open one again.

// Ticket marks a session as a ticket. It never changes.
type Ticket struct {
	Hash     Hash   // hash of the ticket's secret
	Identity string // the identity that opened it
	Path     string // path of the ticket's lock
	Mode     byte   // mode of the ticket, numbered by package server/tickets
	Permits  int32  // how many permits of a semaphore; 0: the ticket is not for a semaphore
	Until    int64  // when the ticket ends even if it is renewed, in ms since 1970; 0: no such time
}

// Hash is the hash of a ticket's secret.
type Hash [32]byte

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

func newTickets() *tickets {
	return &tickets{byHash: map[Hash]int64{}, of: map[string]*ticketsOf{}, over: map[Hash]EndedTicket{}}
}

func (k *tickets) add(id int64, t *Ticket) {
	k.byHash[t.Hash] = id
	of := k.of[t.Identity]
	if of == nil {
		of = &ticketsOf{path: map[string]int{}}
		k.of[t.Identity] = of
	}
	at, _ := slices.BinarySearch(of.ids, id)
	of.ids = slices.Insert(of.ids, at, id)
	of.path[t.Path]++
	if t.Until != 0 {
		d := lastMoment{t.Until, id}
		at, _ := slices.BinarySearchFunc(k.until, d, lastMoment.compare)
		k.until = slices.Insert(k.until, at, d)
	}
}

func (k *tickets) remove(id int64, t *Ticket) {
	delete(k.byHash, t.Hash)
	of := k.of[t.Identity]
	if at, found := slices.BinarySearch(of.ids, id); found {
		of.ids = slices.Delete(of.ids, at, at+1)
	}
	if of.path[t.Path]--; of.path[t.Path] == 0 {
		delete(of.path, t.Path)
	}
	if len(of.ids) == 0 {
		delete(k.of, t.Identity)
	}
	last := lastMoment{t.Until, id}
	if at, found := slices.BinarySearchFunc(k.until, last, lastMoment.compare); found {
		k.until = slices.Delete(k.until, at, at+1)
	}
}
