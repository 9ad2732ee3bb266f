package members

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const threeServers = `server.1=h1:2888:2889:participant;h1:2181
server.2=h2:2888:2889:participant;h2:2181
server.3=h3:2888:2889:participant;h3:2181
version=10000002a`

// For these wishes, goal() returns what ZooKeeper 3.8 answers to the super user before it asks other servers.
func TestReconfigPlans(t *testing.T) {
	const four = "server.4=h4:2888:3888;2181"
	joining := func(s string) Wish { return Wish{Version: -1, Joining: s} }
	whole := func(s string) Wish { return Wish{Version: -1, Members: s} }
	leaving := func(s string) Wish { return Wish{Version: -1, Leaving: s} }
	for _, tc := range []struct {
		name string
		r    Wish
		err  error
		to   string // ids of the servers; a ! follows the id of a server without a vote
	}{
		{"nothing", Wish{Version: -1}, nil, "1 2 3"},
		{"the version", Wish{Version: 0x10000002a}, nil, "1 2 3"},
		{"another version", Wish{Version: 7, Joining: "garbage"}, ErrVersion, ""},
		{"version 0", Wish{}, ErrVersion, ""},
		{"join", joining(four), nil, "1 2 3 4"},
		{"join without a vote", joining("server.4=h4:2888:3888:observer;2181"), nil, "1 2 3 4!"},
		{"join and leave", Wish{Version: -1, Joining: four +
			",server.5=[::1]:1:2:PARTICIPANT;0.0.0.0:3", Leaving: "2,3"}, nil, "1 4 5"},
		{"join again", joining("server.2=h2:2888:3888:participant;h2:2181"), nil, "1 2 3"},
		{"with blanks", joining(" server.4 = h4:2888:3888:observer;2181 "), nil, "1 2 3 4!"},
		{"without server", joining("foo.4=h4:2888:3888:observer;2181"), nil, "1 2 3 4!"},
		{"the id alone", joining("4=h4:2888:3888:observer;2181"), nil, "1 2 3 4!"},
		{"an id beyond ours", joining("server.999=h4:2888:3888:observer;2181"), nil, "1 2 3 999!"},
		{"an id below ours", joining("server.-1=h4:2888:3888:observer;2181"), nil, "1 2 3 2147483647!"},
		{"port 0", joining("server.4=h4:0:3888:observer;2181"), nil, "1 2 3 4!"},
		{"leave", leaving("3"), nil, "1 2"},
		{"leave who is not there", leaving(" 99 ,-5"), nil, "1 2 3"},
		{"all leave", leaving("1,2,3"), ErrArgument, ""},
		{"two leave", leaving("2,3"), ErrArgument, ""},
		{"leave by name", leaving("h3"), config.ErrNumber, ""},
		{"move", joining("server.3=h9:2888:2889;2181"), nil, "1 2 3"},
		{"lose the vote", joining("server.3=h3:2888:2889:observer;2181"), nil, "1 2 3!"},
		{"address taken", joining("server.4=h3:2888:3888;h4:2181"), ErrArgument, ""},
		{"client address taken", joining("server.4=h4:2888:3888;h3:2181"), ErrArgument, ""},
		{"an address of every machine",
			joining("server.4=127.0.0.1:2888:3888:observer;2181,server.5=127.0.0.1:2888:3888:observer;2181"), nil,
			"1 2 3 4! 5!"},
		{"no client port", joining("server.4=h4:2888:3888"), ErrArgument, ""},
		{"two ports", joining("server.4=h4:2888;2181"), ErrArgument, ""},
		{"twice the same", joining("server.4=h4:2888:2888;2181"), ErrArgument, ""},
		{"no such role", joining("server.4=h4:2888:3888:king;2181"), ErrArgument, ""},
		{"two addresses", joining("server.4=h4:2888:3888|h5:2888:3888;2181"), ErrArgument, ""},
		{"no port", joining("server.4=h4:a:3888;2181"), ErrArgument, ""},
		{"no such port", joining("server.4=h4:99999:3888;2181"), config.ErrNumber, ""},
		{"no id", joining("server.x=h4:2888:3888;2181"), config.ErrNumber, ""},
		{"garbage", joining("some thing"), ErrArgument, ""},
		{"the whole list", whole(strings.ReplaceAll(threeServers, "server.2=h2", "server.4=h4")), nil, "1 3 4"},
		{"the whole list, by commas", whole("server.1=h1:2888:2889," + four), nil, "1 4"},
		{"one twice", whole("server.1=h1:2888:2889,server.1=h1:2888:2889:observer," + four + ",server.5=h5:1:2"),
			nil, "1! 4 5"},
		{"a list of one", whole("server.1=h1:2888:2889;2181"), ErrArgument, ""},
		{"a garbage list", whole("garbage"), ErrArgument, ""},
		{"another key", whole(threeServers + "\nfoo=bar"), ErrArgument, ""},
		{"a list and garbage", Wish{Version: -1, Joining: "garbage", Members: threeServers},
			nil, "1 2 3"},
	} {
		_, to, _, err := goal(threeServers, &tc.r, 2)
		var got []string
		for _, id := range to.ids(0) {
			s := strconv.Itoa(int(id &^ (1 << 31)))
			if !to[id].Voter {
				s += "!"
			}
			got = append(got, s)
		}
		expect.Is(t, err, tc.err, "%s", tc.name)
		expect.List(t, got, strings.Fields(tc.to), "%s", tc.name)
	}
	r := leaving("2,3")
	_, to, _, err := goal(threeServers, &r, 1)
	must.OK(t, err, "one is left where it is allowed")
	expect.Equal(t, len(to), 1)
}

func TestWhatIsImpossibleHere(t *testing.T) {
	from, _ := ParseConfig(threeServers)
	for _, tc := range []struct {
		line string
		ok   bool
	}{
		{"server.0=h4:2888:3888;2181", true},
		{"server.4=h4:2888:3888;2181", true},
		{"server.999=h4:2888:3888;2181", false},
		{"server.4=h4:0:3888;2181", false},
		{"server.4=127.0.0.1:1:3888;2181,server.5=127.0.0.1:1:3888;2181", false},
		{"server.3=h9:2888:3888;2181", false}, // server 3 runs at its old address
		{"server.2=h9:2888:3888;2181", true},
	} {
		to, err := from.next(&Wish{Version: -1, Joining: tc.line})
		must.OK(t, err, "%v", tc.line)
		c := plan{from: from, to: to, runs: map[uint32]bool{1: true, 3: true}}
		expect.Equal(t, c.possible() == nil, tc.ok, "%s", tc.line)
	}
}

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

func TestWhoCarriesOutAChangeLeavesLast(t *testing.T) {
	m, version := ParseConfig(threeServers)
	got := m.ids(2)
	expect.List(t, got, []uint32{1, 3, 2})
	expect.Equal(t, version, 0x10000002a, "version")
}
