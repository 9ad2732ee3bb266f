package session

import "github.com/zlockd/zlockd/jute"

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

// TicketsDue appends to out the ids of tickets whose Until has passed, but at most `most` of them.
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
