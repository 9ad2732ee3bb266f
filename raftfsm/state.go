package raftfsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// State is everything that is replicated: the tree, the sessions, the request
// streams and the members. It is changed only by Apply and is a function of
// the entries applied, nothing else.
type State struct {
	clusterID string
	zxid      int64 // of the last change
	tree      *tree.Tree
	sessions  *session.Table
	streams   map[uint32]streamMark // by server id
	members   map[uint32]Member     // by server id

	// configured tells that /zookeeper/config has been published once.
	configured bool

	ended   uint64 // mixed digest of all session changes
	digests digestRing

	// Scratch space of Apply, kept to save allocations.
	change tree.Change
	ids    []jute.ID
	ownID  [1]jute.ID
	reply  []byte
	out    Outcome
}

// streamMark is how far a server's stream of requests has been applied.
type streamMark struct {
	birth uint32 // given by Apply when the stream was opened; 0: none
	nonce int64  // of the open request that gave it, to recognise its repetition
	last  uint64 // seq of the last request applied
}

// Member is what a server says of itself when it opens its stream.
type Member struct {
	ID         uint32
	BirthID    string // of its data directory: a lost disk is a lost identity
	PeerAddr   string
	ClientAddr string // where clients reach it, empty if unknown
}

// sink takes what Apply produces, in order.
type sink interface {
	events(zxid int64, events []tree.Event)
	ended(id int64, cause EndCause, zxid int64)
	attached(s *session.Session, created bool)
	opened(id uint32, nonce int64, birth uint32)
	outcome(origin, birth uint32, seq uint64, o *Outcome)
}

