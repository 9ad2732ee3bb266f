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

// remember records the end of a ticket, and forgets ends that are too old or too many.
func (k *tickets) remember(e EndedTicket) {
	k.ended, k.over[e.Hash] = append(k.ended, e), e
	for len(k.ended) > KeptEnds || k.ended[0].At+KeptEndTime <= e.At {
		if old := k.ended[0]; k.over[old.Hash] == old {
			delete(k.over, old.Hash)
		}
		k.ended = k.ended[1:]
	}
}
