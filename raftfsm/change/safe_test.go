package change

import (
	"testing"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
)

// A change of members is safe if most voters of the new configuration follow the leader.
func TestMajorityThatFollowsRemains(t *testing.T) {
	for name, c := range map[string]struct {
		voters []uint32
		follow []uint32
		safe   bool
	}{
		"no voter":                        {nil, []uint32{1}, false},
		"the last voter":                  {[]uint32{1}, []uint32{1}, true},
		"one of two":                      {[]uint32{1, 2}, []uint32{1}, false},
		"two of three":                    {[]uint32{1, 2, 3}, []uint32{1, 3}, true},
		"one of three":                    {[]uint32{1, 2, 3}, []uint32{3}, false},
		"two of four":                     {[]uint32{1, 2, 3, 4}, []uint32{1, 2}, false},
		"three of four":                   {[]uint32{1, 2, 3, 4}, []uint32{1, 2, 4}, true},
		"followers that are not voters":   {[]uint32{1, 2, 3}, []uint32{3, 4, 5, 6}, false},
		"three of five, and an observer":  {[]uint32{1, 2, 3, 4, 5}, []uint32{1, 2, 5, 9}, true},
		"a server that votes with others": {[]uint32{1, 2}, []uint32{1, 2, 3}, true},
	} {
		t.Run(name, func(t *testing.T) {
			follow := map[uint32]bool{}
			for _, id := range c.follow {
				follow[id] = true
			}
			err := Safe(c.voters, follow)
			expect.Equal(t, err == nil, c.safe, "%v", err)
			if err != nil {
				expect.Equal(t, status.Of(err), status.Unsafe)
			}
		})
	}
}