// NewState returns the state of a new cluster.
func NewState(clusterID string) *State {
	// Session ids of different clusters should not meet; the prefix is part of
	// the snapshot, so it stays whatever the hash is.
	prefix := crc32.Checksum([]byte(clusterID), crcTable) & 0xffffff
	return &State{
		clusterID: clusterID,
		tree:      tree.New(),
		sessions:  session.NewTable(prefix),
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

// Members returns the servers that have opened a stream, by id. One without a
// birth id was removed.
func (s *State) Members() []Member {
	return slices.SortedFunc(maps.Values(s.members), func(a, b Member) int { return int(a.ID) - int(b.ID) })
}

// Digest is a rolling checksum over every change ever applied.
func (s *State) Digest() uint64 { return mix(s.tree.Digest(), s.ended) }

// Apply runs one entry. An error means that this server cannot go on: the
// entry is damaged, comes from a newer version, or shows that servers differ.
func (s *State) Apply(entry []byte, to sink) error {
	if err := checkEntry(entry); err != nil {
		return err
	}
	s.change = tree.Change{
		Time:    int64(binary.BigEndian.Uint64(entry[6:])),
		NoQuota: entry[1]&entryNoQuota != 0,
		NoTTL:   entry[1]&entryNoTTL != 0,
		Full:    entry[1]&entryFull != 0,
		Events:  s.change.Events[:0],
	}
	for rest := entry[entryHeaderSize:]; len(rest) > 0; {
		bl, next, err := nextBlock(rest)
		if err != nil {
			return err
		}
		if err := s.applyBlock(&bl, to); err != nil {
			return err
		}
		rest = next
	}
	return nil
}

// applyBlock runs the requests of one stream that have not been seen. A resent
// block may begin with requests already applied; one that begins behind a gap,
// or belongs to an older birth of its server, is void as a whole, because its
// origin sends it again.
func (s *State) applyBlock(bl *block, to sink) error {
	mark := s.streams[bl.origin]
	numbered := bl.origin != 0 && bl.birth != 0
	if numbered && bl.birth != mark.birth {
		return nil
	}
	if numbered {
		defer func() { s.streams[bl.origin] = mark }()
	}
	var r Request
	rest := bl.requests
	for i := range uint64(bl.count) {
		var err error
		if rest, s.ids, err = decodeRequest(rest, &r, s.ids[:0]); err != nil {
			return err
		}
		seq := bl.first + i
		if numbered {
			if seq <= mark.last {
				continue
			}
			if seq != mark.last+1 {
				return nil
			}
			mark.last = seq
		} else if bl.origin != 0 && r.Op != OpOpenStream {
			return fmt.Errorf("%w: %v outside any stream", errCorrupt, r.Op)
		}
		s.out = Outcome{}
		if err := s.applyRequest(&r, to); err != nil {
			return err
		}
		if s.out.Zxid == 0 {
			s.out.Zxid = s.zxid
		}
		to.outcome(bl.origin, bl.birth, seq, &s.out)
	}
	return nil
}

func (s *State) applyRequest(r *Request, to sink) error {
	switch r.Op {
	case OpCreateSession, OpAttach:
		return s.applySession(r, to)
	case jute.OpCloseSession:
		s.endSession(r.Session, EndClosed, to)
	case OpExpire:
		if sess, ok := s.sessions.Get(r.Session); ok && sess.Gen == r.Gen {
			s.endSession(r.Session, EndExpired, to)
		}
	case jute.OpSync:
		s.applySync(r)
	case OpReap:
		if s.begin(); s.tree.Reap(&s.change, string(r.Body), s.change.Time) {
			s.commit(to)
		}
	case OpConfig:
		s.begin()
		s.tree.SetConfig(&s.change, fmt.Appendf(nil, "%s\nversion=%x", r.Body, s.change.Zxid))
		s.commit(to)
		s.configured = true
	case OpOpenStream:
		return s.openStream(r.Body, to)
	case OpForget:
		if len(r.Body) == 4 {
			id := binary.BigEndian.Uint32(r.Body)
			delete(s.streams, id)
			s.members[id] = Member{ID: id} // whoever comes under this id next is new
			// A server that was removed and added again while it ran learns here
			// that its stream is gone, and opens another.
			to.opened(id, 0, 0)
		}
	case OpDigest:
		return s.checkDigest(r.Body)
	case OpBarrier: // its place in the log is all it is for
	default:
		s.applyWrite(r, to)
	}
	return nil
}

// begin prepares the change of one request, which gets the next zxid if it
// changes anything.
func (s *State) begin() {
	s.change.Zxid = s.zxid + 1
	s.change.Events = s.change.Events[:0]
}

// commit makes the change part of history.
func (s *State) commit(to sink) {
	s.zxid = s.change.Zxid
	s.out.Zxid = s.zxid
	s.digests.note(s.zxid, s)
	if len(s.change.Events) > 0 {
		to.events(s.zxid, s.change.Events)
	}
}

// applyWrite runs a client's write, if its session still stands where it stood
// when the request was sent.
func (s *State) applyWrite(r *Request, to sink) {
	sess, ok := s.sessions.Get(r.Session)
	if !ok || sess.Gen != r.Gen {
		s.out.Refused = true
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
	s.out.Reply = s.reply
	if changed {
		s.commit(to)
	}
}

// applySync changes nothing. Its place in the log is what makes it a barrier.
func (s *State) applySync(r *Request) {
	sess, ok := s.sessions.Get(r.Session)
	if !ok || sess.Gen != r.Gen {
		s.out.Refused = true
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
func (s *State) applySession(r *Request, to sink) error {
	d := jute.NewDecoder(r.Body)
	timeout := d.Int()
	var password [jute.PasswordSize]byte
	for i := range password {
		password[i] = d.Byte()
	}
	owner := uint32(d.Int())
	addr, _ := d.String()
	if d.Err() != nil {
		return fmt.Errorf("%w: session request: %v", errCorrupt, d.Err())
	}
	addr = string([]byte(addr))
	if r.Op == OpCreateSession {
		s.begin()
		s.out.Session = s.sessions.Create(timeout, password, owner, addr, s.change.Time)
		s.noteSession(&s.out.Session, 1)
		s.commit(to)
		to.attached(&s.out.Session, true)
		return nil
	}
	sess, ok := s.sessions.Attach(r.Session, password, timeout, owner, addr)
	if !ok {
		// Unknown, ended, or the wrong password: the client is told that its
		// session is over, which is true as far as it is concerned.
		s.out.Code = jute.SessionExpired
		return nil
	}
	s.out.Session = sess
	s.noteSession(&sess, 2)
	to.attached(&sess, false)
	return nil
}

// endSession removes a session and everything it owned, under one zxid.
func (s *State) endSession(id int64, cause EndCause, to sink) {
	sess, ok := s.sessions.Get(id)
	if !ok {
		s.out.Refused = true
		return
	}
	s.begin()
	s.sessions.Remove(id)
	s.tree.CloseSession(&s.change, id)
	s.noteSession(&sess, 3)
	s.commit(to)
	to.ended(id, cause, s.zxid)
}

// noteSession mixes a session's change into the digest.
func (s *State) noteSession(sess *session.Session, what uint64) {
	s.ended = mix(s.ended, uint64(sess.ID)+what)
	s.ended = mix(s.ended, uint64(sess.Gen)<<32|uint64(uint32(sess.Timeout)))
	for i := 0; i < len(sess.Password); i += 8 {
		s.ended = mix(s.ended, binary.BigEndian.Uint64(sess.Password[i:]))
	}
}

// openStream gives a server's new stream its birth. Births come from here and
// nowhere else: a wiped disk or two quick restarts would make a server reuse
// a number of its own. A repeated open is recognised by its nonce.
func (s *State) openStream(body []byte, to sink) error {
	d := jute.NewDecoder(body)
	m := decodeMember(&d)
	nonce := d.Long()
	if d.Err() != nil || m.ID == 0 {
		return fmt.Errorf("%w: open stream: %v", errCorrupt, d.Err())
	}
	mark := s.streams[m.ID]
	if mark.birth == 0 || mark.nonce != nonce {
		mark = streamMark{birth: mark.birth + 1, nonce: nonce}
		s.streams[m.ID] = mark
		s.members[m.ID] = m
	}
	to.opened(m.ID, nonce, mark.birth)
	return nil
}

// append appends m's encoding.
func (m *Member) append(b []byte) []byte {
	b = jute.AppendInt(b, int32(m.ID))
	b = jute.AppendString(b, m.BirthID)
	b = jute.AppendString(b, m.PeerAddr)
	return jute.AppendString(b, m.ClientAddr)
}

func decodeMember(d *jute.Decoder) Member {
	text := func() string {
		s, _ := d.String()
		return string([]byte(s))
	}
	return Member{ID: uint32(d.Int()), BirthID: text(), PeerAddr: text(), ClientAddr: text()}
}
