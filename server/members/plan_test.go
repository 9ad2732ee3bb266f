package members

import (
	"fmt"
	"maps"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/test/must"
)

// If both a majority of the old voters and a majority of the new voters run, a majority of raft's voters runs
// after each change. The last configuration is the wanted one.
func TestEveryStepLeavesAMajority(t *testing.T) {
	n, all := 5, 243
	if testing.Short() {
		n, all = 4, 81
	}
	role := func(code, id int) (s config.Server, in bool) {
		for range id {
			code /= 3
		}
		return config.Server{ID: uint32(id + 1), Peer: fmt.Sprintf("h%d:1", id+1), Voter: code%3 == 2}, code%3 > 0
	}
	tried := 0
	for fromCode := range all {
		for toCode := range all {
			from, to := Config{}, Config{}
			for id := range n {
				if s, in := role(fromCode, id); in {
					from[s.ID] = s
				}
				if s, in := role(toCode, id); in {
					to[s.ID] = s
				}
			}
			for up := range 1 << n {
				live := func(m Config) bool {
					k := 0
					for id, s := range m {
						if s.Voter && up>>(id-1)&1 == 1 {
							k++
						}
					}
					return k > m.voters()/2
				}
				if !live(from) || !live(to) || up&1 == 0 || !from[1].Voter {
					continue
				}
				c := plan{own: 1, from: from, to: to, ready: map[uint32]bool{},
					runs: map[uint32]bool{}}
				for id := uint32(1); id <= uint32(n); id++ {
					runs := up>>(id-1)&1 == 1
					_, was := from[id]
					c.runs[id] = was && runs
					if runs && to[id].Voter {
						c.ready[id] = true
					}
				}
				now := maps.Clone(from)
				for _, m := range append(c.joins(), c.rest()...) {
					s, in := now[m.ID]
					s.ID, s.Peer = m.ID, fmt.Sprintf("h%d:1", m.ID)
					switch m.Op {
					case "add", "demote":
						s.Voter = false
					case "promote":
						must.That(t, in, "%+v before it is a member", m)
						s.Voter = true
					case "vote":
						s.Voter = true
					}
					now[m.ID] = s
					if m.Op == "remove" {
						delete(now, m.ID)
					}
					must.That(t, live(now),
						"from %v to %v, up %b: no majority after %+v", from, to, up, m)
				}
				must.That(t, now.same(to), "from %v to %v, up %b: %v", from, to, up, now)
				tried++
			}
		}
	}
	t.Logf("%d changes tried", tried)
}
