package tickets

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree/acl"
)

// gone() returns the answer for a ticket that has ended. A ticket of another identity looks like one that
// never was.
func gone(q *Request, g *sight) *Answer {
	e := &g.over
	if e.Why == 0 || e.Identity != q.Identity.Name {
		return fail(http.StatusNotFound, "unknown", "there is no such ticket, or it ended more than ten "+
			"minutes ago")
	}
	at := time.UnixMilli(e.At).UTC().Format(time.RFC3339)
	text := map[session.TicketEnd]string{
		session.TicketGiven:   "it was given back at " + at,
		session.TicketExpired: "its time was over at " + at + ": the work may have overlapped",
		session.TicketRevoked: "it was asked to leave the queue, at " + at,
		session.TicketRemoved: "its place was removed, as seen at " + at + ": the work may have overlapped",
		session.TicketEnded:   "an operator or a restore ended it at " + at + ": the work may have overlapped",
	}[e.Why]
	return fail(http.StatusGone, words[e.Why], "%s", text)
}

// wrong() returns an answer that refuses a request which does not fit its ticket, and nil if it fits.
func (q *Request) wrong(g *sight) *Answer {
	k := g.session.Ticket
	switch {
	case k.Identity != q.Identity.Name:
		return fail(http.StatusNotFound, "unknown", "there is no such ticket")
	case k.Path != q.Path:
		return fail(http.StatusConflict, "path", "the ticket belongs to another path: %s", k.Path)
	case q.ModeGiven && q.Mode != k.Mode:
		return fail(http.StatusConflict, "path", "the ticket has another mode")
	case q.Permits != 0 && int32(q.Permits) != k.Permits:
		return fail(http.StatusConflict, "path", "the ticket is for %d permits", k.Permits)
	}
	return nil
}

func (g *sight) etag() string {
	if g.held {
		return `"h-` + strconv.FormatInt(g.token, 10) + `"`
	}
	return `"q-` + strconv.Itoa(g.ahead) + `"`
}

// Take opens a ticket, or renews it and waits for it.
func (s *Server) Take(ctx context.Context, q *Request) *Answer {
	off, ok := s.serving(q)
	if !ok {
		return unavailable(errAgain)
	}
	opened := false
	g, err := s.view(q), error(nil)
	if !g.lives() && g.over.Why == 0 {
		if q.IfMatch != "" {
			if g, err = s.sure(ctx, q); err != nil {
				return unavailable(err)
			}
		} else {
			var a *Answer
			if opened, a, err = s.open(ctx, q); err != nil {
				return unavailable(err)
			}
			if a != nil {
				return a
			}
			g = s.view(q)
		}
	}
	if !g.lives() {
		return gone(q, &g)
	}
	if a := q.wrong(&g); a != nil {
		return a
	}
	if q.IfMatch != "" && q.IfMatch != "*" && q.IfMatch != g.etag() {
		return fail(http.StatusPreconditionFailed, "changed", "the ticket is %s", g.etag())
	}
	at := q.Arrived
	if !opened {
		if q.TTL != 0 && int32(q.TTL.Milliseconds()) != g.session.Timeout {
			at, ok, err = s.renewByEntry(ctx, g.session.ID, int32(q.TTL.Milliseconds()))
		} else {
			at, ok, err = s.confirm(ctx, g.session)
		}
		if err != nil {
			return unavailable(err)
		}
		if !ok {
			g = s.view(q)
			return gone(q, &g)
		}
	}
	g, a := s.await(ctx, q, off, true)
	if a != nil {
		return a
	}
	if waited := time.Since(at); g.held && waited > time.Second {
		if at, ok, err = s.confirm(ctx, g.session); err != nil {
			return unavailable(err)
		} else if !ok {
			g = s.view(q)
			return gone(q, &g)
		}
		q.Wait = 0
		if g, a = s.await(ctx, q, off, true); a != nil { // without a wait: only look at the ticket
			return a
		}
	}
	a = s.told(q, &g, at)
	if opened && a.Code == http.StatusOK {
		a.Code = http.StatusCreated
	}
	return a
}

