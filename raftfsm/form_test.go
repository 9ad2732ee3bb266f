package raftfsm

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Servers with different lists form no cluster, and say which server has another list.
func TestServersWithOtherListsFormNoCluster(t *testing.T) {
	t.Parallel()
	peers := map[uint32]string{1: freeAddr(t), 2: freeAddr(t)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var told, ended sync.WaitGroup
	told.Add(2)
	for id := uint32(1); id <= 2; id++ {
		ended.Go(func() {
			once := sync.OnceFunc(told.Done)
			defer once()
			says := fmt.Sprintf("server %d was started with other --peers", 3-id)
			o := Options{ID: id, Peers: peers, Logger: quietLog(t, id), Observer: new(watcher),
				Waiting: func(what string) {
					if strings.Contains(what, says) {
						once()
					}
				}}
			if id == 2 {
				o.Peers, o.Observers = map[uint32]string{1: peers[1], 2: peers[2], 3: "127.0.0.1:1"}, []uint32{3}
			}
			if n, err := Start(ctx, o); !expect.Fails(t, err, "server %d joined", id) {
				stop(t, n)
			}
		})
	}
	told.Wait()
	cancel()
	ended.Wait()
}

// A cluster forms without its observers. They become members without a vote when they start.
func TestClusterFormsWithObservers(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		c := &trio{t: t}
		peers := map[uint32]string{1: freeAddr(t), 2: freeAddr(t), 3: freeAddr(t)}
		var wg sync.WaitGroup
		for id := 1; id <= 3; id++ {
			c.opts[id] = Options{ID: uint32(id), Peers: peers, Observers: []uint32{1}, DataDir: t.TempDir(),
				HeartbeatTimeout: 300 * time.Millisecond}
			if id != 1 || !late {
				wg.Go(func() { c.start(id) })
			}
		}
		wg.Wait()
		eventually(t, "the voters serve", func() bool {
			return c.seen[2].serving.Load() &&
				c.seen[3].serving.Load()
		})
		c.create(2, "/n")
		if late {
			c.start(1)
		}
		eventually(t, "the observer serves", func() bool { return c.seen[1].serving.Load() && c.has(1, "/n") })
		for id := 1; id <= 3; id++ {
			for _, m := range c.nodes[id].Status().Members {
				expect.Equal(t, m.Voter, m.ID != 1,
					"late %v: in server %d's eyes, %d votes", late, id, m.ID)
			}
		}
		// The cluster accepts writes while the observer is down.
		stop(t, c.nodes[1])
		c.create(2, "/without")
		c.start(1)
		eventually(t, "it is back", func() bool { return c.seen[1].serving.Load() && c.has(1, "/without") })
		for id := 1; id <= 3; id++ {
			stop(t, c.nodes[id])
		}
	}
	if _, err := (Options{ID: 1, Peers: map[uint32]string{1: "127.0.0.1:1"}, Observers: []uint32{
		1}}).withDefaults(); err == nil {
		t.Error("a cluster without a vote is allowed")
	}
}

// A server that is cut off must send its clients away before their sessions can end. So the heartbeat timeout
// must not be too long for the sessions' timeout. The default heartbeat timeout fits any sessions.
func TestG23HeartbeatTimeoutIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		heartbeat, session time.Duration
		refused            string // a part of the error; empty: the server accepts the timeouts
	}{
		{0, time.Millisecond, ""}, {time.Second, 2 * time.Second, ""}, {2 * time.Second, 0, ""},
		{2*time.Second + 1, 0, "--heartbeat-timeout 2s or less"}, {5 * time.Second, 6 * time.Second,
			"--min-session-timeout 7s"},
		{5 * time.Second, 7 * time.Second, ""}, {1100 * time.Millisecond, 3 * time.Second,
			"--heartbeat-timeout 1s or less"},
	} {
		_, err := (Options{HeartbeatTimeout: c.heartbeat, MinSessionTimeout: c.session}).withDefaults()
		if expect.Equal(t, err != nil, c.refused != "",
			"a heartbeat timeout of %v with sessions of %v: err != nil", c.heartbeat, c.session) {
			expect.That(t, err == nil || strings.Contains(err.Error(), c.refused),
				"a heartbeat timeout of %v with sessions of %v: %v, want %q",
				c.heartbeat, c.session, err, c.refused)
		}
	}
}

// A replaced server's raft asks the server itself for a vote. So the server admits its own calls even before
// it has read the log entry that names its new directory.
func TestReplacedServerKnowsItself(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	n := c.nodes[2]
	id := n.disk.Identity()
	id.Incarnation = "new"
	must.OK(t, n.disk.SaveIdentity(id))
	g := &peer.Greeting{From: 2, To: 2, Cluster: id.Cluster, Incarnation: "new", Version: peer.Version,
		Oldest: peer.Oldest}
	expect.OK(t, host{n}.Admit(peer.Raft, g), "it refuses itself")
	g.Incarnation = "another"
	expect.Fails(t, host{n}.Admit(peer.Raft, g), "another server with its id is let in")
	g.From, g.To = 3, 2
	expect.That(t, host{n}.Admit(peer.Raft, g) != nil, "a server with another directory is let in")
}

// A replaced server may lead before the other servers have read the log entry of the replacement. They admit
// its new directory all the same, and refuse an older one.
func TestR6ReplacedServerIsLetInByThoseBehind(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	n := c.nodes[2]
	now := n.fsm.Index()
	for _, test := range []struct {
		what     string
		expected uint64
		refused  bool
	}{
		{"a directory from the formation", 0, true},
		{"one that was expected before what is applied here", now - 1, true},
		{"one that was expected at a later entry", now + 1000, false},
	} {
		g := &peer.Greeting{From: 3, To: 2, Cluster: n.disk.Identity().Cluster, Incarnation: "another",
			Expected: test.expected,
			Version:  peer.Version, Oldest: peer.Oldest}
		expect.Equal(t, host{n}.Admit(peer.Raft, g) != nil, test.refused, "%s", test.what)
	}
}

// memoryDisk returns the disk of a server that keeps all data in memory.
func memoryDisk(t *testing.T, id uint32) *disk.Disk {
	t.Helper()
	d := must.Get(disk.Open(disk.Options{Server: id, Rand: rand.Reader, Logger: quietLog(t, id),
		Fatal: func(err error) { t.Error(err) }}))(t)
	t.Cleanup(func() { expect.OK(t, d.Close()) })
	return d
}
