package session

import (
	"cmp"
	"slices"
)

// A ticket is a session without a connection; requests with its secret keep it alive. The table finds a
// ticket by the secret's hash, counts the tickets of each identity, and remembers for a while why tickets
// ended, so that a late request does not open one again.

// Ticket marks a session as a ticket. It never changes.
type Ticket struct {
	Hash     Hash   // hash of its secret
	Identity string // the identity that opened it
	Path     string // path of its lock
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