// await() waits until a ticket holds its lock, or its state is no longer the one that the caller knows, or
// the caller's time is over. If the ticket has ended, or something prevents the wait, it returns an answer.
func (s *Server) await(ctx context.Context, q *Request, off <-chan struct{}, renews bool) (g sight,
	a *Answer) {
	var w *wait
	patience := time.NewTimer(max(q.Wait-time.Since(q.Arrived), 0))
	defer patience.Stop()
	grants := 0
	for over := q.Wait == 0; ; {
		now := s.o.Now().UnixMilli()
		(*s.node.Load()).View(func(st *state.State) {
			g = look(st, q.Secret, now, q.IDs)
			if w == nil {
				return
			}
			children := ""
			if q.IfNoneMatch != "" && !g.held { // the caller wants to hear of a new place: any contender may change it
				children = g.dir
			}
			s.arm(w, append(g.watch, g.blocker, g.node, children)...)
		})
		q.seen += g.seen
		switch {
		case !g.lives():
			return g, gone(q, &g)
		case g.node == "":
			return g, s.leaves(ctx, q, &g, session.TicketRemoved)
		case g.mixed != nil: // contenders of another kind use the path, so the ticket can never hold its lock
			if a := s.stepsAside(ctx, q, &g, session.TicketGiven); a != nil {
				return g, a
			}
			continue
		case g.asked != nil && !g.held:
			if a := s.stepsAside(ctx, q, &g, session.TicketRevoked); a != nil {
				return g, a
			}
			continue
		case g.grant != nil && renews && grants < triesMost:
			grants++
			if a := s.promote(ctx, q, &g); a != nil {
				return g, a
			}
			continue
		case q.Try && renews && !g.held && g.session.Ticket.Mode == permit:
			if a := s.stepsAside(ctx, q, &g, session.TicketTried); a != nil {
				return g, a
			}
			continue
		case g.asked != nil, over, q.IfNoneMatch == "" && g.held,
			q.IfNoneMatch != "" && q.IfNoneMatch != g.etag():
			return g, nil
		}
		if w == nil {
			ttl := time.Duration(g.session.Timeout) * time.Millisecond
			w = &wait{id: g.session.ID, identity: q.Identity.Name, wake: make(chan struct{}, 1),
				touched: time.Now(), every: ttl / 8}
			if !renews {
				w.every = 0
			}
			if why := s.enter(w, q.Identity.Waits); why != "" {
				return g, fail(http.StatusTooManyRequests, "limit", "%s", why)
			}
			defer s.leave(w)
			continue // what changed before the wait was armed does not wake it: look once more
		}
		select {
		case <-w.wake:
		case <-patience.C:
			over = true
		case <-off:
			return g, unavailable(errAgain)
		case <-ctx.Done():
			return g, unavailable(ctx.Err())
		}
	}
}

// stepsAside ends a ticket that does not hold its lock, and returns the answer. It returns nil if the ticket
// has changed: then the caller must look again.
func (s *Server) stepsAside(ctx context.Context, q *Request, g *sight, why session.TicketEnd) *Answer {
	switch left, err := s.leavesPlace(ctx, g); {
	case err != nil:
		return unavailable(err)
	case !left:
		return nil
	}
	return s.leaves(ctx, q, g, why)
}

