package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// movedTo stops a server and starts it at another address.
func (c *trio) movedTo(id int, peers map[uint32]string) {
	c.t.Helper()
	if race.Enabled {
		c.t.Skip("raft 1.7.3 reads a member's record without its lock while the member moves: " +
			"docs/robustness/third-reading.md")
	}
	o := &c.opts[id]
	o.Peers, o.PeerListen = peers, peers[uint32(id)]
	c.start(id)
}

// at() returns the address of the member `of`, as it is in the log of server `id`.
func (c *trio) at(id int, of uint32) string {
	for _, s := range c.nodes[id].raft.Servers() {
		if peer.ParseID(s.ID) == of {
			return string(s.Address)
		}
	}
	return ""
}

// A server comes back at a new address that only its own --peers names, and catches up.
func TestServerAtANewAddressCatchesUp(t *testing.T) {
	t.Parallel()
	for _, lead := range []bool{false, true} {
		c := newTrio(t, true, brisk)
		moved := c.leader()
		if !lead {
			moved = moved%3 + 1
		}
		stop(t, c.nodes[moved])
		here := moved%3 + 1
		eventually(t, "a leader", func() bool { return c.leader() != 0 && c.seen[here].serving.Load() })
		c.create(here, "/while")
		peers := maps.Clone(c.opts[moved].Peers)
		peers[uint32(moved)] = freeAddr(t)
		c.movedTo(moved, peers)
		eventually(t, "it serves", c.seen[moved].serving.Load)
		for id := 1; id <= 3; id++ {
			eventually(t, "all know", func() bool { return c.at(id, uint32(moved)) == peers[uint32(moved)] })
		}
		expect.That(t, c.has(moved, "/while"), "it serves without what it missed")
		// The log has the new address now. The other servers use it, even if they start with their old
		// --peers.
		stop(t, c.nodes[here])
		c.start(here)
		eventually(t, "it serves after a restart", c.seen[here].serving.Load)
		third := 6 - moved - here
		stop(t, c.nodes[third])
		eventually(t, "the two serve", func() bool {
			return c.leader() != 0 && c.seen[moved].serving.Load() &&
				c.seen[here].serving.Load()
		})
		c.create(here, "/two")
		stop(t, c.nodes[moved])
		stop(t, c.nodes[here])
	}
}

// If all servers move at once and each has the new list, the cluster serves, although the log has the old
// addresses.
func TestClusterAtNewAddressesServes(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, brisk)
	c.create(1, "/before")
	peers := map[uint32]string{}
	for id := 1; id <= 3; id++ {
		stop(t, c.nodes[id])
		peers[uint32(id)] = freeAddr(t)
	}
	for id := 1; id <= 3; id++ {
		c.movedTo(id, peers)
	}
	for id := 1; id <= 3; id++ {
		eventually(t, "it serves", c.seen[id].serving.Load)
		for of, addr := range peers {
			eventually(t, "the log has the new address", func() bool { return c.at(id, of) == addr })
		}
	}
	expect.That(t, c.has(2, "/before"), "the data were left behind")
}

// A server that lost its disk is added again at another address. The other servers do not call its old
// address, even if their --peers names it.
func TestServerAddedAgainElsewhereCatchesUp(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	bg := context.Background()
	lead := c.mustLead()
	lost := lead%3 + 1
	stop(t, c.nodes[lost])
	must.OK(t, os.RemoveAll(c.opts[lost].DataDir))
	peers := maps.Clone(c.opts[lost].Peers)
	peers[uint32(lost)] = freeAddr(t)
	for _, m := range []change.Change{{Op: "remove", ID: uint32(lost)}, {Op: "add", ID: uint32(lost),
		Addr: peers[uint32(lost)]}} {
		must.OK(t, c.nodes[lead].ChangeMember(bg, m))
	}
	c.movedTo(lost, peers)
	eventually(t, "it is promoted", func() bool {
		return c.nodes[lead].ChangeMember(bg, change.Change{Op: "promote", ID: uint32(lost)}) == nil
	})
	eventually(t, "it serves", c.seen[lost].serving.Load)
	c.create(lost, "/again")
}

