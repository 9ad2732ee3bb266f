package tickets

import (
	"context"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

// renewal is a caller that waits until the leader has acknowledged a touch of its ticket.
type renewal struct {
	id    int64
	at    time.Time
	taken time.Time // when Heard first put the touch into a report for the leader
}

// confirm() makes sure that the leader hears of a ticket after this call has begun. The leader then keeps the
// ticket for its whole timeout, counted from `at` or later. If this server had the ticket confirmed recently,
// a touch is enough. Otherwise the leader may already be ending the ticket, so a log entry restarts its
// timeout. An earlier decision to end the ticket has no effect after that entry.
func (s *Server) confirm(ctx context.Context, x session.Session) (at time.Time, lives bool, err error) {
	n := *s.node.Load()
	at = time.Now()
	s.mu.Lock()
	lately := at.Sub(s.confirmed[x.ID]) < time.Duration(x.Timeout)*time.Millisecond/2
	s.mu.Unlock()
	if lately && (n.Touch(x.ID) || s.acknowledged(ctx, n, x.ID, at)) {
		s.noteConfirmed(x.ID, at)
		return at, true, nil
	}
	return s.renewByEntry(ctx, x.ID, x.Timeout)
}

// acknowledged() waits until the leader has acknowledged the touch.
func (s *Server) acknowledged(ctx context.Context, n Node, id int64, at time.Time) bool {
	r := &renewal{id: id, at: at}
	s.mu.Lock()
	s.renewals[r] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.renewals, r)
		s.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, ackTime)
	defer cancel()
	return n.Acknowledged(ctx, func(sent time.Time) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !r.taken.IsZero() && !sent.Before(r.taken)
	}) == nil
}

func (s *Server) renewByEntry(ctx context.Context, id int64, timeout int32) (at time.Time, lives bool,
	err error) {
	at = time.Now()
	out, err := s.do(ctx, state.ChangeTicket(id, timeout))
	if err != nil || out.Refused {
		return at, false, err
	}
	s.noteConfirmed(id, at)
	return at, true, nil
}

// noteConfirmed stores when the leader last confirmed a ticket, until Ended() removes it. If the ticket has
// already ended, noteConfirmed stores nothing, because Ended() will not come again.
func (s *Server) noteConfirmed(id int64, at time.Time) {
	(*s.node.Load()).View(func(st *state.State) {
		if x, _ := st.Sessions().Get(id); x.Ticket == nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.confirmed[id].Before(at) {
			s.confirmed[id] = at
		}
	})
}

// Heard appends the tickets whose callers ask or wait at this server. For a wait it does so from time to
// time; if `all` is true, it appends all of them.
func (s *Server) Heard(list []state.Touch, all bool) []state.Touch {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for r := range s.renewals {
		if r.taken.IsZero() {
			r.taken = now
		}
		list = append(list, state.Touch{Session: r.id, Age: uint32(now.Sub(r.at).Milliseconds())})
	}
	for w := range s.waits {
		if w.every > 0 && (all || now.Sub(w.touched) >= w.every) {
			w.touched = now
			list = append(list, state.Touch{Session: w.id})
		}
	}
	return list
}

// usable() returns how long after the leader has heard of it a ticket surely lives. The rest of its timeout
// is a margin, the same as in package client for sessions.
func usable(timeout int32) time.Duration {
	ttl := time.Duration(timeout) * time.Millisecond
	return time.Duration(float64(ttl)*0.995) - max(ttl/5, time.Second)
}
