package tickets

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

// node() returns the path of a new contender's node, and the node's data.
func (q *Request) node(l recipe.Layout, k recipe.Role) (path string, data []byte) {
	o := recipe.Owner{Host: q.Addr, Cmd: "ticket", User: q.Who, Reason: q.Reason, Revocable: true}
	if user, host, both := strings.Cut(q.Who, "@"); both {
		o.User, o.Host = user, host
	}
	dir := q.Path
	if q.Mode == permit {
		dir, o.Limit = recipe.Join(q.Path, recipe.QueueName), q.Limit
	}
	return recipe.Join(dir, recipe.NodeName(l, k, newID(), "ticket")), recipe.EncodeOwner(o)
}

// open() opens a ticket. If it returns neither an answer nor an error, the ticket exists, or has existed and
// ended; `opened` says whether it is new.
func (s *Server) open(ctx context.Context, q *Request) (opened bool, _ *Answer, _ error) {
	var password [jute.PasswordSize]byte
	_, _ = rand.Read(password[:]) // rand.Read never fails
	until := int64(0)
	if !q.Until.IsZero() {
		until = q.Until.UnixMilli()
	}
	for try := range triesMost {
		var c newcomer
		var tooFast *Answer
		(*s.node.Load()).View(func(st *state.State) {
			if try == 0 { // check the pace before lookAt, which may cost more than the refusal
				tooFast = s.opens(&q.Identity, len(state.Missing(st.Tree(), q.Path+"/")))
			}
			if tooFast == nil {
				c = lookAt(st.Tree(), q)
			}
		})
		switch {
		case tooFast != nil:
			return false, tooFast, nil
		case !q.Until.IsZero() && !q.Until.After(s.o.Now()): // the ticket is new: its end must lie ahead
			return false, fail(http.StatusBadRequest, "parameters", "until %s is over",
				q.Until.Format(time.RFC3339)), nil
		case c.err != nil:
			return false, notHere(c.err), nil
		case q.Try && c.blocked:
			a := fail(http.StatusConflict, "held", "the lock is held")
			a.Body.(*failure).Behind = c.behind
			return false, a, nil
		}
		o := state.Opening{Seen: state.Unseen,
			SessionBody: state.SessionBody{Timeout: int32(q.ttl().Milliseconds()), Password: password,
				Owner: s.o.ID, Addr: q.Addr},
			Ticket: session.Ticket{Hash: q.Secret, Identity: q.Identity.Name, Path: q.Path, Mode: q.Mode,
				Until: until, Permits: int32(q.permits())},
			TicketBounds: state.TicketBounds{All: MaxTickets, Identity: int32(q.Identity.Tickets),
				Path: int32(q.Identity.OnPath)}}
		if q.Try {
			o.Seen = c.seen
		}
		o.Node, o.Data = q.node(q.Layout, c.role)
		at := time.Now()
		out, err := s.do(ctx, o.Open(q.IDs))
		if err != nil { // log it now: a repeated request that finds the ticket logs nothing
			s.audit("openTicket", q, resultUnsure)
			return false, nil, err
		}
		switch out.Code {
		case jute.OK:
			if opened = len(out.Reply) == 0; opened {
				s.noteConfirmed(out.Session.ID, at)
				s.audit("openTicket", q, resultDone)
			}
			return opened, nil, nil
		case jute.BadVersion:
			continue
		case jute.Unimplemented:
			if err := (*s.node.Load()).AllowTickets(ctx); err != nil {
				return false, fail(http.StatusServiceUnavailable, "mixed-releases", "%v", err), nil
			}
			continue
		case jute.SessionExpired:
			return false, nil, nil // the ticket has ended; the caller looks again, and sees why
		}
		s.audit("openTicket", q, resultFailed)
		return false, refusal(&out), nil
	}
	return false, fail(http.StatusServiceUnavailable, "busy",
		"other requests were faster than this one: repeat the request"), nil
}
