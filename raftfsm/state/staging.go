package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// A restore replaces the whole state through the log. One request opens a staging area beside the state, more
// requests bring the backup in pieces, and a last request replaces the state with the backup. Until then no
// client sees the backup.
//
// The area belongs to the stream that brings the pieces: when that stream gets another birth, the state drops
// the area. Snapshots do not contain the area, so no server may take a snapshot while it is open; see Staged.
type staging struct {
	id     int64
	origin uint32
	birth  uint32
	size   int64 // size of the whole backup
	next   int64 // bytes that have arrived
	d      *decoder
}

// Staging describes the staging area.
type Staging struct {
	ID     int64  // a random number
	Origin uint32 // the server whose stream brings the backup
	Birth  uint32 // birth of the stream that brings the backup
	Size   int64  // size of the backup
}

// Occupied is the code of the answer while another backup is staged.
const Occupied = jute.NodeExists

// Open returns the request that opens the staging area if no such area is open.
func (g *Staging) Open() Request {
	body := binary.BigEndian.AppendUint32(jute.AppendLong(nil, g.ID), g.Origin)
	body = binary.BigEndian.AppendUint32(body, g.Birth)
	return Request{Session: stageLane, Op: OpStage, Body: jute.AppendLong(body, g.Size)}
}

// Piece returns the request that brings bytes b of the backup, at the offset `at`.
func (g *Staging) Piece(at int64, b []byte) Request {
	body := jute.AppendLong(jute.AppendLong(nil, g.ID), at)
	return Request{Session: stageLane, Op: OpPiece, Body: append(body, b...)}
}

// Restore returns the request that replaces the state with the backup. If `keep` is true, the sessions of the
// backup continue. All other sessions end.
func (g *Staging) Restore(keep bool) Request {
	body := jute.AppendLong(nil, g.ID)
	return Request{Session: stageLane, Op: OpRestore, Body: jute.AppendBool(body, keep)}
}

// GiveUp returns the request that closes the staging area.
func (g *Staging) GiveUp() Request {
	return Request{Session: stageLane, Op: OpUnstage, Body: jute.AppendLong(nil, g.ID)}
}

// stageLane is the session id of the requests of a restore. No client has it. So the pieces have a lane of
// their own, and do not delay requests for new sessions.
const stageLane = -1

// The zxid of a restored state is at least Raised above the zxids of its backup and of the replaced state.
// TimeZxid is far above both, unless a clock is wrong.
const Raised = 1 << 20

// Restored returns the id of the last restore. It returns 0 if this state was never restored.
func (s *State) Restored() int64 { return s.restored }

// Staged describes the staging area, and returns how many bytes of the backup have arrived.
func (s *State) Staged() (g Staging, next int64, open bool) {
	if s.staged == nil {
		return Staging{}, 0, false
	}
	p := s.staged
	return Staging{p.id, p.origin, p.birth, p.size}, p.next, true
}

// Restored is the reply to OpRestore. It describes the result of the restore.
type Restored struct {
	Nodes, Sessions, Ended int
}

func (r *Restored) append(b []byte) []byte {
	for _, n := range []int{r.Nodes, r.Sessions, r.Ended} {
		b = jute.AppendLong(b, int64(n))
	}
	return b
}

// ParseRestored reads the reply to OpRestore.
func ParseRestored(b []byte) (r Restored, err error) {
	d := jute.NewDecoder(b)
	r = Restored{int(d.Long()), int(d.Long()), int(d.Long())}
	return r, d.Err()
}

var (
	errGivenUp = errors.New("this restore was abandoned, or another restore replaced it")
	errNoOrder = errors.New("a piece is missing")
)

