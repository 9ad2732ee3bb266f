package tickets

import (
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

// A hold that was meant for an hour or more, a person's as a rule, is told of before it ends.
const (
	longHold   = time.Hour
	RemindTime = 15 * time.Minute
	endsAtOnce = 1000 // tickets that are looked at
)

// End is the end of a hold that comes soon.
type End struct {
	ID             int64 // of the ticket's session
	Path, Identity string
	At             time.Time
}

// EndsSoon returns the long holds that end within RemindTime unless their callers renew them. left is the
// time that the leader gives each session.
func EndsSoon(st *state.State, left map[int64]time.Duration, now time.Time) (list []End) {
	ends := map[int64]time.Time{}
	last := now.Add(RemindTime).UnixMilli()
	for _, id := range st.Sessions().TicketsDue(last, endsAtOnce, nil) {
		s, _ := st.Sessions().Get(id)
		if s.Ticket.Until-s.Created >= longHold.Milliseconds() {
			ends[id] = time.UnixMilli(s.Ticket.Until)
		}
	}
	for id, l := range left {
		s, _ := st.Sessions().Get(id)
		long := s.Ticket != nil && s.Timeout >= int32(longHold.Milliseconds())
		if !long || l > RemindTime || len(ends) >= endsAtOnce {
			continue
		}
		if at, known := ends[id]; !known || now.Add(l).Before(at) {
			ends[id] = now.Add(l)
		}
	}
	for id, at := range ends {
		if s, _ := st.Sessions().Get(id); holds(st, &s, now) {
			list = append(list, End{id, s.Ticket.Path, s.Ticket.Identity, at})
		}
	}
	return list
}

func holds(st *state.State, s *session.Session, now time.Time) bool {
	g := look(st, s.Ticket.Hash, now.UnixMilli(), superIDs)
	return g.held
}
