package session

// TicketEnd is the reason why a ticket has ended.
type TicketEnd uint8

// The reasons why tickets end.
const (
	TicketGiven   TicketEnd = 1 + iota // the caller ended the ticket
	TicketExpired                      // the ticket's timeout passed
	TicketRevoked                      // the ticket was revoked: it had been asked to leave the queue
	TicketRemoved                      // an operator or another client removed the ticket's contender
	TicketEnded                        // an operator or a restore ended the ticket's session
	TicketTried                        // the ticket only tried and got nothing; the table does not remember it
)

// EndedTicket is what the table remembers of an ended ticket.
type EndedTicket struct {
	Hash     Hash
	Identity string
	Path     string
	Why      TicketEnd
	At       int64 // when the ticket ended, in ms since 1970
}

// How many ended tickets the table remembers, and for how long.
const (
	KeptEnds    = 10_000
	KeptEndTime = 10 * 60 * 1000 // in ms
)

// NoteTicketEnd records the reason for the end of a ticket.
func (t *Table) NoteTicketEnd(k *Ticket, why TicketEnd, now int64) {
	t.tickets.remember(EndedTicket{k.Hash, k.Identity, k.Path, why, now})
}

// EndOfTicket returns why the ticket with a secret has ended, if the table remembers it.
func (t *Table) EndOfTicket(secret Hash, now int64) (e EndedTicket, known bool) {
	if t.tickets == nil {
		return e, false
	}
	e, known = t.tickets.over[secret]
	return e, known && e.At+KeptEndTime > now
}

// remember() records the end of a ticket, and forgets ends that are too old or too many.
func (k *tickets) remember(e EndedTicket) {
	k.ended, k.over[e.Hash] = append(k.ended, e), e
	for len(k.ended) > KeptEnds || k.ended[0].At+KeptEndTime <= e.At {
		if old := k.ended[0]; k.over[old.Hash] == old {
			delete(k.over, old.Hash)
		}
		k.ended = k.ended[1:]
	}
}
