package session

// Succeed prepares this table to replace the table `old`, which is no longer used. New ids continue after the
// ids of `old`. It raises all generations above `least`, so that every write from an older connection is
// refused, even if the session of that connection has ended and its generation is unknown. A ticket that is
// only in `old` ends at the time `now`.
func (t *Table) Succeed(old *Table, least uint32, now int64) {
	t.next = old.next
	t.succeedTickets(old, now)
	for id, was := range t.byID {
		s := *was
		if o, there := old.byID[id]; there {
			s.Gen = max(s.Gen, o.Gen)
		}
		s.Gen = max(s.Gen, least) + 1
		t.put(&s)
	}
}

// succeedTickets copies what the table `old` remembers of ended tickets, and records the end of each ticket
// that is only in `old`.
func (t *Table) succeedTickets(old *Table, now int64) {
	if old.tickets == nil {
		return
	}
	k := t.haveTickets()
	k.ended, k.over = nil, map[Hash]EndedTicket{}
	for _, e := range old.tickets.ended {
		if _, lives := k.byHash[e.Hash]; !lives {
			k.remember(e)
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
