package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func (c *trio) config(id int) (text string) {
	c.nodes[id].View(func(s *state.State) { text = s.ConfigData() })
	return text
}

// configZxid returns the zxid of a configuration with this version: each change adds one to the zxid and to
// the version.
func (c *trio) configZxid(id int, version int64) (zxid int64) {
	c.nodes[id].View(func(s *state.State) {
		is, _ := s.Tree().Get(config.Path)
		_, now := config.Cut(string(is.Data))
		zxid = version - now + is.Stat.Mzxid
	})
	return zxid
}

// The first change of a new cluster is its configuration. The configuration has the version of a new
// ZooKeeper ensemble, and the operator's descriptions of the servers.
func TestANewClusterBeginsWithItsConfiguration(t *testing.T) {
	t.Parallel()
	var want []string
	c := newTrio(t, false, func(o *Options) {
		o.Words = map[uint32]config.Server{}
		want = nil
		for id := uint32(1); id <= 3; id++ {
			o.Words[id] = config.Server{ID: id, Peer: o.Peers[id], Election: "7", Client: fmt.Sprintf("h%d:8", id)}
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

// An operator describes several servers in a group of changes. Clients see the whole group as one new version
// of the configuration. The leader and the next leader publish the descriptions as the operator wrote them.
func TestWordsOfAnOperatorComeBackInOneVersion(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, func(o *Options) { o.ClientAddr = fmt.Sprintf("h%d:2181", o.ID) })
	lead := c.mustLead()
	versions := func() (n int64) { _, n = config.Cut(c.config(lead)); return n }
	eventually(t, "the members are published", func() bool {
		c.nodes[lead].leader.Term().PublishMembers()
		return strings.Count(c.config(lead), ";") == 3
	})
	was, zxid := versions(), c.nodes[lead].Zxid()
	line := "server.4=10.0.0.9:1:77:observer;0.0.0.0:5"
	ask := func(m change.Change) {
		t.Helper()
		m.Words, m.By, m.Since = line, 2, versions()
		must.OK(t, c.nodes[lead%3+1].ChangeMember(context.Background(), m), "%v", m.Op)
	}
	ask(change.Change{Op: "add", ID: 4, Addr: "10.0.0.9:1", More: true})
	c.nodes[lead].leader.Term().PublishMembers()
	c.create(lead, "/between")
	expect.Equal(t, versions(), was, "version of the members between the changes")
	expect.Equal(t, c.nodes[lead].Zxid(), zxid+2, "zxid between the changes")
	for by, want := range map[uint32]error{3: leading.ErrChanging, 2: nil} {
		if err := c.nodes[lead%3+1].ChangeMember(context.Background(), change.Change{Op: "describe", ID: 1,
			By: by, Since: was, More: true}); !errors.Is(err, want) {
			t.Errorf("server %d asks in between: %v", by, err)
		}
	}
	ask(change.Change{Op: "describe", ID: 1})
	eventually(t, "the words are published", func() bool {
		return strings.Contains(c.config(lead), "\n"+line+
			"\n")
	})
	expect.Equal(t, c.configZxid(lead, versions()), zxid+3, "the configuration's zxid")
	ask(change.Change{Op: "describe", ID: 1})
	eventually(t, "nothing different is a new version", func() bool {
		return c.configZxid(lead, versions()) == zxid+4
	})
	if err := c.nodes[lead%3+1].ChangeMember(context.Background(), change.Change{Op: "describe", ID: 1,
		By: 3, Since: was}); !errors.Is(err, leading.ErrStale) {
		t.Errorf("a change that starts from an older configuration: %v", err)
	}
	eventually(t, "another leads", func() bool {
		if c.leader() == lead {
			_ = c.nodes[lead].raft.LeadershipTransfer().Error() // on a busy machine this may fail, and is tried again
		}
		now := c.leader()
		return now != 0 && now != lead
	})
	next := c.mustLead()
	eventually(t, "the next leader publishes", func() bool {
		tm := c.nodes[next].leader.Term()
		if tm != nil {
			tm.PublishMembers()
		}
		return tm != nil || c.leader() != next
	})
	c.create(next, "/after")
	expect.Has(t, c.config(next), "\n"+line+"\n", "what the next leader publishes")
}

// A server learns of its removal before it is removed, so that its clients can learn of the removal.
func TestAServerThatLeavesSeesIt(t *testing.T) {
	t.Parallel()
	// These heartbeats are long. With short ones the leader might change during the test, and add changes to
	// those that the test counts.
	c := newTrio(t, false, func(o *Options) { o.ClientAddr = fmt.Sprintf("h%d:2181", o.ID) })
	lead := c.mustLead()
	gone := lead%3 + 1
	eventually(t, "the members are published", func() bool { return strings.Count(c.config(lead), ";") == 3 })
	_, was := config.Cut(c.config(lead))
	zxid := c.nodes[lead].Zxid()
	must.OK(t, c.nodes[gone].ChangeMember(context.Background(), change.Change{
		Op: "remove", ID: uint32(gone), By: uint32(gone), Since: was, Words: "server.9=x:1:2"}))
	_, version := config.Cut(c.config(gone))
	expect.Equal(t, c.configZxid(gone, version), zxid+1,
		"it sees %s: c.configZxid(gone, version)", c.config(gone))
	expect.That(t, !strings.Contains(c.config(gone), fmt.Sprintf("server.%d=", gone)),
		"it sees %s", c.config(gone))
	c.create(lead, "/after")
	now := c.config(lead)
	expect.Equal(t, now, c.config(gone), "the others see %s: now", now)
	expect.Equal(t, c.nodes[lead].Zxid(), zxid+3,
		"the others see %s: c.nodes[lead].Zxid()", now)
}
