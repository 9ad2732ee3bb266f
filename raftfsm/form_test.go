package raftfsm

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// What a server hears when it looks for its cluster: the word of those who were
// removed does not count, whether they know it or not.
func TestStaleMembersAreNotBelieved(t *testing.T) {
	members := func(ids ...uint32) map[uint32]string {
		m := map[uint32]string{}
		for _, id := range ids {
			m[id] = "x"
		}
		return m
	}
	up := func(id uint32, leader uint32, config, term, index uint64, in map[uint32]string) peer.Status {
		return peer.Status{ID: id, Cluster: "c", Up: true, Leader: leader, Config: config, LastTerm: term,
			LastIndex: index, Members: in}
	}
	for _, test := range []struct {
		what   string
		formed []peer.Status
		best   uint32
		stale  []uint32
	}{
		{"nobody", nil, 0, nil},
		{"one that has just joined", []peer.Status{{ID: 2, Cluster: "c"}}, 2, nil},
		{"one that knows that it was removed", []peer.Status{up(2, 0, 9, 3, 90, members(1, 3, 4))}, 0, []uint32{2}},
		{"one that does not know it", []peer.Status{up(2, 0, 4, 3, 80, members(1, 2, 3)),
			up(3, 3, 9, 4, 90, members(1, 3, 4))}, 3, []uint32{2}},
		{"the same, of releases that do not tell the configuration", []peer.Status{
			up(2, 0, 0, 3, 80, members(1, 2, 3)), up(3, 0, 0, 4, 90, members(1, 3, 4))}, 3, []uint32{2}},
		{"one with a leader before one with a longer log", []peer.Status{up(2, 0, 4, 5, 99, members(1, 2, 3)),
			up(3, 1, 4, 4, 90, members(1, 2, 3))}, 3, nil},
		{"the longer log where nobody leads", []peer.Status{up(2, 0, 4, 4, 80, members(1, 2, 3)),
			up(3, 0, 4, 4, 90, members(1, 2, 3))}, 3, nil},
		{"a newer member whom an older word does not know", []peer.Status{up(4, 1, 9, 4, 90, members(1, 2, 3, 4)),
			up(3, 0, 4, 3, 80, members(1, 2, 3))}, 4, nil},
	} {
		best, stale := newest(test.formed)
		var id uint32
		if best != nil {
			id = best.ID
		}
		var ids []uint32
		for _, s := range stale {
			ids = append(ids, s.ID)
		}
		expect.That(t, id == test.best && slices.Equal(ids, test.stale),
			"%s: believes %d, not %v", test.what, id, ids)
	}
}

// A member that has lost its data directory does not come in by the word of a server that was started again
// and has not read its log to the end: there the member has no directory yet.
func TestR6LostDirectoryIsRememberedBySomebody(t *testing.T) {
	members := map[uint32]string{1: "x", 2: "x", 4: "x"}
	server := func(id uint32, asOf uint64, waits string, incarnations map[uint32]string) peer.Status {
		return peer.Status{ID: id, AsOf: asOf, Cluster: "c", Up: true, Leader: 2, LastTerm: 3, LastIndex: 90,
			Members: members, Incarnations: incarnations, Waits: waits}
	}
	begins := server(1, 10, "no contact with a leader", map[uint32]string{1: "a", 2: "b"})
	behind := server(1, 40, "", map[uint32]string{1: "a", 2: "b"}) // as far as it knows
	leads := server(2, 90, "", map[uint32]string{1: "a", 2: "b", 4: "lost"})
	never := server(2, 90, "", map[uint32]string{1: "a", 2: "b"})
	gone := server(2, 90, "", map[uint32]string{1: "a", 2: "b"})
	old := server(3, 40, "", map[uint32]string{1: "a", 2: "b", 4: "lost"})
	gone.Members = map[uint32]string{1: "x", 2: "x"}
	for _, test := range []struct {
		what   string
		formed []peer.Status
		joins  bool
		says   string
	}{
		{"the other knows better", []peer.Status{begins, leads}, false,
			"server 2 says: server 4 was part of cluster c with another data directory"},
		{"also than one that serves", []peer.Status{behind, leads}, false, "server 2 says: server 4 was part of"},
		{"nobody else answers", []peer.Status{begins}, false,
			"waiting for server 1, which waits: no contact with a leader"},
		{"it has never had one", []peer.Status{begins, never}, false, "waiting for server 1"},
		{"it has never had one, and a server serves", []peer.Status{never, begins}, true, ""},
		{"the other server has yet to read of the replacement", []peer.Status{never, old}, true, ""},
		{"it is no member", []peer.Status{gone}, false, "does not know server 4"},
	} {
		d, err := disk.Open(disk.Options{Server: 4, Rand: rand.Reader, Logger: quietLog(t, 4),
			Fatal: func(err error) { t.Error(err) }})
		must.OK(t, err)
		f := &forming{o: &Options{ID: 4, Peers: members, Logger: quietLog(t, 4)}, disk: d}
		joins, err := f.joinFormed(&test.formed[0], test.formed)
		said := f.waits()
		expect.That(t, !joins || d.Identity().Expected == test.formed[0].AsOf,
			"%s: the directory is expected as of entry %d", test.what, d.Identity().Expected)
		if err != nil || joins != test.joins || !strings.Contains(said, test.says) ||
			joins != (d.Identity().Cluster == "c") {
			t.Errorf("%s: joins %v, says %q, %v", test.what, joins, said, err)
		}
		expect.OK(t, d.Close())
	}
}

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