// applyStaging runs a request of a restore. A request that fails closes the staging area, and its reply is
// the reason.
func (s *State) applyStaging(r *Request, to Sink) {
	d := jute.NewDecoder(r.Body)
	id := d.Long()
	err, code := errGivenUp, jute.BadArguments
	if p := s.staged; r.Op == OpStage {
		g := Staging{ID: id, Origin: uint32(d.Int()), Birth: uint32(d.Int()), Size: d.Long()}
		switch mark := s.streams[g.Origin]; {
		case p != nil:
			err, code = fmt.Errorf("through server %d", p.origin), Occupied
		case d.Err() == nil && g.Birth != 0 && mark.birth == g.Birth:
			err = nil
			s.staged = &staging{id: g.ID, origin: g.Origin, birth: g.Birth, size: g.Size,
				d: newDecoder(nil, tree.NewLoader())}
			s.staged.d.refuses = !s.ticketing // only a cluster with tickets takes a backup with tickets
			if s.rules != firstRules {
				s.staged.d.nodes.Above(s.tree)
			}
		}
	} else if p != nil && p.id == id && d.Err() == nil {
		switch r.Op {
		case OpPiece:
			err = p.add(d.Long(), d.Rest())
		case OpRestore:
			err = s.restore(d.Bool(), to)
			s.staged = nil
		case OpUnstage:
			err = nil
			s.staged = nil
		}
		if err != nil {
			s.staged = nil
		}
	}
	if err != nil {
		s.out.Code = code
		s.reply = append(s.reply[:0], err.Error()...)
		s.out.Reply = s.reply
	}
}

// created() records in the staging area which nodes a change has created.
func (p *staging) created(events []tree.Event) {
	for i := range events {
		if events[i].Type == jute.EventCreated {
			p.d.nodes.Created(events[i].Path)
		}
	}
}

// unstage() closes the staging area that a server's stream opened, if the server now has another stream.
func (s *State) unstage(origin uint32) {
	if p := s.staged; p != nil && p.origin == origin && s.streams[origin].birth != p.birth {
		s.staged = nil
	}
}

// add() adds the next bytes of the backup.
func (p *staging) add(at int64, b []byte) error {
	switch {
	case at != p.next:
		return errNoOrder
	case int64(len(b)) > p.size-p.next:
		return errors.New("the backup is longer than announced")
	}
	p.next += int64(len(b))
	_, err := p.d.Write(b)
	return err
}

// restore() replaces the state with the backup. The cluster keeps its name, its members, and how far each
// server's stream has been applied.
func (s *State) restore(keep bool, to Sink) error {
	p := s.staged
	if p.next != p.size {
		return errNoOrder
	}
	if err := p.d.end(); err != nil {
		return err
	}
	if err := p.d.finish(); err != nil {
		return err
	}
	b := p.d.state
	if keep && b.clusterID != s.clusterID {
		return fmt.Errorf("the backup comes from cluster %s, and this is cluster %s, which does not know which "+
			"locks the sessions of the backup have released since: these locks would be held again. Restore "+
			"without --keep-sessions", b.clusterID,
			s.clusterID)
	}
	ended := s.sessions.Len()
	published, _ := s.tree.Get(config.Path)
	b.Raise(max(max(s.zxid, b.zxid)+Raised, TimeZxid(s.change.Time)))
	if keep {
		b.change = tree.Change{Time: s.change.Time, Zxid: b.zxid}
		s.sessions.All(func(x session.Session) {
			if _, still := b.sessions.Get(x.ID); still {
				ended--
				b.dropReleased(x.ID, s.tree)
			}
		})
	} else {
		b.EndSessions(s.change.Time)
	}
	// b.zxid rises by at least Raised with each restore. So the least generation rises with each restore, too.
	b.sessions.Succeed(s.sessions, uint32(b.zxid/Raised), s.change.Time)
	s.tree, s.sessions, s.begun, s.zxid = b.tree, b.sessions, b.begun, b.zxid
	s.ended = mix(s.ended, b.ended)
	s.restored = p.id
	s.begin()
	text, version := config.Cut(string(published.Data))
	if version != 0 { // 0: the members have never been published
		text = string(config.WithVersion([]byte(text), s.nextVersion(published)))
	}
	s.tree.SetConfig(&s.change, []byte(text))
	s.change.Events = s.change.Events[:0] // report no event, because all watches have ended
	s.commit(to)
	to.Replaced()
	s.reply = (&Restored{s.tree.Count(), s.sessions.Len(), ended}).append(s.reply[:0])
	s.out.Reply = s.reply
	return nil
}

// dropReleased deletes the ephemeral nodes that a living session has deleted since the backup. Its client
// does not know that the backup holds them again, so a released lock would stay held for the life of the
// session.
func (s *State) dropReleased(id int64, now *tree.Tree) {
	s.tree.DropEphemerals(&s.change, id, func(path string, czxid int64) bool {
		have, there := now.Get(path)
		return !there || have.Stat.Czxid != czxid || have.Stat.EphemeralOwner != id
	})
}
