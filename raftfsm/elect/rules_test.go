package elect

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
)

// The server with the longest log stands first; with equal logs, the server with the lowest id. A server that
// stands with a shorter log than another loses the election, and costs the cluster a whole election timeout.
func TestTheLongestLogStandsFirst(t *testing.T) {
	status := func(id uint32, term, index uint64) peer.Status {
		return peer.Status{ID: id, LastTerm: term, LastIndex: index}
	}
	for _, c := range []struct {
		name          string
		first, second peer.Status
	}{
		{"equal logs: the lower id", status(1, 3, 10), status(2, 3, 10)},
		{"a longer log before a lower id", status(2, 3, 11), status(1, 3, 10)},
		{"a later term before a longer log", status(2, 4, 9), status(1, 3, 10)},
	} {
		expect.That(t, StandsBefore(&c.first, &c.second),
			"%s: server %d does not stand before %d", c.name, c.first.ID, c.second.ID)
		expect.That(t, !StandsBefore(&c.second, &c.first),
			"%s: server %d stands before %d", c.name, c.second.ID, c.first.ID)
	}
}

// TestDecide checks what a server decides from the answers of the other voters.
func TestDecide(t *testing.T) {
	var (
		// What the other voters see. Where nothing else is said, a voter has the same log as this server, and
		// a higher id.
		agrees = Opinion{Silent: true, Vacant: true}
		hears  = Opinion{Linked: true}                                           // linked to the leader
		mute   = Opinion{Mute: true}                                             // no answer; the voter may be busy
		gone   = Opinion{Mute: true, Gone: true}                                 // the voter's process is gone
		ahead  = Opinion{Before: true, Longer: true, Silent: true, Vacant: true} // the voter has more entries
		stands = Opinion{Before: true, Stands: true, Silent: true, Vacant: true} // first in line; stands already
		lower  = Opinion{Before: true, Lower: true, Silent: true, Vacant: true}  // the same log, a lower id
		short  = Opinion{Short: true, Lower: true, Silent: true, Vacant: true}   // a shorter log, a lower id
		leads  = Opinion{Leads: true}                                            // the voter says that it leads
		busy   = Opinion{Before: true, Longer: true, Linked: true, Mute: false}  // linked, with more entries
		// The voter hears of a leader, but has no link.
		calm = Opinion{}
		own  = func(list ...Opinion) []Opinion { return list } // opinions of the other servers
	)
	const unwaited, waited, over = 0, time.Second, 2 * time.Second
	for _, c := range []struct {
		what     string
		why      Why
		voters   int
		opinions []Opinion
		wait     time.Duration
		want     Verdict
	}{
		{"the leader of three is dead, the other agrees", Dead, 3, own(agrees), unwaited, Stand},
		{"the leader of three is dead, the other has its connection", Dead, 3, own(hears), unwaited, Yield},
		{"the leader of three is dead, the other does not answer", Dead, 3, own(mute), unwaited, Yield},
		{"the leader of three is dead, and the other's process is gone", Dead, 3, own(gone), unwaited, Yield},
		{"the leader of two is dead: no majority", Dead, 2, own(), unwaited, Yield},
		{"a lone voter", Dead, 1, own(), unwaited, Stand},
		{"the leader of five is dead, one is busy", Dead, 5, own(agrees, agrees, mute), unwaited, Stand},
		{"the leader of five is dead, two are busy", Dead, 5, own(agrees, mute, mute), unwaited, Yield},
		{"one of five reaches the leader, one is busy", Dead, 5, own(agrees, hears, mute), unwaited, Yield},
		{"one of five reaches the leader, which is too few to lead", Dead, 5, own(agrees, agrees, hears), unwaited,
			Stand},
		{"two of five reach the leader", Dead, 5, own(agrees, hears, hears), unwaited, Yield},
		{"the other of three has a longer log", Dead, 3, own(ahead), unwaited, Yield},
		{"one of five has a longer log: it stands first", Dead, 5, own(agrees, agrees, ahead), unwaited, WaitTurn},
		{"and has not done so", Dead, 5, own(agrees, agrees, ahead), waited, Stand},
		{"a lower id stands first", Dead, 3, own(lower), unwaited, WaitTurn},
		{"a lower id may be storing the last entry", Dead, 3, own(short), unwaited, WaitTurn},
		{"and has not stored it soon after", Dead, 3, own(short), turnShort, Stand},
		{"and has stored it by then", Dead, 3, own(lower), turnShort, WaitTurn},
		{"the one that stands first does so", Dead, 3, own(stands), waited, WaitOthers},
		{"and has done so for long", Dead, 3, own(stands), over, Stand},

		{"the leader is silent, and the other of three hears nothing", Silent, 3, own(agrees), unwaited, Stand},
		{"the other of three hears of the leader", Silent, 3, own(calm), unwaited, Yield},
		{"the other of three does not answer", Silent, 3, own(mute), unwaited, Yield},
		{"two of five hear nothing", Silent, 5, own(agrees, calm, calm), unwaited, Yield},
		{"three of five hear nothing", Silent, 5, own(agrees, agrees, calm), unwaited, Stand},
		{"three of five hear nothing, and two of them know more", Silent, 5, own(ahead, ahead, busy), unwaited,
			Yield},

		{"no leader is known", Vacant, 3, own(agrees, mute), unwaited, Stand},
		{"a server leads, which this one has yet to hear of", Vacant, 3, own(agrees, leads), unwaited, Yield},
		{"the others know a leader", Vacant, 3, own(calm, calm), unwaited, Yield},
		{"the others do not answer", Vacant, 3, own(mute, mute), unwaited, Yield},
		{"one process is gone, one is vacant", Vacant, 3, own(agrees, gone), unwaited, Stand},
		{"both others stand", Vacant, 3, own(stands, stands), waited, WaitOthers},
		{"both others have stood for long", Vacant, 3, own(stands, stands), over, Stand},
	} {
		s := Survey{Voter: true, Voters: c.voters, Opinions: c.opinions}
		got := s.Decide(c.why, c.wait, c.wait == over)
		expect.Equal(t, got, c.want, "%s: verdict %d", c.what, got)
		s.Voter = false
		expect.Equal(t, s.Decide(c.why, over, true), Yield, "%s: without a vote: verdict", c.what)
	}
	s := Survey{Voter: true, Voters: 5, Opinions: own(lower, ahead, agrees)}
	expect.Equal(t, s.Turn(), 2*turnStep+turnTie, "two stand first, one of them has a lower id: it waits")
}

