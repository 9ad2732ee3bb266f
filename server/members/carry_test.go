package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
)

// fakeNode is server 1, the leader, of a cluster of servers 1, 2 and 3.
type fakeNode struct {
	id      uint32
	version int64
	now     Config
	there   map[string]bool // addresses of servers that answer
	follow  map[string]bool // addresses of servers that follow the leader
	refuse  map[string]error
	before  map[string]func() // what another operator does just before a change
	made    []string
	mu      sync.Mutex // guards the fields below, because servers are asked in parallel
	asked   []string
}

func newFakeNode() *fakeNode {
	n := &fakeNode{id: 1, there: map[string]bool{}, follow: map[string]bool{}, refuse: map[string]error{}}
	n.now, n.version = ParseConfig(threeServers)
	for _, at := range []string{"h1:2888", "h2:2888", "h3:2888"} {
		n.follow[at] = true
	}
	return n
}

func (n *fakeNode) ID() uint32     { return n.id }
func (n *fakeNode) Config() string { return fmt.Sprintf("%s\nversion=%x", n.now.text(), n.version) }

func (n *fakeNode) Servers() (list []status.Member) {
	for id, s := range n.now {
		list = append(list, status.Member{ID: id, Peer: s.Peer, Voter: s.Voter})
	}
	return list
}

func (n *fakeNode) Standing(_ context.Context, _ uint32, addr string) (there, follows bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, addr)
	return n.there[addr] || n.follow[addr], n.follow[addr]
}

func (n *fakeNode) ChangeMember(_ context.Context, c change.Change) error {
	what := fmt.Sprint(c.Op, " ", c.ID)
	if f := n.before[what]; f != nil {
		delete(n.before, what)
		f()
	}
	if _, is := n.now[c.ID]; is && c.Op == change.Add {
		return status.Errorf(status.IsMember, "server %d is a member already", c.ID)
	}
	if err := n.refuse[what]; err != nil {
		return err
	}
	n.made = append(n.made, what)
	s := n.now[c.ID]
	s.ID = c.ID
	n.now = maps.Clone(n.now)
	switch c.Op {
	case change.Remove:
		delete(n.now, c.ID)
	case change.Add:
		n.now[c.ID] = config.Server{ID: c.ID, Peer: c.Addr}
	case change.Promote, change.Vote:
		s.Voter = true
		n.now[c.ID] = s
	case change.Demote:
		s.Voter = false
		n.now[c.ID] = s
	}
	if !c.More {
		n.version++
	}
	return nil
}

// A Wish for other members is carried out as several changes, each of one server. If a change fails, the
// earlier changes are undone, or the answer says that the result is unknown.
func TestWishIsCarriedOutOrTakenBack(t *testing.T) {
	const four = "server.4=h4:2888:3888;2181"
	unsafe := status.Errorf(status.Unsafe, "no majority")
	changing, stale := status.Errorf(status.Changing, "another"), status.Errorf(status.Stale, "others")
	broken := errors.New("the link broke")
	for name, c := range map[string]struct {
		wish    Wish
		prepare func(*fakeNode)
		code    status.Code
		err     error
		made    string
	}{
		"a server joins": {Wish{Joining: four, May: true}, func(n *fakeNode) { n.there["h4:2888"] = true }, "", nil,
			"add 4, promote 4, describe 1"},
		"two leave": {Wish{Leaving: "2,3", Joining: four + ",server.5=h5:2888:3888;2181", May: true},
			func(n *fakeNode) { n.there["h4:2888"], n.there["h5:2888"] = true, true }, "", nil,
			"add 4, promote 4, add 5, promote 5, remove 2, remove 3"},
		"without the right no server is asked": {Wish{Joining: four}, func(*fakeNode) {}, status.NotAllowed, nil, ""},
		"no majority follows": {Wish{Leaving: "3", May: true}, func(n *fakeNode) { n.follow["h2:2888"] = false },
			status.Unsafe, nil, ""},
		"a server that lost its log is no majority": {Wish{Leaving: "3", May: true}, func(n *fakeNode) {
			n.follow["h2:2888"], n.there["h2:2888"] = false, true
		}, status.Unsafe, nil, ""},
		"the leader sees no majority": {Wish{Leaving: "3", May: true},
			func(n *fakeNode) { n.refuse["remove 3"] = unsafe }, status.Unsafe, nil, ""},
		"another change is under way": {Wish{Leaving: "3", May: true},
			func(n *fakeNode) { n.refuse["remove 3"] = changing }, status.Changing, nil, ""},
		"the members are others all the time": {Wish{Leaving: "3", May: true},
			func(n *fakeNode) { n.refuse["remove 3"] = stale }, status.Changing, nil, ""},
		"the members of that version are others": {Wish{Leaving: "3", Version: 0x10000002a, May: true},
			func(n *fakeNode) { n.refuse["remove 3"] = stale }, status.Stale, ErrVersion, ""},
		"those who join are not ready": {Wish{Leaving: "2,3", Joining: four + ",server.5=h5:2888:3888;2181", May: true},
			func(n *fakeNode) {
				n.there["h4:2888"], n.there["h5:2888"] = true, true
				n.refuse["promote 4"], n.refuse["promote 5"] = broken, broken
			}, status.Unsafe, nil, "add 4, add 5, remove 4, remove 5"},
		"what was begun cannot be taken back": {Wish{Leaving: "2,3", Joining: four, May: true}, func(n *fakeNode) {
			n.there["h4:2888"] = true
			n.refuse["promote 4"], n.refuse["remove 4"] = broken, broken
		}, "", ErrUnknown, "add 4"},
		"it breaks on its way": {Wish{Leaving: "2,3", Joining: four, May: true}, func(n *fakeNode) {
			n.there["h4:2888"], n.refuse["remove 3"] = true, unsafe
		}, status.Unsafe, ErrUnknown, "add 4, promote 4, remove 2"},
		"nothing changes": {Wish{May: true}, func(*fakeNode) {}, "", nil, "describe 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newFakeNode()
				c.prepare(n)
				if c.wish.Version == 0 {
					c.wish.Version = -1
				}
				err := Carry(t.Context(), n, c.wish, 2, slog.New(slog.DiscardHandler))
				expect.Equal(t, err == nil, c.err == nil && c.code == "", "%v", err)
				expect.Equal(t, status.Of(err), c.code)
				if c.err != nil {
					expect.Is(t, err, c.err)
				}
				expect.Equal(t, strings.Join(n.made, ", "), c.made)
				if !c.wish.May {
					expect.Equal(t, len(n.asked), 0, "servers that were asked")
				}
			})
		})
	}
}