// leavesPlace removes the node of a ticket that does not hold its lock. It must not do so if the ticket has
// got the lock since the caller looked, because the answer to another request may have told the client that.
// In that case, and after other changes, it returns false, and the caller must look again.
func (s *Server) leavesPlace(ctx context.Context, g *sight) (left bool, err error) {
	var ops []byte
	add := func(op jute.OpCode, path string, version int32) {
		ops = jute.AppendMultiHeader(ops, op, false, -1)
		ops = jute.AppendInt(jute.AppendString(ops, path), version)
	}
	if g.obstacle.path != "" {
		add(jute.OpCheck, g.obstacle.path, g.obstacle.version)
	}
	for _, is := range g.obstacle.above {
		ops = state.AppendUnchanged(ops, is.dir, is.next)
	}
	add(jute.OpDelete, g.node, -1)
	out, err := s.transact(ctx, g, acl.Super, jute.AppendMultiHeader(ops, jute.OpError, true, -1))
	switch {
	case err != nil:
		return false, err
	case out.Refused: // the ticket has changed: another request has renewed or ended it
		return false, nil
	}
	switch out.Code {
	case jute.OK:
		return true, nil
	case jute.NoNode, jute.BadVersion:
		return false, nil
	}
	return false, errAgain
}

// transact() sends a transaction in a ticket's session. If the transaction fails, the code of the outcome is
// the code of the operation that failed.
func (s *Server) transact(ctx context.Context, g *sight, ids []jute.ID, ops []byte) (state.Outcome, error) {
	out, err := s.do(ctx, state.Request{Session: g.session.ID, Gen: g.session.Gen, Op: jute.OpMulti, IDs: ids,
		Body: ops})
	if err == nil && out.Code == jute.OK && !out.Refused {
		out.Code = state.FirstFailure(out.Reply)
	}
	return out, err
}

// leaves() ends a ticket that has no node any longer, and returns the answer.
func (s *Server) leaves(ctx context.Context, q *Request, g *sight, why session.TicketEnd) *Answer {
	if err := s.end(ctx, q, g.session.ID, why); err != nil {
		return unavailable(err)
	}
	switch why {
	case session.TicketGiven:
		return notHere(g.mixed)
	case session.TicketTried:
		a := fail(http.StatusConflict, "held", "the permits are in use")
		a.Body.(*failure).Behind = g.behind
		return a
	}
	now := s.view(q)
	return gone(q, &now)
}

// told() returns the answer for a living ticket. `at` is when the leader last heard of the ticket.
func (s *Server) told(q *Request, g *sight, at time.Time) *Answer {
	a := &Answer{Code: http.StatusOK, ETag: g.etag()}
	ttl := int64(g.session.Timeout)
	if g.held {
		b := &heldBody{V: 1, Held: true, Token: strconv.FormatInt(g.token, 10), Sequencer: g.sequencer(),
			TTL: ttl, Slots: g.slots, NoSlots: g.noSlots}
		if !at.IsZero() {
			b.Safe = max((at.Sub(q.Arrived) + usable(g.session.Timeout)).Milliseconds(), 0)
			if until := g.session.Ticket.Until; until != 0 {
				left := time.UnixMilli(until).Sub(s.o.Now()) + time.Since(q.Arrived) - clocksApart
				b.Safe = max(min(b.Safe, left.Milliseconds()), 0)
			}
		}
		if g.asked != nil {
			b.Asked = &asked{cut(g.asked.By), cut(g.asked.Reason)}
		}
		a.Body = b
	} else {
		a.Code = http.StatusAccepted
		a.Retry = min(time.Duration(ttl)*time.Millisecond/2, 30*time.Second)
		a.Body = &queuedBody{V: 1, Position: g.ahead, Of: g.of, TTL: ttl, Behind: g.behind}
	}
	if q.IfNoneMatch == a.ETag {
		return &Answer{Code: http.StatusNotModified, ETag: a.ETag}
	}
	return a
}