// opinionOf turns another server's answer, or its failure to answer, into an opinion.
func TestOpinionOfAnAnswer(t *testing.T) {
	own := peer.Status{ID: 2, LastTerm: 3, LastIndex: 10}
	st := func(id, leader, linked uint32, index uint64, silent int64) peer.Status {
		return peer.Status{ID: 9, Up: true, Leader: leader, Linked: linked, LastTerm: 3, LastIndex: index,
			Silent: silent}
	}
	for _, c := range []struct {
		what string
		a    peer.Answer
		want Opinion
	}{
		{"no answer", peer.Answer{Err: net.ErrClosed}, Opinion{Lower: true, Mute: true}},
		{"a refused connection", peer.Answer{Err: errors.Join(syscall.ECONNREFUSED)}, Opinion{
			Lower: true, Mute: true, Gone: true}},
		{"it only begins", peer.Answer{Status: peer.Status{}}, Opinion{Lower: true}},
		{"the same log", peer.Answer{Status: st(1, 3, 3, 10, 0)}, Opinion{Lower: true, Before: true, Linked: true}},
		{"a longer log", peer.Answer{Status: st(1, 3, 0, 11, 1000)}, Opinion{Lower: true, Before: true,
			Longer: true, Silent: true}},
		{"a shorter log and no leader", peer.Answer{Status: st(1, 0, 0, 9, 999)}, Opinion{Lower: true, Short: true,
			Vacant: true}},
		{"it leads", peer.Answer{Status: st(1, 1, 0, 9, 0)}, Opinion{Lower: true, Short: true, Leads: true}},
	} {
		c.a.ID = 1
		expect.Equal(t, opinionOf(&c.a, &own, 3, time.Second), c.want, "%s", c.what)
	}
}

// A server gives an election more time after each failed election, up to eight times as much. A candidate
// also gives an election more time if disks are slow.
func TestPatienceGrows(t *testing.T) {
	for _, c := range []struct {
		v      vacancy
		stands bool
		want   time.Duration
	}{
		{vacancy{}, false, voteTime}, {vacancy{}, true, 2 * voteTime}, {vacancy{took: time.Second}, true,
			2 * time.Second},
		{vacancy{tries: 2}, false, 4 * voteTime}, {vacancy{tries: 9}, false, 8 * voteTime},
	} {
		expect.Equal(t, c.v.patience(c.stands), c.want, "%+v, stands %v", c.v, c.stands)
	}
}
