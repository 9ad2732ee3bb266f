package raftfsm

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
)

// A change that changes nothing, or that no server can carry out, is an error that says
// what is the matter. Taken for a success it would look as if it were done.
func TestChangesOfMembersThatAreNoneAreErrors(t *testing.T) {
	c := newTrio(t, false, nil)
	for _, asked := range []int{c.leader(), c.leader()%3 + 1} { // itself, and one that passes it on
		for _, test := range []struct {
			change state.MemberChange
			want   string
		}{
			{state.MemberChange{Op: "add", ID: 2, Addr: "127.0.0.1:9"}, "server 2 is a member already"},
			{state.MemberChange{Op: "add", ID: 4, Addr: "nowhere"}, "peer address"},
			{state.MemberChange{Op: "promote", ID: 4}, "server 4 is not a member; add it first"},
			{state.MemberChange{Op: "remove", ID: 4}, "server 4 is not a member"},
			{state.MemberChange{Op: "exchange", ID: 2}, "unknown change"},
		} {
			err := c.nodes[asked].ChangeMember(t.Context(), test.change)
			expect.That(t, err != nil && strings.Contains(err.Error(), test.want),
				"%+v asked of server %d: %v, want %s", test.change, asked, err, test.want)
		}
		expect.OK(t, c.nodes[asked].ChangeMember(t.Context(), state.MemberChange{Op: "promote", ID: 2}),
			"one that votes already")
	}
	expect.Equal(t, len(c.nodes[c.leader()].raft.Servers()), 3, "members afterwards")
}
