package state

import (
	"fmt"

	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// Adopt returns the state of a new cluster that begins with imported data. The zxids of the cluster continue
// above `zxid`, the zxid of the newest change. Adopt returns an error for a state that ReadSnapshot would
// refuse.
func Adopt(cluster string, zxid int64, sessions []session.Session, nodes *tree.Maker) (*State, error) {
	s := New(cluster)
	s.zxid, s.rules = zxid, newestRules
	for _, sess := range sessions {
		if !s.sessions.Adopt(sess) {
			return nil, fmt.Errorf("session 0x%x occurs twice", uint64(sess.ID))
		}
	}
	t, err := nodes.Finish(zxid, maxNode)
	if err != nil {
		return nil, err
	}
	return s, s.complete(t)
}

// Refound turns the state into that of another cluster, at the given time. The new cluster has no members.
// Requests under way in the old cluster do not count. Refound empties the node that lists the members. A
// cluster of one server never writes that list, so the old list would send clients to the old servers.
func (s *State) Refound(cluster string, now int64) {
	if s.ConfigData() != "" {
		s.change = tree.Change{Time: now}
		s.begin()
		s.tree.SetConfig(&s.change, nil)
		s.commit(Silent{})
	}
	s.clusterID = cluster
	s.streams = map[uint32]streamMark{}
	s.members = map[uint32]Member{}
	s.configured = false
	s.staged = nil
	s.restored = 0
	s.words = ""
	s.sessions.Renumber(clusterPrefix(cluster))
}

// Raise makes the state continue from a higher zxid. A client may have seen a later state than this one, and
// new changes must not look old to that client.
func (s *State) Raise(zxid int64) { s.zxid = max(s.zxid, zxid) }

// EndSessions ends all sessions, each by a change of its own at the given time,
// and returns how many there were.
func (s *State) EndSessions(now int64) int {
	var ids []int64
	s.sessions.All(func(sess session.Session) { ids = append(ids, sess.ID) })
	s.change = tree.Change{Time: now}
	for _, id := range ids {
		s.endSession(id, EndClosed, Silent{})
	}
	return len(ids)
}

// Silent is a Sink that drops every change.
type Silent struct{}

func (Silent) Events(int64, []tree.Event)               {}
func (Silent) Ended(*Ending)                            {}
func (Silent) Attached(*session.Session, bool)          {}
func (Silent) Opened(uint32, int64, uint32)             {}
func (Silent) Replaced()                                {}
func (Silent) Outcome(uint32, uint32, uint64, *Outcome) {}