// A former server with a member's id is not called in place of the member, whatever --peers says. Otherwise
// two servers could vote for one member.
func TestR6AnIDsFormerOwnerIsNotCalledInItsPlace(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	n := c.nodes[lead]
	other := uint32(lead%3 + 1)
	servers, config := n.raft.Configuration()
	must.Equal(t, len(servers), 3, "%v", servers)
	is := c.nodes[other].status()
	for _, test := range []struct {
		what   string
		change func(*peer.Status)
		config uint64
		want   bool
	}{
		{"the member", func(*peer.Status) {}, config, true},
		{"one that has not seen the configuration, and is known", func(s *peer.Status) { s.Config = 0 }, config,
			true},
		{"another directory that has not seen it", func(s *peer.Status) { s.Config, s.Incarnation = 0, "former" },
			config, false},
		{"another id", func(s *peer.Status) { s.ID = 9 }, config, false},
		{"another cluster", func(s *peer.Status) { s.Cluster = "other" }, config, false},
	} {
		st := is
		test.change(&st)
		eventually(t, "the members are known", func() bool {
			return n.incarnationOf(other) != "" &&
				n.fsm.Index() >= config
		})
		expect.Equal(t, n.addresses.isMember(other, &st, test.config), test.want, "%s", test.what)
	}
}

// A single server that starts with --peers becomes the first member of a cluster. The cluster knows it by
// its address in --peers.
func TestSingleServerBecomesTheFirstOfACluster(t *testing.T) {
	t.Parallel()
	c := &trio{t: t}
	c.opts[1] = Options{ID: 1, DataDir: t.TempDir()}
	c.start(1)
	eventually(t, "it serves alone", c.seen[1].serving.Load)
	c.create(1, "/alone")
	expect.Equal(t, c.at(1, 1), "local", "alone it is at")
	stop(t, c.nodes[1])
	peers := map[uint32]string{1: freeAddr(t)}
	c.movedTo(1, maps.Clone(peers))
	eventually(t, "it serves with a peer port", c.seen[1].serving.Load)
	eventually(t, "its address is known", func() bool { return c.at(1, 1) == peers[1] })
	h := c.nodes[1].o.HeartbeatTimeout
	expect.That(t, h >= 300*time.Millisecond, "with a heartbeat timeout of %v others could not follow", h)
	for id := 2; id <= 3; id++ {
		peers[uint32(id)] = freeAddr(t)
		c.opts[id] = Options{ID: uint32(id), DataDir: t.TempDir(), Peers: maps.Clone(peers)}
		c.change(1, "add", uint32(id))
		c.start(id)
		eventually(t, "it is promoted", func() bool {
			return c.nodes[1].ChangeMember(t.Context(), change.Change{Op: "promote", ID: uint32(id)}) == nil
		})
		eventually(t, "it serves", c.seen[id].serving.Load)
	}
	expect.That(t, c.has(3, "/alone"), "the data were left behind")
	stop(t, c.nodes[1])
	eventually(t, "the others go on", func() bool {
		return c.leader() > 1 && c.seen[2].serving.Load() &&
			c.seen[3].serving.Load()
	})
	c.create(2, "/without1")
}

// A server joins another one that keeps its data in memory and has cut its log.
func TestServerJoinsOneInMemory(t *testing.T) {
	t.Parallel()
	c := &trio{t: t}
	peers := map[uint32]string{1: freeAddr(t)}
	c.opts[1] = Options{ID: 1, Peers: maps.Clone(peers), TrailingLogs: 1}
	c.start(1)
	eventually(t, "it serves", c.seen[1].serving.Load)
	for i := range 200 {
		c.create(1, fmt.Sprintf("/n%d", i))
	}
	must.OK(t, c.nodes[1].Snapshot())
	peers[2] = freeAddr(t)
	c.opts[2] = Options{ID: 2, Peers: peers}
	c.change(1, "add", 2)
	c.start(2)
	eventually(t, "it serves", c.seen[2].serving.Load)
	expect.That(t, c.has(2, "/n0"), "the data were left behind: want c.has(2, \"/n0\")")
	expect.That(t, c.has(2, "/n199"),
		"the data were left behind: want c.has(2, \"/n199\")")
}