// If a wish fails half way, only its own changes are undone. A server that another operator has added during
// the wish stays.
func TestServerOfAnotherOperatorStays(t *testing.T) {
	const joining = "server.4=h4:2888:3888;2181,server.5=h5:2888:3888;2181"
	broken := errors.New("the link broke")
	for name, c := range map[string]struct {
		id   uint32 // the server that the other operator adds
		addr string
		at   string // the change before which the other operator adds the server
		late bool   // the joining servers cannot be promoted
		code status.Code
		made string
	}{
		"one of ours, elsewhere": {5, "other:2888", "add 5", false, status.Changing,
			"add 4, promote 4, remove 4"},
		"one of ours, in its place": {5, "h5:2888", "add 5", false, status.Changing,
			"add 4, promote 4, remove 4"},
		"our first": {4, "other:2888", "add 4", false, status.Stale, ""},
		"another id": {6, "h6:2888", "promote 5", true, status.Unsafe,
			"add 4, add 5, remove 4, remove 5"},
		"one that we added": {5, "other:2888", "promote 5", true, status.Unsafe, "add 4, add 5, remove 4"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newFakeNode()
				n.there["h4:2888"], n.there["h5:2888"] = true, true
				if c.late {
					n.refuse["promote 4"], n.refuse["promote 5"] = broken, broken
				}
				n.before = map[string]func(){c.at: func() {
					n.now = maps.Clone(n.now)
					n.now[c.id] = config.Server{ID: c.id, Peer: c.addr}
				}}
				// Without servers 4 and 5 no majority would remain.
				w := Wish{Version: n.version, Leaving: "2,3", Joining: joining, May: true}
				err := Carry(t.Context(), n, w, 2, slog.New(slog.DiscardHandler))
				expect.Fails(t, err, "it is carried out")
				expect.Equal(t, status.Of(err), c.code, "%v", err)
				expect.Equal(t, strings.Join(n.made, ", "), c.made)
				expect.Equal(t, n.now[c.id].Peer, c.addr, "the other's server")
			})
		})
	}
}

// The majority of a new configuration counts voters that follow, and joining servers that answer. Only
// members are asked whether they follow.
func TestWhoCountsInANewConfiguration(t *testing.T) {
	n := newFakeNode()
	n.there["h4:2888"] = true
	n.follow["h3:2888"] = false
	for leaving, want := range map[string][]uint32{"": {1, 2, 4}, "2": {1, 4}, "1,2": {4}} {
		tr := &transition{ctx: t.Context(), node: n}
		var err error
		tr.from, tr.to, tr.since, err = goal(n.Config(), &Wish{Version: -1, Leaving: leaving,
			Joining: "server.4=h4:2888:3888;2181,server.5=h5:2888:3888;2181"}, 1)
		expect.OK(t, err)
		tr.ask(t.Context())
		expect.List(t, slices.Sorted(maps.Keys(tr.ready)), want, "without %q", leaving)
		expect.List(t, slices.Sorted(maps.Keys(tr.runs)), []uint32{1, 2, 3}, "members that were asked")
	}
}

// If a server does not get its vote in time, it does not count towards the majority of the new configuration.
func TestVoteThatIsNotGivenIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode()
		n.there["h4:2888"], n.refuse["promote 4"] = true, status.Errorf(status.NotReady, "it is behind")
		began := time.Now()
		err := Carry(t.Context(), n, Wish{Version: -1, May: true, Joining: "server.4=h4:2888:3888;2181",
			Patience: 3 * time.Second}, 2, slog.New(slog.DiscardHandler))
		expect.OK(t, err, "three of four voters follow")
		expect.Equal(t, time.Since(began), 3*time.Second, "it is waited for")
		expect.Equal(t, strings.Join(n.made, ", "), "add 4, vote 4")
	})
}
