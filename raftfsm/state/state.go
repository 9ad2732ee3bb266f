// Package state is the pure replicated state: its content, its changes, and the encoding of snapshots.
// Package entries has the encoding of log entries. Package state has no raft, no clock, no lock, no
// goroutine, and no I/O except the io.Reader and io.Writer of a snapshot.
package state

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// State is everything that is replicated: the tree, the sessions, the request streams and the members. Only
// Apply changes it, so it depends on the applied entries alone.
type State struct {
	clusterID string
	zxid      int64 // zxid of the last change
	tree      *tree.Tree
	sessions  *session.Table
	streams   map[uint32]streamMark // by server id
	members   map[uint32]Member     // by server id
	words     string                // an operator's descriptions of the members: lines of config.Path
	restored  int64                 // the id of the last restore; 0: none
	rules     int32                 // the rules by which Apply changes the state
	ticketing bool                  // whether the cluster may have tickets; see Ticketing
	begun     begun                 // the rates that draws have begun

	// configured says that /zookeeper/config has been published at least once.
	configured bool

	staged *staging // a backup that will replace this state; nil: none

	ended   uint64 // rolling digest of all changes of sessions
	digests digestRing

	// Scratch space of Apply, kept to save allocations.
	change tree.Change
	ids    []jute.ID
	ownID  [1]jute.ID
	reply  []byte
	draft  []byte // memory for a request to the tree
	out    Outcome
}

// streamMark is how far a server's stream of requests has been applied.
type streamMark struct {
	birth uint32 // given by Apply when the stream was opened; 0: none
	nonce int64  // nonce of the request that opened the stream, to recognise a repetition
	last  uint64 // seq of the last request applied
}

// Sink receives what Apply produces, in order. The arguments of its methods are valid only during
// the call.
type Sink interface {
	// Events reports the changes made under one zxid. It is called before Outcome for the request that made
	// the changes.
	Events(zxid int64, events []tree.Event)
	// Ended reports that a session has ended and its ephemeral nodes are gone.
	Ended(*Ending)
	// Attached reports a session that was created, or attached to a new connection.
	Attached(s *session.Session, created bool)
	// Opened reports the birth that the stream of server id has now, and the nonce of the request that opened
	// the stream. Both are 0 if the server was removed and has no stream.
	Opened(id uint32, nonce int64, birth uint32)
	// Replaced reports that a backup has replaced the tree and the sessions. All connections and watches
	// belong to the former state. No events are reported for the changes.
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

// Members returns the servers that have opened a stream, by id. A member without an incarnation was removed.
func (s *State) Members() []Member {
	return slices.SortedFunc(maps.Values(s.members), func(a, b Member) int { return int(a.ID) - int(b.ID) })
}

// Member returns the last self-description of server id. The member has no incarnation if the server was
// removed, and is not known if the server has not opened a stream.
func (s *State) Member(id uint32) (m Member, known bool) {
	m, known = s.members[id]
	return m, known
}

// Stream returns the birth of a server's stream, the nonce of the request that opened it, and the number of
// its last applied request. The birth is 0 if the server has no stream.
func (s *State) Stream(id uint32) (birth uint32, nonce int64, last uint64) {
	mark := s.streams[id]
	return mark.birth, mark.nonce, mark.last
}

// ConfigData are the data of config.Path.
func (s *State) ConfigData() string {
	info, _ := s.tree.Get(config.Path)
	return string(info.Data)
}

// Words returns the lines of config.Path that an operator last wrote for the members. These lines may name
// servers that are not members, and may lack members.
func (s *State) Words() string { return s.words }

// Configured reports whether the members have been published in /zookeeper/config.
func (s *State) Configured() bool { return s.configured }

// Digest is a rolling checksum over every change ever applied.
func (s *State) Digest() uint64 { return mix(s.tree.Digest(), s.ended) }

// setConfig publishes the members in the change that begin() has prepared, and completes that change.
func (s *State) setConfig(text []byte, version int64, to Sink) {
	s.tree.SetConfig(&s.change, config.WithVersion(text, version))
	s.commit(to)
	s.configured = true
}

// begin() prepares the change of one request. The change gets the next zxid if it changes anything.
func (s *State) begin() {
	s.change.Zxid = s.zxid + 1
	s.change.Events = s.change.Events[:0]
}

// commit() completes the change: the state gets the zxid of the change, and the sink receives the events.
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

// attached() returns the session of a client's request. It refuses the request if the session has gone, or
// was attached to another connection after the client sent the request.
func (s *State) attached(r *Request) (sess session.Session, ok bool) {
	sess, ok = s.sessions.Get(r.Session)
	ok = ok && sess.Gen == r.Gen
	s.out.Refused = !ok
	return sess, ok
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

// clusterPrefix returns the first bits of a cluster's session ids, so that two clusters rarely share ids.
// Snapshots store the prefix, so the hash may change between releases.
func clusterPrefix(cluster string) uint32 {
	return crc32.Checksum([]byte(cluster), crc32.MakeTable(crc32.Castagnoli)) & 0xffffff
}

// mix() folds v into h. Every bit of v and h affects every bit of the result.
func mix(h, v uint64) uint64 {
	h ^= v
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}