// A change that no server can make returns an error with the cause. Promoting a voter succeeds, although it
// changes nothing.
func TestChangesOfMembersThatAreNoneAreErrors(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	for _, asked := range []int{c.mustLead(), c.mustLead()%3 + 1} { // ask the leader, then a follower
		for _, test := range []struct {
			change change.Change
			want   string
		}{
			{change.Change{Op: "add", ID: 2, Addr: "127.0.0.1:9"}, "server 2 is a member already"},
			{change.Change{Op: "add", ID: 4, Addr: "nowhere"}, "peer address"},
			{change.Change{Op: "promote", ID: 4}, "server 4 is not a member; add it first"},
			{change.Change{Op: "remove", ID: 4}, "server 4 is not a member"},
			{change.Change{Op: "exchange", ID: 2}, "unknown change"},
		} {
			err := c.nodes[asked].ChangeMember(t.Context(), test.change)
			if expect.Fails(t, err, "%+v asked of server %d", test.change, asked) {
				expect.Has(t, err.Error(), test.want, "%+v asked of server %d", test.change, asked)
			}
		}
		expect.OK(t, c.nodes[asked].ChangeMember(t.Context(), change.Change{Op: "promote", ID: 2}),
			"one that votes already")
	}
	expect.Equal(t, len(c.nodes[c.mustLead()].raft.Servers()), 3, "members afterwards")
}

// The steps of reconfig work. A member loses its vote and gets it back. A server gets a vote at once,
// although it may be down. A leader hands over before it loses its vote.
func TestVotesAreTakenAndGiven(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	// On a busy machine the leader may change during a step, so a step is repeated until it succeeds.
	step := func(asked int, change change.Change, want string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s %d", change.Op, change.ID), func() bool {
			return c.nodes[asked].ChangeMember(t.Context(), change) == nil
		})
		var got []string
		for _, s := range c.nodes[c.mustLead()].raft.Servers() {
			if peer.ParseID(s.ID) == change.ID {
				got = append(got, fmt.Sprintf("%s at %s", s.Suffrage, s.Address))
			}
		}
		expect.Equal(t, strings.Join(got, ", "), want, "%s %d", change.Op, change.ID)
	}
	lead := c.mustLead()
	follower := lead%3 + 1
	addr := c.opts[1].Peers[uint32(follower)]
	step(lead, change.Change{Op: "demote", ID: uint32(follower)}, "Nonvoter at "+addr)
	step(follower, change.Change{Op: "vote", ID: uint32(follower), Addr: addr}, "Voter at "+addr)
	step(lead, change.Change{Op: "vote", ID: 4, Addr: "127.0.0.1:9"}, "Voter at 127.0.0.1:9")
	step(lead, change.Change{Op: "move", ID: 4, Addr: "127.0.0.1:8"}, "Voter at 127.0.0.1:8")
	step(lead, change.Change{Op: "demote", ID: 4}, "Nonvoter at 127.0.0.1:8")
	step(lead, change.Change{Op: "move", ID: 4, Addr: "127.0.0.1:9"}, "Nonvoter at 127.0.0.1:9")
	step(lead, change.Change{Op: "remove", ID: 4}, "")
	lead = c.mustLead()
	own := c.opts[1].Peers[uint32(lead)]
	step(lead, change.Change{Op: "demote", ID: uint32(lead)}, "Nonvoter at "+own)
	expect.That(t, c.mustLead() != lead, "server %d leads without a vote", lead)
	err := c.nodes[lead].ChangeMember(t.Context(), change.Change{Op: "lead", ID: uint32(lead)})
	if expect.Fails(t, err, "a server without a vote is made leader") {
		expect.Has(t, err.Error(), "only voters lead")
	}
}

