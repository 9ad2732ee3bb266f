package state

import (
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// The rules of Apply, by release. Servers of two releases may apply one log, so the effect of an entry must
// not change during the life of a cluster: a cluster keeps the rules of the release that began it. A later
// release may raise the rules of an older cluster once no server of the earlier release can join it.
const (
	firstRules int32 = 0 // rules of release 0.1.0
	// rules of release 0.2.0: the first zxid is TimeZxid, a write may take bounds.WideSteps, and no restore
	// lowers a sequence number
	newestRules int32 = 1
)

// firstZxid is the smallest zxid at which a cluster of several servers can begin. It is also the version of
// the first configuration, as in a ZooKeeper ensemble.
const firstZxid = 1 << 32

// Founding returns the first entry of a new cluster, with its members. The entry of a cluster of one server
// names no members. The zxids begin at TimeZxid. So if the cluster replaces one whose data are lost, it never
// repeats a fencing token of the lost cluster. The entry changes nothing in a state that is not empty. A
// server of release 0.1.0 refuses an entry of this kind.
func Founding(members []config.Server, now int64) []byte {
	return founding(entries.KindFounding, OpBegin, members, now)
}

// OldFounding is Founding for a cluster with servers of release 0.1.0: the zxids begin at firstZxid.
func OldFounding(members []config.Server, now int64) []byte {
	return founding(entries.KindBatch, OpFound, members, now)
}

func founding(kind byte, op jute.OpCode, members []config.Server, now int64) []byte {
	return entries.One(kind, 0, &Request{Op: op, Body: []byte(config.Text(members))}, now)
}

// found() begins the history of a cluster of several servers at a zxid, and publishes the members.
func (s *State) found(members []byte, zxid int64, to Sink) {
	s.zxid = zxid - 1
	s.begin()
	s.setConfig(members, firstZxid, to)
	// If addresses for clients are missing, the leader publishes the members again once they have reported
	// these addresses.
	s.configured = config.TellsClients(members)
}

// applyBegin begins a cluster of the newest rules.
func (s *State) applyBegin(members []byte, to Sink) {
	if s.zxid != 0 {
		return
	}
	s.rules = newestRules
	first := TimeZxid(s.change.Time)
	if len(members) == 0 {
		s.zxid = max(0, first-1)
		return
	}
	s.found(members, max(first, firstZxid), to)
}

// nextVersion returns the version of the configuration that this change writes. In a cluster with the rules
// of release 0.1.0 the version is the zxid, as in a ZooKeeper. In any other cluster the first version is
// firstZxid, because clients compare versions with that number. From each version to the next, the version
// rises by as much as the zxid.
func (s *State) nextVersion(is tree.Info) int64 {
	_, version := config.Cut(string(is.Data))
	if s.rules == firstRules || version == 0 {
		return s.change.Zxid
	}
	return version + s.change.Zxid - is.Stat.Mzxid
}

// budget returns how many steps a write may take.
func (s *State) budget() int {
	if s.rules == firstRules {
		return bounds.MaxSteps
	}
	return bounds.WideSteps
}

// appendRules appends the rules to a snapshot's header. For the rules of release 0.1.0 it appends nothing, as
// that release did.
func (s *State) appendRules(b []byte) []byte {
	if s.rules == firstRules {
		return b
	}
	return jute.AppendInt(b, s.rules)
}

// loadRules reads the rest of a snapshot's header.
func (s *State) loadRules(d *jute.Decoder) error {
	if len(d.Rest()) == 0 {
		return nil
	}
	if s.rules = d.Int(); d.Err() == nil && (s.rules <= firstRules || s.rules > newestRules) {
		return fmt.Errorf("the data have rules %d, but this program understands rules up to %d; use a "+
			"newer version",
			s.rules,
			newestRules)
	}
	return d.Err()
}

const (
	zxidTime  = 1704067200000 // 2024-01-01, in ms since 1970
	zxidsInMs = 1 << 10       // more changes than a cluster can make in 1 ms
)

// TimeZxid returns the zxid for a time in ms since 1970. It rises faster than a cluster makes changes, so
// every zxid that a cluster gives is lower than the TimeZxid of that moment. A restored state (by a restore
// to a running cluster, zlockd restore or zlockd recover) continues from the TimeZxid of the moment of the
// restore. So the zxids after a restore, which are also fencing tokens, are higher than all earlier zxids.
// That includes those that the cluster gave after the backup was made, or after another restore of the same
// backup. Until the year 2302 all zxids stay below 2^53, so that a JSON number holds them.
func TimeZxid(now int64) int64 { return max(0, now-zxidTime) * zxidsInMs }

// TimeOf returns the first time, in ms since 1970, whose TimeZxid is at least `zxid`.
func TimeOf(zxid int64) int64 { return zxidTime + (zxid+zxidsInMs-1)/zxidsInMs }
