package raftfsm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func (c *trio) config(id int) (text string) {
	c.nodes[id].View(func(s *state.State) { text = s.ConfigData() })
	return text
}

// A new cluster's first change is its configuration, at the zxid where that of
// a ZooKeeper ensemble stands, and with what the operator wrote of its servers.
func TestANewClusterBeginsWithItsConfiguration(t *testing.T) {
	var want []string
	c := newTrio(t, false, func(o *Options) {
		o.Words = map[uint32]state.Server{}
		want = nil
		for id := uint32(1); id <= 3; id++ {
			o.Words[id] = state.Server{ID: id, Peer: o.Peers[id], Election: "7", Client: fmt.Sprintf("h%d:8", id)}
			want = append(want, fmt.Sprintf("server.%d=%s:7:participant;h%d:8", id, o.Peers[id], id))
		}
	})
	lead := c.mustLead()
	c.create(lead, "/a")
	c.create(lead%3+1, "/b")
	for id := 1; id <= 3; id++ {
		eventually(t, "it is applied", func() bool { return c.has(id, "/a") && c.has(id, "/b") })
		expect.Equal(t, c.config(id), strings.Join(want, "\n")+"\nversion=100000000", "server %d", id)
	}
}

// Several changes are one to clients, words come back as they were written, and the next leader knows them.
func TestWordsOfAnOperatorComeBackInOneVersion(t *testing.T) {
	c := newTrio(t, false, func(o *Options) { o.ClientAddr = fmt.Sprintf("h%d:2181", o.ID) })
	lead := c.mustLead()
	versions := func() (n int64) { _, n = state.CutConfig(c.config(lead)); return n }
	eventually(t, "the members are published", func() bool {
		c.nodes[lead].term.Load().publishMembers()
		return strings.Count(c.config(lead), ";") == 3
	})
	was, zxid := versions(), c.nodes[lead].Zxid()
	line := "server.4=10.0.0.9:1:77:observer;0.0.0.0:5"
	change := func(m state.MemberChange) {
		t.Helper()
		m.Words, m.By, m.Since = line, 2, versions()
		must.OK(t, c.nodes[lead%3+1].ChangeMember(context.Background(), m), "%v", m.Op)
	}
	change(state.MemberChange{Op: "add", ID: 4, Addr: "10.0.0.9:1", More: true})
	c.nodes[lead].term.Load().publishMembers()
	c.create(lead, "/between")
	if now := versions(); now != was || c.nodes[lead].Zxid() != zxid+2 {
		t.Errorf("version %x in between, was %x", now, was)
	}
	for by, want := range map[uint32]error{3: ErrChanging, 2: nil} {
		if err := c.nodes[lead%3+1].ChangeMember(context.Background(), state.MemberChange{Op: "describe", ID: 1,
			By: by, Since: was, More: true}); !errors.Is(err, want) {
			t.Errorf("server %d asks in between: %v", by, err)
		}
	}
	change(state.MemberChange{Op: "describe", ID: 1})
	eventually(t, "the words are published", func() bool {
		return strings.Contains(c.config(lead), "\n"+line+
			"\n")
	})
	if now := versions(); now != zxid+3 {
		t.Errorf("version %x, want %x", now, zxid+3)
	}
	change(state.MemberChange{Op: "describe", ID: 1})
	eventually(t, "nothing different is a new version", func() bool { return versions() == zxid+4 })
	if err := c.nodes[lead%3+1].ChangeMember(context.Background(), state.MemberChange{Op: "describe", ID: 1,
		By: 3, Since: was}); !errors.Is(err, ErrStale) {
		t.Errorf("a change that starts from an older configuration: %v", err)
	}
	eventually(t, "another leads", func() bool {
		if c.leader() == lead {
			_ = c.nodes[lead].raft.LeadershipTransfer().Error() // a busy machine may refuse
		}
		now := c.leader()
		return now != 0 && now != lead
	})
	next := c.nodes[c.mustLead()]
	next.View(func(s *state.State) {
		list, _ := next.describe(s, next.raft.Servers(), "")
		expect.That(t, len(list) == 4 && list[3].Line() == line, "the next leader says %+v", list)
	})
}

// Words that come with each of several changes are proposed once.
func TestWordsAreProposedOnce(t *testing.T) {
	tm := &term{n: &Node{id: 1, fsm: newFSM(1, "c", new(watcher), nil)}, work: newSignal()}
	for i, words := range []string{"", "server.4=a:1:2", "server.4=a:1:2", "server.4=b:1:2", "server.4=b:1:2"} {
		must.OK(t, tm.note(&state.MemberChange{Op: "describe", ID: 1, By: 2, Words: words}))
		expect.Equal(t, len(tm.acts.list), []int{0, 1, 1, 2, 2}[i], "proposed after %d changes", i+1)
	}
}

// A server is added only when the log has let the directory of its predecessor go: not by a change that ends
// before, nor by a leader whose term ends before.
func TestPredecessorIsForgottenFirst(t *testing.T) {
	d := must.Get(disk.Open(disk.Options{Server: 2, Rand: rand.Reader, Logger: quietLog(t, 2),
		Fatal: func(err error) { t.Error(err) }}))(t)
	defer d.Close()
	a := newApplied()
	a.entry(openStream())
	n := &Node{id: 2, fsm: a.fsm, disk: d, o: Options{Rand: rand.Reader}}
	n.up.Store(true)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	leads := &term{n: n, ctx: t.Context(), work: newSignal()}
	led := &term{n: n, ctx: over, work: newSignal()}
	expect.OK(t, leads.forgetFirst(over, 7), "a server that never was")
	expect.Equal(t, status.Of(leads.forgetFirst(over, 1)), status.Interrupted, "the change has ended")
	expect.Equal(t, status.Of(led.forgetFirst(t.Context(), 1)), status.Interrupted, "the term has ended")
	waits := make(chan error, 1)
	go func() { waits <- leads.forgetFirst(t.Context(), 1) }()
	a.entry(state.Forget(1, 5))
	expect.OK(t, <-waits)
}

// A server that leaves is told before it does, so that it can say so.
func TestAServerThatLeavesSeesIt(t *testing.T) {
	// Changes are counted: another leader would make some.
	c := newTrio(t, false, func(o *Options) { o.ClientAddr = fmt.Sprintf("h%d:2181", o.ID) })
	lead := c.mustLead()
	gone := lead%3 + 1
	eventually(t, "the members are published", func() bool { return strings.Count(c.config(lead), ";") == 3 })
	_, was := state.CutConfig(c.config(lead))
	zxid := c.nodes[lead].Zxid()
	must.OK(t, c.nodes[gone].ChangeMember(context.Background(), state.MemberChange{
		Op: "remove", ID: uint32(gone), By: uint32(gone), Since: was, Words: "server.9=x:1:2"}))
	if _, version := state.CutConfig(c.config(gone)); version != zxid+1 ||
		strings.Contains(c.config(gone), fmt.Sprintf("server.%d=", gone)) {
		t.Errorf("it sees %s", c.config(gone))
	}
	c.create(lead, "/after")
	now := c.config(lead)
	expect.That(t, now == c.config(gone) && c.nodes[lead].Zxid() == zxid+3, "the others see %s", now)
}