// If a server reports an address that is not the one in the log, other servers probe it there at once. A
// report from another data directory, or of the probing server itself, does not count.
func TestNewAddressesAreNews(t *testing.T) {
	t.Parallel()
	n := newTrio(t, true, nil).nodes[1]
	eventually(t, "the other is known", func() bool { return n.up.Load() && n.incarnationOf(2) != "" })
	a := newAddresses(n) // not n.addresses, whose watch() would take the news away
	incarnation, at := n.incarnationOf(2), a.of(2)
	for i, c := range []struct {
		g    peer.Greeting
		news bool
	}{
		{peer.Greeting{From: 2, Incarnation: incarnation}, false},
		{peer.Greeting{From: 2, Incarnation: incarnation, At: at}, false},
		{peer.Greeting{From: 2, Incarnation: "another", At: "127.0.0.1:1"}, false},
		{peer.Greeting{From: 1, Incarnation: n.incarnationOf(1), At: "127.0.0.1:1"}, false},
		{peer.Greeting{From: 2, Incarnation: incarnation, At: "127.0.0.1:1"}, true},
		{peer.Greeting{From: 2, Incarnation: incarnation, At: "127.0.0.1:1"}, false},
		{peer.Greeting{From: 2, Incarnation: incarnation, At: at}, false},
		{peer.Greeting{From: 2, Incarnation: incarnation, At: "127.0.0.1:2"}, true},
	} {
		a.heard(&c.g)
		news := len(a.news) > 0
		expect.Equal(t, news, c.news, "greeting %d, from server %d at %s", i, c.g.From, c.g.At)
		if news {
			<-a.news
		}
	}
}

// If a server was found at another address, it is called there until a configuration names a new address.
func TestServersThatAreFoundElsewhere(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	n := c.nodes[1]
	a := newAddresses(n)
	at := a.of(2)
	_, config := n.raft.Configuration()
	must.That(t, at == c.opts[1].Peers[2], "server 2 is at %s", at)
	expect.Equal(t, a.instead(2, "elsewhere:1"), "elsewhere:1")
	a.found(2, move{from: at, to: "new:1", config: config})
	expect.Equal(t, a.instead(2, at), "new:1")
	expect.Equal(t, a.of(2), "new:1")
	expect.Equal(t, a.instead(2, "elsewhere:1"), "elsewhere:1", "another address in the log")
	expect.Equal(t, a.instead(3, at), at, "another server")
	a.found(2, move{from: at, to: at, config: config})
	expect.Equal(t, a.instead(2, at), at, "found where the log has it")
	expect.That(t, a.say(3, "x:1"), "what a server says is news: want a.say(3, \"x:1\")")
	expect.That(t, !a.say(3, "x:1"), "what a server says is news: want !a.say(3, \"x:1\")")
	expect.That(t, a.say(3, "y:1"), "what a server says is news: want a.say(3, \"y:1\")")
	expect.Equal(t, a.of(9), "", "a server that there is not")
}

// The log reports each move and each refusal once.
func TestMovesAndRefusalsAreToldOnce(t *testing.T) {
	t.Parallel()
	var log must.Text
	a := newAddresses(&Node{log: slog.New(slog.NewTextHandler(&log, nil))})
	for i, c := range []struct {
		do   func()
		want string
	}{
		{func() { a.found(2, move{from: "a:1", to: "a:1"}) }, ""},
		{func() { a.found(2, move{from: "a:1", to: "b:1"}) }, "answers at an address that is not in the log"},
		{func() { a.found(2, move{from: "a:1", to: "b:1"}) }, ""},
		{func() { a.found(2, move{from: "a:1", to: "c:1"}) }, "answers at an address that is not in the log"},
		{func() { a.found(2, move{from: "a:1", to: "a:1"}) }, ""},
		{func() { a.found(2, move{from: "a:1", to: "c:1"}) }, "answers at an address that is not in the log"},
		{func() { a.refuses(2, "a:1", errors.New("another cluster")) }, "refuses this server"},
		{func() { a.refuses(2, "a:1", errors.New("another cluster")) }, ""},
		{func() { a.refuses(3, "a:1", errors.New("another cluster")) }, "refuses this server"},
		{func() { a.refuses(2, "a:1", errors.New("another id")) }, "refuses this server"},
	} {
		before := log.String()
		c.do()
		said := strings.TrimPrefix(log.String(), before)
		expect.That(t, strings.Contains(said, c.want) && (said == "") == (c.want == ""), "step %d: %q", i, said)
	}
}

