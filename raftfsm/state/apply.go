package state

import (
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/tree"
)

// Apply runs one entry. An error means that this server must stop: the entry is damaged, comes from a newer
// version, or shows that servers differ.
func (s *State) Apply(entry []byte, to Sink) error {
	if err := entries.Check(entry); err != nil {
		return err
	}
	options := entries.Options(entry)
	s.change = tree.Change{
		Time:    entries.Time(entry),
		NoQuota: options&entries.NoQuota != 0,
		NoTTL:   options&entries.NoTTL != 0,
		Full:    options&entries.Full != 0,
		Budget:  s.budget(),
		Events:  s.change.Events[:0],

		OneLayout: options&entries.OneLayout != 0,
	}
	sets, rest, err := entries.Sets(entry)
	if err != nil {
		return err
	}
	for len(rest) > 0 {
		bl, next, err := entries.NextBlock(rest)
		if err != nil {
			return err
		}
		if err := s.applyBlock(&bl, sets, to); err != nil {
			return err
		}
		rest = next
	}
	return nil
}

// applyBlock runs the requests of a block that are not applied yet. A repeated block may begin with applied
// requests. A block that begins after a gap, or has an older birth, is ignored as a whole, because its server
// sends the requests again.
func (s *State) applyBlock(bl *entries.Block, sets [][]jute.ID, to Sink) error {
	mark := s.streams[bl.Origin]
	numbered := bl.Origin != 0 && bl.Birth != 0
	if numbered && bl.Birth != mark.birth {
		return nil
	}
	if numbered {
		defer func() { s.streams[bl.Origin] = mark }()
	}
	var r Request
	rest := bl.Requests
	for i := range uint64(bl.Count) {
		var err error
		if rest, s.ids, err = entries.Decode(rest, sets, &r, s.ids[:0]); err != nil {
			return err
		}
		seq := bl.First + i
		if numbered {
			if seq <= mark.last {
				continue
			}
			if seq != mark.last+1 {
				return nil
			}
			mark.last = seq
		} else if bl.Origin != 0 && r.Op != OpOpenStream {
			return fmt.Errorf("%w: %v outside any stream", entries.ErrCorrupt, r.Op)
		}
		s.out, s.change.Steps = Outcome{}, 0
		if err := s.applyRequest(&r, to); err != nil {
			return err
		}
		if s.out.Zxid == 0 {
			s.out.Zxid = s.zxid
		}
		s.out.Steps = s.change.Steps
		to.Outcome(bl.Origin, bl.Birth, seq, &s.out)
	}
	return nil
}

func (s *State) applyRequest(r *Request, to Sink) error {
	switch r.Op {
	case OpCreateSession, OpAttach:
		return s.applySession(r, to)
	case jute.OpCloseSession: // from release 0.1.0; it ends the session whatever its generation
		s.endSession(r.Session, EndClosed, to)
	case OpExpire:
		if _, ok := s.attached(r); ok {
			s.endSession(r.Session, causeOf(r), to)
		}
	case jute.OpSync:
		s.applySync(r)
	case OpReap:
		if s.begin(); !s.counts(string(r.Body)) && s.tree.Reap(&s.change, string(r.Body), s.change.Time) {
			s.commit(to)
		}
	case OpConfig:
		s.begin()
		is, _ := s.tree.Get(config.Path)
		s.setConfig(r.Body, s.nextVersion(is), to)
	case OpFound:
		if s.zxid == 0 {
			s.found(r.Body, firstZxid, to)
		}
	case OpBegin:
		s.applyBegin(r.Body, to)
	case OpWords:
		s.words = string(r.Body)
	case OpOpenStream:
		return s.openStream(r.Body, to)
	case OpDigest:
		return s.checkDigest(r.Body)
	case OpBarrier: // only its place in the log matters
	case OpStage, OpPiece, OpRestore, OpUnstage:
		s.applyStaging(r, to)
	case OpRefuse:
		s.applyRefusal(r)
	case OpTicketing, OpOpenTicket, OpChangeTicket, OpEndTicket, OpDraw:
		return s.applyTicket(r, to)
	default:
		s.applyWrite(r, to)
	}
	return nil
}

// applyWrite runs a client's write, unless the session has ended, or was attached to another connection,
// since the client sent the write.
func (s *State) applyWrite(r *Request, to Sink) {
	sess, ok := s.attached(r)
	if !ok {
		return
	}
	s.begin()
	s.change.Session = r.Session
	s.change.IDs = r.IDs
	if len(r.IDs) == 0 {
		s.ownID[0] = jute.ID{Scheme: "ip", ID: sess.Addr}
		s.change.IDs = s.ownID[:]
	}
	var changed bool
	s.reply, s.out.Code, changed = s.tree.Apply(&s.change, r.Op, r.Body, s.reply[:0])
	s.out.Reply, s.out.Divided = s.reply, s.change.Divided
	if changed {
		s.commit(to)
	}
}

// applySync changes nothing. Its place in the log makes it a barrier.
func (s *State) applySync(r *Request) {
	if _, ok := s.attached(r); !ok {
		return
	}
	d := jute.NewDecoder(r.Body)
	path := d.Buffer()
	if d.Err() != nil {
		s.out.Code = jute.MarshallingError
		return
	}
	s.reply = jute.AppendBuffer(s.reply[:0], path)
	s.out.Reply = s.reply
}

// applySession creates a session or attaches one to a new connection.
func (s *State) applySession(r *Request, to Sink) error {
	d := jute.NewDecoder(r.Body)
	timeout := d.Int()
	var password [jute.PasswordSize]byte
	for i := range password {
		password[i] = d.Byte()
	}
	owner := uint32(d.Int())
	addr, _ := d.String()
	if d.Err() != nil {
		return fmt.Errorf("%w: session request: %v", entries.ErrCorrupt, d.Err())
	}
	addr = string([]byte(addr))
	if r.Op == OpCreateSession {
		s.begin()
		s.out.Session = s.sessions.Create(timeout, password, owner, addr, s.change.Time)
		s.noteSession(&s.out.Session, 1)
		s.commit(to)
		to.Attached(&s.out.Session, true)
		return nil
	}
	sess, ok := s.sessions.Attach(r.Session, password, timeout, owner, addr)
	if !ok {
		// The session is unknown or ended, or the password is wrong. In each case the client is told that its
		// session is over.
		s.out.Code = jute.SessionExpired
		return nil
	}
	s.out.Session = sess
	s.noteSession(&sess, 2)
	to.Attached(&sess, false)
	return nil
}

// openStream gives a server's new stream its birth, the number of the stream's life. It recognises a repeated
// request by its nonce. A server cannot count its births itself, because it would reuse a number after its
// disk was wiped or after two quick restarts.
func (s *State) openStream(body []byte, to Sink) error {
	d := jute.NewDecoder(body)
	m := decodeMember(&d)
	nonce := d.Long()
	if d.Err() != nil || m.ID == 0 {
		return fmt.Errorf("%w: open stream: %v", entries.ErrCorrupt, d.Err())
	}
	mark := s.streams[m.ID]
	if mark.birth == 0 || mark.nonce != nonce {
		mark = streamMark{birth: mark.birth + 1, nonce: nonce}
		s.streams[m.ID] = mark
		s.members[m.ID] = m
		s.unstage(m.ID)
	}
	to.Opened(m.ID, nonce, mark.birth)
	return nil
}

// applyRefusal answers a refused request with THROTTLEDOP, and changes nothing.
func (s *State) applyRefusal(r *Request) {
	if _, ok := s.attached(r); ok {
		s.out.Code = jute.Throttled
	}
}
