package server

import (
	"context"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
)

// TestVoteThatIsNotGivenIsMissed: a server that cannot be given its vote in time
// does not count in the new configuration's majority.
func TestVoteThatIsNotGivenIsMissed(t *testing.T) {
	i, _ := start(t, Options{})
	one := state.Server{ID: 1, Peer: "h1:2", Voter: true}
	two := state.Server{ID: 2, Peer: "h2:2", Voter: true}
	late := two
	late.Voter = false
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	change := func() *change {
		return &change{i: i, node: i.Node(), from: members{1: one, 2: late}, to: members{1: one, 2: two},
			ready: map[uint32]bool{1: true, 2: true}}
	}
	expect.Fails(t, change().promote(ended, state.MemberChange{Op: "promote", ID: 2}),
		"a server got its vote of a server that is alone")
	if c := change(); c.join(ended, leastPatience) == nil || c.ready[2] {
		t.Error("one of two voters is taken for a majority")
	}
	c := change()
	c.to[3], c.ready[3] = state.Server{ID: 3, Peer: "h3:2", Voter: true}, true
	c.from[3] = c.to[3]
	if err := c.join(ended, leastPatience); err != nil || c.ready[2] {
		t.Errorf("two of three voters are no majority: %v", err)
	}
}

func TestLastVoterStays(t *testing.T) {
	i, _ := start(t, Options{})
	err := i.ChangeMember(t.Context(), state.MemberChange{Op: "remove", ID: 1})
	expect.That(t, err != nil && strings.Contains(err.Error(), "is the last one that votes"),
		"it is removed: %v", err)
	if err := i.mayLeave(t.Context(), i.Node(), 2); err != nil { // who has no vote
		t.Error(err)
	}
}