// All members that are up must reach the address of a new member.
func TestAddressesThatMembersReach(t *testing.T) {
	t.Parallel()
	net := newCutNet()
	c := newTrio(t, false, net.tune)
	n := c.nodes[1]
	servers := n.raft.Servers()
	must.Equal(t, len(servers), 3, "members")
	reached := func(id uint32) error {
		return n.addresses.reached(t.Context(), servers, peer.Place{ID: id, Addr: c.opts[1].Peers[id]})
	}
	eventually(t, "the others reach this server", func() bool { return reached(1) == nil })
	eventually(t, "the third reaches the second", func() bool { return reached(2) == nil })
	net.set(2, 3, syscall.ECONNREFUSED)
	eventually(t, "the third does not reach the second", func() bool {
		err := reached(2)
		return err != nil && strings.Contains(err.Error(),
			"server 3 does not reach server 2 at "+c.opts[1].Peers[2])
	})
	eventually(t, "the others reach this server", func() bool { return reached(1) == nil })
	expect.OK(t, n.addresses.reached(t.Context(), servers[:0], peer.Place{ID: 1}), "there are no others")
	own := []raft.Server{{ID: "1"}, {ID: "9", Address: raft.ServerAddress(must.Refused(t))}}
	expect.Is(t, n.addresses.reached(t.Context(), own, peer.Place{ID: 1}), errUnreached)
	own = append(own, servers[1])
	eventually(t, "one of the others is down", func() bool {
		return n.addresses.reached(t.Context(), own, peer.Place{ID: 1, Addr: c.opts[1].Peers[1]}) == nil
	})
}

// Another server has a newer configuration. If this server is not in it, this server notes that it was
// removed. If it is, it notes that it was not removed.
func TestServerHearsThatItWasRemoved(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	one, two := c.nodes[1], c.nodes[2]
	at := c.opts[1].Peers[2]
	_, config := one.raft.Configuration()
	for _, x := range []struct {
		config  uint64 // the configuration that this server has
		as      uint32 // the id under which this server asks
		removed uint64 // value of Node.removed before the question; `want`: the value after it
		want    uint64
	}{
		{config, 1, 0, 0}, {config - 1, 1, 7, 0}, {config, 1, 7, 7}, {config, 9, 0, 0}, {config - 1, 9, 0, config},
	} {
		n := &Node{id: x.as, log: one.log, ctx: t.Context(), port: one.port, disk: one.disk, fsm: one.fsm,
			raft: one.raft, o: one.o}
		n.addresses = newAddresses(n)
		eventually(t, "it is found", func() bool {
			n.removed.Store(x.removed)
			n.addresses.find(2, "log:1", x.config, []string{at})
			n.addresses.mu.Lock()
			defer n.addresses.mu.Unlock()
			return n.addresses.moved[2] == move{from: "log:1", to: at, config: x.config}
		})
		expect.Equal(t, n.removed.Load(), x.want, "%+v", x)
		expect.Equal(t, n.addresses.said[2], at)
		n.addresses.find(2, "log:1", x.config, []string{must.Refused(t)})
		// At this address server 2 answers, so server 3 was not found.
		n.addresses.find(3, "log:1", x.config, []string{at})
		expect.Equal(t, len(n.addresses.moved), 1, "servers that were found")
		expect.Has(t, n.addresses.refused[3], "this is server 2, not 3")
	}
	expect.That(t, two.addresses.isMember(1, &peer.Status{ID: 1, Cluster: one.disk.Identity().Cluster,
		Config: config},
		config), "a server that has the newest configuration is no member")
}
