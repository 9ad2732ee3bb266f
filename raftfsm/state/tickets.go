package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// A ticket is a session without a connection, with one contender. Release 0.1.0 does not know the requests
// about tickets, and would pass over them. So a state takes them only after an entry of a kind that this
// release refuses (Ticketing), and its snapshots have a chunk from then on that it refuses, too.

// Ticketing returns the entry that lets a cluster have tickets, whatever it was before. The options are
// those of the leader's other entries.
func Ticketing(options byte, now int64) []byte {
	entry := BeginEntry(nil, options)
	entry[1] = kindTicketing | options
	r := Request{Op: OpTicketing}
	own := Block{Count: 1, Requests: r.Append(nil)}
	entry = own.Append(entry)
	SealEntry(entry, now)
	return entry
}

// HasTickets reports whether the cluster may have tickets.
func (s *State) HasTickets() bool { return s.ticketing }

// TicketBounds bound the tickets of a cluster, and those of one identity: all of them, and those on one
// path. They come with the request, and all servers judge by them.
type TicketBounds struct{ All, Identity, Path int32 }

// Opening asks for a ticket: for a session with one contender. A directory that is missing is made.
type Opening struct {
	SessionBody
	session.Ticket
	TicketBounds
	Node string // the contender's node, without the number that the tree appends
	Data []byte
	// Seen, if it is not Unseen, is the last change of the children of the node's directory, 0 if there was
	// none: if it is another by now, the request changes nothing and is answered BADVERSION.
	Seen int64
}

// Unseen is Opening.Seen of a contender that queues, whatever is ahead.
const Unseen = -1

// knownTicket is the reply for a secret that a ticket has.
var knownTicket = []byte("known")

// Open returns the request for a ticket. The outcome's Session is the new one's, or with a reply that of the
// ticket which has this secret, and which was not renewed. SESSIONEXPIRED says that the ticket with this
// secret is over. QUOTAEXCEEDED says of a bound, with a text, or of a quota. Other codes are those of the
// creation of the nodes.
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

// ticketLane is the session of requests for tickets. No client has it: floods of them wait for each other.
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
		return o, fmt.Errorf("%w: ticket request: %v", ErrCorrupt, d.Err())
	}
	return o, nil
}

// ChangeTicket returns the request that gives a ticket a timeout, in ms, which begins again: a leader that
// was about to end the ticket for its silence does not.
func ChangeTicket(id int64, timeout int32) Request {
	return Request{Session: id, Op: OpChangeTicket, Body: jute.AppendInt(nil, timeout)}
}

// EndTicket returns the request that ends a ticket. One that ends because its last moment has come
// (session.TicketExpired) does so if the time of the entry agrees. The outcome is Refused if nothing ends.
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
			return fmt.Errorf("%w: ticket request: %v", ErrCorrupt, d.Err())
		}
		s.out.Session = sess
		s.noteSession(&sess, 4)
		to.Attached(&sess, false)
		return nil
	}
	why := session.TicketEnd(d.Byte())
	if d.Err() != nil || why < session.TicketGiven || why > session.TicketTried {
		return fmt.Errorf("%w: the end of a ticket", ErrCorrupt)
	}
	if until := sess.Ticket.Until; why == session.TicketExpired && (until == 0 || until > s.change.Time) {
		s.out.Refused = true
		return nil
	}
	s.endTicket(&sess, why, to)
	return nil
}

// causes say how the end of a ticket is told to those that know of sessions only.
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
	if o.Seen != Unseen && o.Seen != s.lastChild(tree.ParentPath(o.Node)) {
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

// tooMany says which bound a further ticket would exceed.
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

// lastChild returns the zxid of the last change of a directory's children, 0 if there is no directory.
func (s *State) lastChild(dir string) int64 {
	info, there := s.tree.Get(dir)
	if !there {
		return 0
	}
	return info.Stat.Pzxid
}

// contender returns the transaction that makes the contender, and the directories that it lacks.
func (s *State) contender(o *Opening) []byte {
	ops := appendCreate(s.parentsOf(o.Node), jute.OpCreate, o.Node, o.Data, jute.FlagEphemeralSequential)
	return jute.AppendMultiHeader(ops, jute.OpError, true, -1)
}

// parentsOf returns the operations that make the directories above a node that are missing.
func (s *State) parentsOf(path string) (ops []byte) {
	var missing []string
	for dir := tree.ParentPath(path); dir != "" && dir != "/"; dir = tree.ParentPath(dir) {
		if _, there := s.tree.Find(dir); there {
			break
		}
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		ops = appendCreate(ops, jute.OpCreateContainer, dir, []byte{}, jute.FlagContainer)
	}
	return ops
}

func appendCreate(ops []byte, op jute.OpCode, path string, data []byte, flags int32) []byte {
	ops = jute.AppendMultiHeader(ops, op, false, -1)
	ops = jute.AppendBuffer(jute.AppendString(ops, path), data)
	return jute.AppendInt(jute.AppendACL(ops, jute.WorldAnyone), flags)
}

// FirstFailure returns the code of the operation for which a transaction failed, OK if it did not fail.
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

// errTicketing refuses a backup with tickets where the cluster's other servers may not know them.
var errTicketing = errors.New("the backup may have tickets, and this cluster has had none: start its " +
	"servers with --one-layout, or with --ticket-addr and open a ticket, and restore again")
