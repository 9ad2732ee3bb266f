package state

import (
	"fmt"
	"hash/crc32"

	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// Adopt returns the state of a new cluster that begins with imported data. zxid is that of the newest change;
// the cluster continues above it. Adopt returns an error for a state that ReadSnapshot would refuse.
func Adopt(cluster string, zxid int64, sessions []session.Session, nodes *tree.Maker) (*State, error) {
	s := New(cluster)
	s.zxid, s.rules = zxid, newestRules
	for _, sess := range sessions {
		if !s.sessions.Adopt(sess) {
			return nil, fmt.Errorf("session 0x%x comes twice", uint64(sess.ID))
		}
	}
	t, err := nodes.Finish(zxid, maxNode)
	if err != nil {
		return nil, err
	}
	return s, s.complete(t)
}

// Refound turns the state into that of another cluster, at the given time. The new cluster has no members.
// Requests under way in the old cluster do not count. Refound empties the node that lists the members, so
// that it sends no client to the old servers: a single server would never overwrite it.
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

// clusterPrefix returns the first bits of a cluster's session ids, so that two clusters rarely share ids.
// Snapshots store it, so the hash may change between releases.
func clusterPrefix(cluster string) uint32 {
	return crc32.Checksum([]byte(cluster), crcTable()) & 0xffffff
}

// Raise continues from a higher zxid: to a client that has seen a later state than this one, new changes must
// not look old.
func (s *State) Raise(zxid int64) { s.zxid = max(s.zxid, zxid) }

const (
	zxidTime  = 1704067200000 // 2024-01-01, in ms since 1970
	zxidsInMs = 1 << 10       // more changes than a cluster can make in 1 ms
)

// TimeZxid returns the zxid that stands for a time in ms since 1970. A restored state (by a restore to a
// running cluster, zlockd restore or zlockd recover) continues from the zxid of that moment. A cluster makes
// fewer changes than TimeZxid counts, so every zxid that it gave out lies below the zxid of its time. So the
// zxids after a restore, which are also fencing tokens, lie above all earlier ones: even above those that the
// cluster gave out after the backup was made, or after another restore of the same backup. They stay below
// 2^53, so that a JSON number holds them, until the year 2302.
func TimeZxid(now int64) int64 { return max(0, now-zxidTime) * zxidsInMs }

// TimeOf returns the first time, in ms since 1970, whose TimeZxid is not below a zxid.
func TimeOf(zxid int64) int64 { return zxidTime + (zxid+zxidsInMs-1)/zxidsInMs }

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
