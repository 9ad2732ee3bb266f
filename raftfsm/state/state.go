package state

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// State is everything that is replicated: the tree, the sessions, the request streams and the
// members. Only Apply changes it; it is a function of the applied entries and nothing else.
type State struct {
	clusterID string
	zxid      int64 // of the last change
	tree      *tree.Tree
	sessions  *session.Table
	streams   map[uint32]streamMark // by server id
	members   map[uint32]Member     // by server id
	words     string                // an operator's descriptions of the members: lines of ConfigPath
	restored  int64                 // the id of the last restore; 0: none
	rules     int32                 // the rules by which Apply changes the state
	ticketing bool                  // there may be tickets; see Ticketing
	begun     begun                 // rates

	// configured says that /zookeeper/config has been published at least once.
	configured bool

	staged *staging // a backup that will replace this state; nil: none

	ended   uint64 // mixed digest of all session changes
	digests digestRing

	// Scratch space of Apply, kept to save allocations.
	change tree.Change
	ids    []jute.ID
	ownID  [1]jute.ID
	reply  []byte
	draft  []byte // of a request to the tree
	out    Outcome
}

// streamMark is how far a server's stream of requests has been applied.
type streamMark struct {
	birth uint32 // given by Apply when the stream was opened; 0: none
	nonce int64  // of the request that opened the stream, to recognise a repetition
	last  uint64 // seq of the last request applied
}

// Sink receives what Apply produces, in order. The arguments of its methods are valid only during
// the call.
type Sink interface {
	// Events are the changes made under one zxid, before the outcome of the
	// request that made them.
	Events(zxid int64, events []tree.Event)
	// Ended reports a session that is gone, with its ephemerals.
	Ended(*Ending)
	// Attached reports a session that was created, or attached to a new connection.
	Attached(s *session.Session, created bool)
	// Opened reports the birth that the stream of server id has now; 0: the server was removed and
	// has no stream. The nonce is that of the request; it is 0 for a removed server.
	Opened(id uint32, nonce int64, birth uint32)
	// Replaced reports that a backup has replaced the tree and the sessions. All connections and watches
	// belong to the former state. No events are reported for the difference.
	Replaced()
	// Outcome reports the outcome of request number seq of a stream.
	Outcome(origin, birth uint32, seq uint64, o *Outcome)
}

// New returns the state of a new cluster.
func New(clusterID string) *State {
	return &State{
		clusterID: clusterID,
		tree:      tree.New(),
		sessions:  session.NewTable(clusterPrefix(clusterID)),
		streams:   map[uint32]streamMark{},
		members:   map[uint32]Member{},
	}
}

// Tree returns the znodes. They must not be changed.
func (s *State) Tree() *tree.Tree { return s.tree }

// Sessions returns the sessions. They must not be changed.
func (s *State) Sessions() *session.Table { return s.sessions }

// Zxid returns the zxid of the last change.
func (s *State) Zxid() int64 { return s.zxid }

// ClusterID names the cluster this state belongs to.
func (s *State) ClusterID() string { return s.clusterID }

// Members returns the servers that have opened a stream, by id. One without an
// incarnation was removed.
func (s *State) Members() []Member {
	return slices.SortedFunc(maps.Values(s.members), func(a, b Member) int { return int(a.ID) - int(b.ID) })
}

// Member returns what server id said of itself. It has no incarnation if the server was removed,
// and is not known if the server has not opened a stream.
func (s *State) Member(id uint32) (m Member, known bool) {
	m, known = s.members[id]
	return m, known
}

// Stream returns the birth of a server's stream, 0 if it has none, the nonce of the request that
// opened it, and the number of its last applied request.
func (s *State) Stream(id uint32) (birth uint32, nonce int64, last uint64) {
	mark := s.streams[id]
	return mark.birth, mark.nonce, mark.last
}

// ConfigData are the data of ConfigPath.
func (s *State) ConfigData() string {
	info, _ := s.tree.Get(ConfigPath)
	return string(info.Data)
}

// Words are the lines of ConfigPath that an operator last wrote for the members. They may name
// servers that are not members, and not name all members.
func (s *State) Words() string { return s.words }

// Configured reports whether the members have been published in /zookeeper/config.
func (s *State) Configured() bool { return s.configured }

// Digest is a rolling checksum over every change ever applied.
func (s *State) Digest() uint64 { return mix(s.tree.Digest(), s.ended) }

