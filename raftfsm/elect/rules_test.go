package elect

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/script"
)

// TestScripts runs testdata/*.txt. In each block, a voter decides whether it stands for election:
//
//	voter 2 of 1 2 3   server 2 decides; the voters are servers 1, 2 and 3
//	dead 3             the process of the leader, server 3, is gone
//	silent 3           nothing is heard from the leader, server 3
//	vacant             no leader is known
//	1 log 3/11         the newest entry of server 1 has term 3 and index 11; without the command it is 3/10
//	1 silent 999ms     server 1 has not heard from a leader for this time
//	1 leader 3         server 1 knows this leader, and has no connection to it; `1 linked 3`: it has one
//	1 stands           server 1 stands for election; `1 begins`: it only starts
//	1 mute             server 1 does not answer; `1 gone`: it refuses the connection
//	waited 40ms        the voter has waited for better candidates for this time
//	over               it has waited long enough
//
// A server that no command names hears nothing from a leader and knows none. A block prints the opinions of
// the other voters, and then the verdict.
func TestScripts(t *testing.T) {
	script.Run(t, "testdata/*.txt", func(t *testing.T, commands [][]string) string {
		v := vote{answers: map[uint32]*peer.Answer{}}
		for _, words := range commands {
			v.run(t, words)
		}
		return v.decide(t)
	})
}

// vote is one decision.
type vote struct {
	own, leader uint32
	voters      []uint32
	why         Why
	answers     map[uint32]*peer.Answer
	waited      time.Duration
	over        bool
}

func number(t *testing.T, word string) uint32 {
	return uint32(must.Get(strconv.ParseUint(word, 10, 32))(t))
}

func (v *vote) run(t *testing.T, words []string) {
	switch words[0] {
	case "voter":
		v.own = number(t, words[1])
		for _, w := range words[3:] {
			id := number(t, w)
			v.voters = append(v.voters, id)
			v.answers[id] = &peer.Answer{Status: peer.Status{Up: true, Silent: 1000, LastTerm: 3, LastIndex: 10}}
			v.answers[id].ID = id
		}
	case "dead":
		v.why, v.leader = Dead, number(t, words[1])
	case "silent":
		v.why, v.leader = Silent, number(t, words[1])
	case "vacant":
		v.why = Vacant
	case "waited":
		v.waited = must.Get(time.ParseDuration(words[1]))(t)
	case "over":
		v.over = true
	default:
		a := v.answers[number(t, words[0])]
		must.That(t, a != nil, "%v is not a voter", words)
		answer(t, a, words[1:])
	}
}

// answer() changes what another server answers.
func answer(t *testing.T, a *peer.Answer, words []string) {
	switch st := &a.Status; words[0] {
	case "log":
		must.Get(fmt.Sscanf(words[1], "%d/%d", &st.LastTerm, &st.LastIndex))(t)
	case "silent":
		st.Silent = must.Get(time.ParseDuration(words[1]))(t).Milliseconds()
	case "leader":
		st.Leader, st.Silent = number(t, words[1]), 0
	case "linked":
		st.Leader, st.Linked, st.Silent = number(t, words[1]), number(t, words[1]), 0
	case "stands":
		st.Stands = true
	case "begins":
		st.Up = false
	case "mute":
		a.Err = net.ErrClosed
	case "gone":
		a.Err = errors.Join(syscall.ECONNREFUSED)
	default:
		t.Fatalf("%v is no command", words)
	}
}

// decide() prints the opinions and the verdict. If the voter decided the same without a vote, the test fails.
func (v *vote) decide(t *testing.T) string {
	var out strings.Builder
	s := Survey{Voters: len(v.voters), Voter: slices.Contains(v.voters, v.own)}
	own := peer.Status{ID: v.own, LastTerm: 3, LastIndex: 10}
	for _, id := range v.voters {
		if id == v.own {
			own.LastTerm, own.LastIndex = v.answers[id].Status.LastTerm, v.answers[id].Status.LastIndex
		}
	}
	for _, id := range v.voters {
		if id != v.own && id != v.leader {
			o := opinionOf(v.answers[id], &own, v.leader, time.Second)
			s.Opinions = append(s.Opinions, o)
			fmt.Fprintf(&out, "%d: %s\n", id, o.words())
		}
	}
	switch s.Decide(v.why, v.waited, v.over) {
	case Stand:
		fmt.Fprintf(&out, "stand: %v\n", v.why)
	case WaitTurn:
		fmt.Fprintf(&out, "wait: others stand first, within %v\n", s.Turn())
	case WaitOthers:
		out.WriteString("wait: a better candidate stands\n")
	case Yield:
		fmt.Fprintf(&out, "yield: %s\n", yields(&s, v.why))
	}
	s.Voter = false
	expect.Equal(t, s.Decide(v.why, time.Hour, true), Yield, "the verdict of a server without a vote")
	return out.String()
}

// yields() returns the reason for which a server does not stand.
func yields(s *Survey, why Why) string {
	switch {
	case !s.Voter:
		return "it has no vote"
	case !s.May(why):
		return map[Why]string{Dead: "the leader may be alive", Silent: "no majority hears nothing",
			Vacant: "no majority knows no leader, or a server leads"}[why]
	}
	return "it cannot win"
}

// words() prints an opinion.
func (o *Opinion) words() string {
	var list []string
	for _, w := range []struct {
		is   bool
		text string
	}{
		{o.Lower, "lower id"}, {o.Mute, "mute"}, {o.Gone, "gone"}, {o.Before, "before us"},
		{o.Longer, "longer log"}, {o.Short, "shorter log"}, {o.Silent, "hears nothing"},
		{o.Vacant, "knows no leader"}, {o.Leads, "leads"}, {o.Linked, "linked"}, {o.Stands, "stands"},
	} {
		if w.is {
			list = append(list, w.text)
		}
	}
	return cmp.Or(strings.Join(list, ", "), "no opinion")
}
