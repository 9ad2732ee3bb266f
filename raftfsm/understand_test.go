package raftfsm

import (
	"testing"

	"github.com/hashicorp/raft"
)

func TestNothingNewIsSaidUntilAllUnderstandIt(t *testing.T) {
	servers := []raft.Server{{ID: "1"}, {ID: "2"}, {ID: "3"}}
	ls := &linkSet{links: []*inLink{{from: 2, version: 2}, {from: 3, version: 1}}}
	for name, c := range map[string]struct {
		version int
		servers []raft.Server
		want    bool
	}{
		"one is older":       {2, servers, false},
		"what all know":      {1, servers, true},
		"the older has left": {2, servers[:2], true},
		"alone":              {2, servers[:1], true},
		"one is away":        {2, []raft.Server{{ID: "1"}, {ID: "2"}, {ID: "4"}}, false},
	} {
		if got := ls.understand(c.version, 1, c.servers); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