// A server takes part in forming a cluster once, and only in one that means this very directory and this
// list.
func TestFormationsThatAServerRefuses(t *testing.T) {
	d, err := disk.Open(disk.Options{Server: 2, Rand: rand.Reader, Logger: quietLog(t, 2),
		Fatal: func(err error) { t.Error(err) }})
	must.OK(t, err)
	defer d.Close()
	own := d.Identity().Incarnation
	peers := map[uint32]string{1: "one:1", 2: "two:1", 3: "three:1"}
	f := &forming{o: &Options{ID: 2, Peers: peers, Observers: []uint32{3}}, disk: d, formed: make(chan struct{})}
	formation := func(tune func(*peer.Formation)) *peer.Formation {
		p := &peer.Formation{Cluster: "c", Incarnations: map[uint32]string{1: "a", 2: own}, Peers: peers,
			Observers: []uint32{3}}
		tune(p)
		return p
	}
	accepted := func() bool {
		select {
		case <-f.formed:
			return true
		default:
			return false
		}
	}
	for says, tune := range map[string]func(*peer.Formation){
		"server 2 was meant to be another": func(p *peer.Formation) {
			p.Incarnations = map[uint32]string{1: "a", 2: "b"}
		},
		"other --peers: 1=one:1,2=two:1,3=three:1:observer instead of 1=one:1,2=two:1;": func(p *peer.Formation) {
			p.Peers, p.Observers = map[uint32]string{1: "one:1", 2: "two:1"}, nil
		},
		"3=three:1:observer instead of 1=one:1,2=two:1,3=three:1;": func(p *peer.Formation) { p.Observers = nil },
	} {
		err := f.accept(formation(tune))
		expect.That(t, err != nil && strings.Contains(err.Error(), says), "%v, want %s", err, says)
		expect.That(t, d.Identity().Cluster == "" && !accepted(), "%s: and yet it is part of the cluster", says)
	}
	ours := formation(func(*peer.Formation) {})
	for range 2 { // the word may come twice
		must.OK(t, f.accept(ours))
		id := d.Identity()
		expect.That(t, accepted() && id.Cluster == "c" && maps.Equal(id.Incarnations, ours.Incarnations) &&
			maps.Equal(id.Peers, peers) && slices.Equal(id.Observers, ours.Observers), "identity %+v", id)
	}
	err = f.accept(formation(func(p *peer.Formation) { p.Cluster = "d" }))
	must.Fails(t, err, "it forms two clusters")
	expect.Has(t, err.Error(), "server 2 already belongs to cluster c")
	expect.Equal(t, d.Identity().Cluster, "c")
}

// The server that forms a cluster is part of it at once and says so, or tells why it cannot be.
func TestServerThatFormsACluster(t *testing.T) {
	var log must.Text
	d, err := disk.Open(disk.Options{Server: 1, Rand: rand.Reader, Logger: quietLog(t, 1),
		Fatal: func(err error) { t.Error(err) }})
	must.OK(t, err)
	defer d.Close()
	peers := map[uint32]string{1: "one:1"} // no other server is asked
	f := &forming{o: &Options{ID: 1, Peers: peers, Logger: slog.New(slog.NewTextHandler(&log, nil))}, disk: d,
		formed: make(chan struct{})}
	p := &peer.Formation{Cluster: "c", Incarnations: map[uint32]string{1: "another"}, Peers: peers}
	done, err := f.form(t.Context(), p)
	expect.That(t, !done && err != nil, "with another's directory: %v, %v", done, err)
	expect.Equal(t, log.String(), "")
	p.Incarnations[1] = d.Identity().Incarnation
	done, err = f.form(t.Context(), p)
	expect.That(t, done && err == nil && d.Identity().Cluster == "c", "with its own: %v, %v", done, err)
	expect.Has(t, log.String(), "new cluster formed")
}

// A cluster forms without its observers, and they are members without a vote whenever they come.
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
		// Its vote is not needed, and does not count.
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

// A server that is cut off sends its clients away before a session can end. Where sessions are
// shorter than that, the default still holds.
func TestG23HeartbeatTimeoutIsBounded(t *testing.T) {
	for _, c := range []struct {
		heartbeat, session time.Duration
		refused            string // part of the error; empty: it is accepted
	}{
		{0, time.Millisecond, ""}, {time.Second, 2 * time.Second, ""}, {2 * time.Second, 0, ""},
		{2*time.Second + 1, 0, "--heartbeat-timeout 2s at most"}, {5 * time.Second, 6 * time.Second,
			"--min-session-timeout 7s"},
		{5 * time.Second, 7 * time.Second, ""}, {1100 * time.Millisecond, 3 * time.Second,
			"--heartbeat-timeout 1s at most"},
	} {
		_, err := (Options{HeartbeatTimeout: c.heartbeat, MinSessionTimeout: c.session}).withDefaults()
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("a heartbeat timeout of %v with sessions of %v: %v, want %q", c.heartbeat, c.session, err,
				c.refused)
		}
	}
}

// A server that was replaced knows itself, also before it has read so much of its
// log that the state names its new directory: raft asks itself for votes.
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

// A server that was replaced may lead before the others have read of it: each of
// them lets in the newer directory, and none an older one.
func TestR6ReplacedServerIsLetInByThoseBehind(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	n := c.nodes[2]
	now := n.fsm.index.Load()
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
