package tickets

import (
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree/acl"
)

// The server announces the end of a hold that was meant for an hour or more. Such a hold usually belongs to a
// person.
const (
	longHold   = time.Hour
	RemindTime = 15 * time.Minute
	endsAtOnce = 1000 // EndsSoon considers at most this many tickets
)

// End describes a hold that ends soon.
type End struct {
	ID             int64 // id of the ticket's session
	Path, Identity string
	At             time.Time
}

// EndsSoon returns the long holds that end within RemindTime unless their callers renew them. left() returns
// how long the leader will keep a session; a session that it does not know is skipped.
func EndsSoon(st *state.State, left func(id int64) (time.Duration, bool), now time.Time) (list []End) {
	ends := map[int64]time.Time{}
	last := now.Add(RemindTime)
	st.Sessions().AllTickets(func(s *session.Session) {
		l, known := left(s.ID)
		if !known || len(ends) >= endsAtOnce {
			return
		}
		at := last.Add(1)
		if s.Timeout >= int32(longHold.Milliseconds()) {
			at = now.Add(l)
		}
		if until := s.Ticket.Until; until != 0 && until-s.Created >= longHold.Milliseconds() {
			if u := time.UnixMilli(until); u.Before(at) {
				at = u
			}
		}
		if !at.After(last) {
			ends[s.ID] = at
		}
	})
	for id, at := range ends {
		if s, _ := st.Sessions().Get(id); holds(st, &s, now) {
			list = append(list, End{id, s.Ticket.Path, s.Ticket.Identity, at})
		}
	}
	return list
}

func holds(st *state.State, s *session.Session, now time.Time) bool {
	g := look(st, s.Ticket.Hash, now.UnixMilli(), acl.Super)
	return g.held
}