// Apply runs one entry. An error means that this server cannot go on: the
// entry is damaged, comes from a newer version, or shows that servers differ.
func (s *State) Apply(entry []byte, to Sink) error {
	if err := CheckEntry(entry); err != nil {
		return err
	}
	s.change = tree.Change{
		Time:    int64(binary.BigEndian.Uint64(entry[6:])),
		NoQuota: entry[1]&NoQuota != 0,
		NoTTL:   entry[1]&NoTTL != 0,
		Full:    IsFull(entry),
		Budget:  s.budget(),
		Events:  s.change.Events[:0],

		OneLayout: entry[1]&OneLayout != 0,
	}
	sets, rest, err := decodeSets(entry)
	if err != nil {
		return err
	}
	for len(rest) > 0 {
		bl, next, err := NextBlock(rest)
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

// applyBlock runs the requests of a block that are not applied yet. A block that was sent again may begin
// with applied requests. A block that begins after a gap, or has an older birth, is ignored as a whole,
// because its server sends the requests again.
func (s *State) applyBlock(bl *Block, sets [][]jute.ID, to Sink) error {
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
		if rest, s.ids, err = decodeRequest(rest, sets, &r, s.ids[:0]); err != nil {
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
			return fmt.Errorf("%w: %v outside any stream", ErrCorrupt, r.Op)
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
	case jute.OpCloseSession: // of release 0.1.0, from any connection
		s.endSession(r.Session, EndClosed, to)
	case OpExpire:
		if _, ok := s.attached(r); ok {
			s.endSession(r.Session, r.cause(), to)
		}
	case jute.OpSync:
		s.applySync(r)
	case OpReap:
		if s.begin(); !s.counts(string(r.Body)) && s.tree.Reap(&s.change, string(r.Body), s.change.Time) {
			s.commit(to)
		}
	case OpConfig:
		s.begin()
		is, _ := s.tree.Get(ConfigPath)
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

// setConfig publishes the members. The change has begun.
func (s *State) setConfig(text []byte, version int64, to Sink) {
	s.tree.SetConfig(&s.change, withVersion(text, version))
	s.commit(to)
	s.configured = true
}

// begin prepares the change of one request. The change gets the next zxid if it changes anything.
func (s *State) begin() {
	s.change.Zxid = s.zxid + 1
	s.change.Events = s.change.Events[:0]
}

// commit makes the change part of history.
func (s *State) commit(to Sink) {
	s.zxid = s.change.Zxid
	s.out.Zxid = s.zxid
	s.digests.note(s.zxid, s)
	if len(s.change.Events) > 0 {
		s.begun.forget(s.change.Events)
		if s.staged != nil {
			s.staged.created(s.change.Events)
		}
		to.Events(s.zxid, s.change.Events)
	}
}

// attached returns the session of a client's request. It refuses the request if the session has
// gone, or was attached to another connection since.
func (s *State) attached(r *Request) (sess session.Session, ok bool) {
	sess, ok = s.sessions.Get(r.Session)
	ok = ok && sess.Gen == r.Gen
	s.out.Refused = !ok
	return sess, ok
}

// applyWrite runs a client's write, if its session is still attached as it was when the client
// sent the request.
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
		return fmt.Errorf("%w: session request: %v", ErrCorrupt, d.Err())
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

// endSession removes a session and everything it owned, under one zxid.
func (s *State) endSession(id int64, cause EndCause, to Sink) {
	sess, ok := s.sessions.Get(id)
	if !ok {
		s.out.Refused = true
		return
	}
	if sess.Ticket == nil {
		s.removeSession(&sess, cause, to)
	} else if cause == EndExpired {
		s.endTicket(&sess, session.TicketExpired, to)
	} else {
		s.endTicket(&sess, session.TicketEnded, to)
	}
}

func (s *State) removeSession(sess *session.Session, cause EndCause, to Sink) {
	s.begin()
	s.sessions.Remove(sess.ID)
	s.tree.CloseSession(&s.change, sess.ID)
	s.noteSession(sess, 3)
	s.commit(to)
	to.Ended(&Ending{*sess, cause, s.zxid, s.change.Time, s.change.Events, s.tree})
}

// noteSession mixes a session's change into the digest.
func (s *State) noteSession(sess *session.Session, what uint64) {
	s.ended = mix(s.ended, uint64(sess.ID)+what)
	s.ended = mix(s.ended, uint64(sess.Gen)<<32|uint64(uint32(sess.Timeout)))
	for i := 0; i < len(sess.Password); i += 8 {
		s.ended = mix(s.ended, binary.BigEndian.Uint64(sess.Password[i:]))
	}
	if k := sess.Ticket; k != nil {
		s.ended = mix(s.ended, binary.BigEndian.Uint64(k.Hash[:]))
		s.ended = mix(s.ended, uint64(k.Until))
	}
}

// Forget returns the request that takes away the stream of a removed server, so that the next server with its
// id counts as a new one. It opens a stream for a member without an incarnation, which no server has. So the
// births of that id go on counting, and a request sent before the removal cannot look like one of a later
// stream. A server that was removed and added again while it ran sees that its stream is gone, and opens
// another. The nonce must be random.
func Forget(id uint32, nonce int64) Request {
	m := Member{ID: id}
	return Request{Op: OpOpenStream, Body: jute.AppendLong(m.Append(nil), nonce)}
}

// openStream gives a server's new stream its birth. It recognises a repeated request by its nonce. A server
// cannot count its births itself, because it would reuse a number after its disk was wiped or after two quick
// restarts.
func (s *State) openStream(body []byte, to Sink) error {
	d := jute.NewDecoder(body)
	m := decodeMember(&d)
	nonce := d.Long()
	if d.Err() != nil || m.ID == 0 {
		return fmt.Errorf("%w: open stream: %v", ErrCorrupt, d.Err())
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
