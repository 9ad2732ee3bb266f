package state

import (
	"errors"
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// A ticket is a session without a connection, with one contender. Release 0.1.0 does not know the requests
// about tickets and would ignore them. So a state accepts them only after an entry (Ticketing) whose kind
// release 0.1.0 refuses; from then on its snapshots have a chunk that release 0.1.0 refuses, too.

// Ticketing returns the entry that allows tickets in a cluster. `options` are the options that the leader
// sets in its other entries.
func Ticketing(options byte, now int64) []byte {
	return entries.One(entries.KindTicketing, options, &Request{Op: OpTicketing}, now)
}

// HasTickets reports whether the cluster may have tickets.
func (s *State) HasTickets() bool { return s.ticketing }

// TicketBounds bounds the tickets of a cluster, of one identity, and of one identity on one path. The bounds
// travel with the request, so that all servers apply the same bounds.
type TicketBounds struct{ All, Identity, Path int32 }

// Opening asks for a ticket: a session with one contender. It makes the contender's directory if that is
// missing.
type Opening struct {
	SessionBody
	session.Ticket
	TicketBounds
	Node string // the contender's node, without the number that the tree appends
	Data []byte
	// Seen is the zxid of the last change of the directory's children that the sender knows; it is 0 if the
	// sender found no directory. If the children have changed since, the request has no effect and its code is
	// BADVERSION. Unseen skips this check.
	Seen int64
}

// Unseen is the value of Opening.Seen for a contender that joins the queue even if the directory's children
// have changed.
const Unseen = -1

// knownTicket is the reply to a request whose secret belongs to a ticket.
var knownTicket = []byte("known")

// Open returns the request for a ticket. The outcome's Session is the new ticket's. If a ticket with this
// secret exists, the outcome has a reply, and its Session is the session of that ticket; Open does not renew
// the ticket. SESSIONEXPIRED means that the ticket with this secret is over. QUOTAEXCEEDED with a text means
// that a bound is exceeded; without a text, a quota. Other codes are those of creating the nodes.
func (o *Opening) Open(ids []jute.ID) Request {
	b := append(o.SessionBody.Append(nil), o.Hash[:]...)
	b = jute.AppendString(jute.AppendString(b, o.Ticket.Identity), o.Ticket.Path)
	b = jute.AppendLong(jute.AppendInt(append(b, o.Mode), o.Permits), o.Until)
	for _, n := range []int32{o.TicketBounds.All, o.TicketBounds.Identity, o.TicketBounds.Path} {
		b = jute.AppendInt(b, n)
	}
	b = jute.AppendLong(jute.AppendBuffer(jute.AppendString(b, o.Node), o.Data), o.Seen)
	return Request{Session: ticketLane, Op: OpOpenTicket, IDs: ids, Body: b}
}

// ticketLane stands for requests about tickets in place of a session id; no client has this id. These
// requests share one lane of the stream, so a flood of them delays only tickets.
const ticketLane = -2

func decodeOpening(body []byte) (o Opening, err error) {
	d := jute.NewDecoder(body)
	str := func() string {
		s, _ := d.String()
		return strings.Clone(s)
	}
	o.Timeout = d.Int()
	for i := range o.Password {
		o.Password[i] = d.Byte()
	}
	o.Owner, o.Addr = uint32(d.Int()), str()
	for i := range o.Hash {
		o.Hash[i] = d.Byte()
	}
	o.Ticket.Identity, o.Ticket.Path, o.Mode, o.Permits, o.Until = str(), str(), d.Byte(), d.Int(), d.Long()
	o.TicketBounds = TicketBounds{All: d.Int(), Identity: d.Int(), Path: d.Int()}
	o.Node, o.Data, o.Seen = str(), d.Buffer(), d.Long()
	if d.Err() != nil || o.Permits < 0 || o.Until < 0 || o.Node == "" {
		return o, fmt.Errorf("%w: ticket request: %v", entries.ErrCorrupt, d.Err())
	}
	return o, nil
}

// ChangeTicket returns the request that gives a ticket a new timeout, in ms, which starts now. A leader that
// was about to end the ticket for its silence no longer does.
func ChangeTicket(id int64, timeout int32) Request {
	return Request{Session: id, Op: OpChangeTicket, Body: jute.AppendInt(nil, timeout)}
}

// EndTicket returns the request that ends a ticket. With session.TicketExpired it has an effect only if the
// ticket is overdue by the entry's time. The outcome is Refused if nothing ends.
func EndTicket(id int64, why session.TicketEnd) Request {
	return Request{Session: id, Op: OpEndTicket, Body: []byte{byte(why)}}
}

// applyTicket runs a request about a ticket.
func (s *State) applyTicket(r *Request, to Sink) error {
	if r.Op == OpTicketing {
		s.ticketing = true
		return nil
	}
	if !s.ticketing {
		s.out.Code = jute.Unimplemented
		return nil
	}
	if r.Op == OpDraw {
		return s.draw(r, to)
	}
	if r.Op == OpOpenTicket {
		o, err := decodeOpening(r.Body)
		if err == nil {
			s.openTicket(&o, r.IDs, to)
		}
		return err
	}
	sess, _ := s.sessions.Get(r.Session)
	if sess.Ticket == nil {
		s.out.Refused = true
		return nil
	}
	d := jute.NewDecoder(r.Body)
	if r.Op == OpChangeTicket {
		sess, _ = s.sessions.SetTimeout(r.Session, d.Int())
		if d.Err() != nil {
			return fmt.Errorf("%w: ticket request: %v", entries.ErrCorrupt, d.Err())
		}
		s.out.Session = sess
		s.noteSession(&sess, 4)
		to.Attached(&sess, false)
		return nil
	}
	why := session.TicketEnd(d.Byte())
	if d.Err() != nil || why < session.TicketGiven || why > session.TicketTried {
		return fmt.Errorf("%w: the end of a ticket is invalid", entries.ErrCorrupt)
	}
	if until := sess.Ticket.Until; why == session.TicketExpired && (until == 0 || until > s.change.Time) {
		s.out.Refused = true
		return nil
	}
	s.endTicket(&sess, why, to)
	return nil
}

// causes maps the end of a ticket to the end of a session, for receivers that know only sessions.
var causes = [...]EndCause{session.TicketGiven: EndClosed, session.TicketExpired: EndExpired,
	session.TicketRevoked: EndClosed, session.TicketRemoved: EndClosed, session.TicketEnded: EndOperator,
	session.TicketTried: EndClosed}

func (s *State) endTicket(sess *session.Session, why session.TicketEnd, to Sink) {
	if why != session.TicketTried {
		s.sessions.NoteTicketEnd(sess.Ticket, why, s.change.Time)
	}
	s.removeSession(sess, causes[why], to)
}

// openTicket makes session, directory and contender, or nothing.
func (s *State) openTicket(o *Opening, ids []jute.ID, to Sink) {
	if sess, known := s.sessions.Ticket(o.Hash); known {
		s.out.Session, s.out.Reply = sess, knownTicket
		return
	}
	if _, over := s.sessions.EndOfTicket(o.Hash, s.change.Time); over {
		s.out.Code = jute.SessionExpired
		return
	}
	if why := s.tooMany(o); why != "" {
		s.out.Code = jute.QuotaExceeded
		s.reply = append(s.reply[:0], why...)
		s.out.Reply = s.reply
		return
	}
	if o.Seen != Unseen && o.Seen != s.lastChild(bounds.ParentPath(o.Node)) {
		s.out.Code = jute.BadVersion
		return
	}
	s.begin()
	sess := s.sessions.CreateTicket(o.Timeout, o.Password, o.Owner, o.Addr, s.change.Time, o.Ticket)
	s.change.Session, s.change.IDs = sess.ID, ids
	reply, code, changed := s.tree.Apply(&s.change, jute.OpMulti, s.contender(o), s.reply[:0])
	s.reply = reply
	if !changed {
		s.sessions.Remove(sess.ID)
		s.out.Divided = s.change.Divided
		if s.out.Code = code; code == jute.OK {
			s.out.Code = FirstFailure(reply)
		}
		return
	}
	s.out.Session = sess
	s.noteSession(&sess, 1)
	s.commit(to)
	to.Attached(&sess, true)
}

// tooMany describes the bound that one more ticket would exceed, or returns "".
func (s *State) tooMany(o *Opening) string {
	all, there := s.sessions.TicketsOf(o.Ticket.Identity, o.Ticket.Path)
	switch b := o.TicketBounds; {
	case s.sessions.Tickets() >= int(b.All):
		return fmt.Sprintf("the cluster has %d tickets, and no more than %d are allowed", s.sessions.Tickets(),
			b.All)
	case all >= int(b.Identity):
		return fmt.Sprintf("this identity has %d tickets, and no more than %d are allowed", all, b.Identity)
	case there >= int(b.Path):
		return fmt.Sprintf("this identity has %d tickets on this path, and no more than %d are allowed", there,
			b.Path)
	}
	return ""
}

// lastChild returns the zxid of the last change of a directory's children. It returns 0 if the directory does
// not exist.
func (s *State) lastChild(dir string) int64 {
	info, there := s.tree.Get(dir)
	if !there {
		return 0
	}
	return info.Stat.Pzxid
}

// contender returns the transaction that makes the contender and its missing directories.
func (s *State) contender(o *Opening) []byte {
	above := parents(Missing(s.tree, o.Node))
	ops := appendCreate(above, jute.OpCreate, o.Node, o.Data, jute.FlagEphemeralSequential)
	return jute.AppendMultiHeader(ops, jute.OpError, true, -1)
}

// Missing returns the missing directories above a node, the topmost first. It walks the path once, because a
// path may have a thousand names.
func Missing(t *tree.Tree, path string) (dirs []string) {
	at, there := t.Find("/")
	for from := 1; from < len(path); {
		n := strings.IndexByte(path[from:], '/')
		if n < 0 {
			break
		}
		if there {
			at, there = t.Child(at, path[from:from+n])
		}
		if !there {
			dirs = append(dirs, path[:from+n])
		}
		from += n + 1
	}
	return dirs
}

// parents() returns the operations that make directories.
func parents(dirs []string) (ops []byte) {
	for _, dir := range dirs {
		ops = appendCreate(ops, jute.OpCreateContainer, dir, []byte{}, jute.FlagContainer)
	}
	return ops
}

func appendCreate(ops []byte, op jute.OpCode, path string, data []byte, flags int32) []byte {
	ops = jute.AppendMultiHeader(ops, op, false, -1)
	ops = jute.AppendBuffer(jute.AppendString(ops, path), data)
	return jute.AppendInt(jute.AppendACL(ops, jute.WorldAnyone), flags)
}

// FirstFailure returns the code of the operation that made a transaction fail. It returns OK if the
// transaction did not fail.
func FirstFailure(reply []byte) jute.ErrCode {
	d := jute.NewDecoder(reply)
	for h := d.MultiHeader(); !h.Done && d.Err() == nil; h = d.MultiHeader() {
		if h.Type != jute.OpError {
			return jute.OK
		}
		if code := jute.ErrCode(d.Int()); code != jute.OK && code != jute.RuntimeInconsistency {
			return code
		}
	}
	return jute.BadArguments
}

// errTicketing refuses a backup with tickets if other servers of the cluster may not know tickets.
var errTicketing = errors.New("the backup may have tickets, and this cluster has never had one: " +
	"start the cluster's servers with --one-layout, or start them with --ticket-addr and open one ticket; " +
	"then restore again")