// Give gives a ticket back, whether it holds its lock or waits for it.
func (s *Server) Give(ctx context.Context, q *Request) *Answer {
	if _, ok := s.serving(q); !ok {
		return unavailable(errAgain)
	}
	var g sight
	for left := false; !left; {
		var err error
		if g, err = s.sure(ctx, q); err != nil {
			return unavailable(err)
		}
		if !g.lives() {
			return gone(q, &g)
		}
		if a := q.wrong(&g); a != nil {
			return a
		}
		if q.IfMatch != "" && q.IfMatch != "*" && q.IfMatch != g.etag() {
			return fail(http.StatusPreconditionFailed, "changed", "the ticket is %s", g.etag())
		}
		if q.IfMatch != g.etag() || g.held || g.node == "" {
			break
		}
		// This request must end only a ticket that waits. If the ticket holds its lock by now, look again.
		if left, err = s.leavesPlace(ctx, &g); err != nil {
			return unavailable(err)
		}
	}
	if err := s.end(ctx, q, g.session.ID, session.TicketGiven); err != nil {
		return unavailable(err)
	}
	if now := s.view(q); now.over.Why != session.TicketGiven {
		return gone(q, &now)
	}
	return &Answer{Code: http.StatusNoContent}
}

// Show describes a ticket, or the lock if the request names no ticket. It does not renew the ticket.
func (s *Server) Show(ctx context.Context, q *Request, ticket bool) *Answer {
	off, ok := s.serving(q)
	if !ok {
		return unavailable(errAgain)
	}
	if !ticket {
		var l Lock
		allowed := false
		(*s.node.Load()).View(func(st *state.State) {
			if allowed = mayRead(st.Tree(), q.Path, q.IDs); allowed {
				l = describe(st.Tree(), q)
			}
		})
		if !allowed {
			return fail(http.StatusForbidden, "forbidden", "the access rights of the path refuse this identity")
		}
		return &Answer{Code: http.StatusOK, Body: &l}
	}
	g, err := s.sure(ctx, q)
	switch {
	case err != nil:
		return unavailable(err)
	case !g.lives():
		return gone(q, &g)
	}
	if a := q.wrong(&g); a != nil {
		return a
	}
	if q.Wait > 0 && q.IfNoneMatch != "" {
		var a *Answer
		if g, a = s.await(ctx, q, off, false); a != nil {
			return a
		}
	}
	if g.node == "" {
		return s.leaves(ctx, q, &g, session.TicketRemoved)
	}
	return s.told(q, &g, time.Time{})
}

// One is a ticket in the list of an identity's tickets.
type One struct {
	Path  string `json:"path"`
	Held  bool   `json:"held"`
	Token string `json:"token,omitempty"`
	Slots []int  `json:"slots,omitempty"`
	Since int64  `json:"since"`
	TTL   int64  `json:"ttlMs"`
	Until int64  `json:"until,omitempty"`
}

type listBody struct {
	V       int   `json:"v"`
	Tickets []One `json:"tickets"`
}

// shownTickets bounds the length of a list.
const shownTickets = 1000

// List lists the tickets of an identity, without their secrets.
func (s *Server) List(q *Request) *Answer {
	if _, ok := s.serving(q); !ok {
		return unavailable(errAgain)
	}
	var all []session.Session
	(*s.node.Load()).View(func(st *state.State) {
		all = st.Sessions().SomeTicketsOf(q.Identity.Name, shownTickets)
	})
	b := &listBody{V: 1, Tickets: []One{}}
	for _, x := range all { // take the state lock for one ticket at a time, because there may be many
		var g sight
		(*s.node.Load()).View(func(st *state.State) {
			g = look(st, x.Ticket.Hash, s.o.Now().UnixMilli(), q.IDs)
		})
		q.seen += 10 + g.seen
		if !g.lives() {
			continue
		}
		one := One{Path: x.Ticket.Path, Held: g.held, Since: x.Created, TTL: int64(g.session.Timeout),
			Until: x.Ticket.Until}
		if g.held {
			one.Token, one.Slots = strconv.FormatInt(g.token, 10), g.slots
		}
		b.Tickets = append(b.Tickets, one)
	}
	return &Answer{Code: http.StatusOK, Body: b}
}

// serving() returns a channel that closes when the server no longer serves, or when the callers' tokens are
// replaced. `on` is false if one of the two has already happened.
func (s *Server) serving(q *Request) (off <-chan struct{}, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.off:
		return nil, false
	default:
		return s.off, s.node.Load() != nil && s.tokens.Load() == q.tokens
	}
}
