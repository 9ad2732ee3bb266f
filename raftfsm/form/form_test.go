package form

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var quiet = slog.New(slog.DiscardHandler)

// memoryDisk returns the disk of a server that keeps all data in memory.
func memoryDisk(t *testing.T, id uint32) *disk.Disk {
	t.Helper()
	d := must.Get(disk.Open(disk.Options{Server: id, Rand: rand.Reader, Logger: quiet,
		Fatal: func(err error) { t.Error(err) }}))(t)
	t.Cleanup(func() { expect.OK(t, d.Close()) })
	return d
}

// server is the host of a port that admits each caller and answers with its status.
type server struct{ peer.Status }

type host struct {
	peer.Host // the other methods of a Host are not called
	s         *server
}

func (h host) Greeting(uint32) peer.Greeting {
	return peer.Greeting{}
}
func (h host) Admit(peer.Purpose, *peer.Greeting) error                           { return nil }
func (h host) Status(*peer.Greeting) peer.Status                                  { return h.s.Status }
func (h host) Answer(context.Context, *peer.Question) (told peer.Told, err error) { return told, nil }

func openPort(t *testing.T, id uint32, s *server) *peer.Port {
	t.Helper()
	p := must.Get(peer.Open(t.Context(), peer.Options{ID: id, Addr: "127.0.0.1:0", Host: host{s: s},
		Listen: peer.Listen, Dial: peer.Dial, Logger: quiet}))(t)
	p.Serve()
	t.Cleanup(p.Close)
	return p
}

// A server that looks for its cluster ignores the answers of removed servers, whether they know of their
// removal or not.
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
	elsewhere := func(st peer.Status) peer.Status { st.Cluster = "d"; return st }
	for _, test := range []struct {
		what   string
		formed []peer.Status
		best   uint32
		stale  []uint32
	}{
		{"nobody", nil, 0, nil},
		{"one that has just joined", []peer.Status{{ID: 2, Cluster: "c"}}, 2, nil},
		{"one that knows that it was removed", []peer.Status{up(2, 0, 9, 3, 90, members(1, 3, 4))}, 0,
			[]uint32{2}},
		{"one that does not know it", []peer.Status{up(2, 0, 4, 3, 80, members(1, 2, 3)),
			up(3, 3, 9, 4, 90, members(1, 3, 4))}, 3, []uint32{2}},
		{"the same, of releases that do not tell the configuration", []peer.Status{
			up(2, 0, 0, 3, 80, members(1, 2, 3)), up(3, 0, 0, 4, 90, members(1, 3, 4))}, 3, []uint32{2}},
		{"one with a leader before one with a longer log", []peer.Status{up(2, 0, 4, 5, 99, members(1, 2, 3)),
			up(3, 1, 4, 4, 90, members(1, 2, 3))}, 3, nil},
		{"the longer log where nobody leads", []peer.Status{up(2, 0, 4, 4, 80, members(1, 2, 3)),
			up(3, 0, 4, 4, 90, members(1, 2, 3))}, 3, nil},
		{"a newer member whom an older word does not know", []peer.Status{up(4, 1, 9, 4, 90, members(1,
			2, 3, 4)),
			up(3, 0, 4, 3, 80, members(1, 2, 3))}, 4, nil},
		{"the same, in one term", []peer.Status{up(4, 1, 9, 4, 90, members(1, 2, 3, 4)),
			up(3, 0, 4, 4, 80, members(1, 2, 3))}, 4, nil},
		{"the same, of releases that do not tell the configuration", []peer.Status{
			up(4, 1, 0, 4, 90, members(1, 2, 3, 4)), up(3, 0, 0, 3, 95, members(1, 2, 3))}, 4, nil},
		{"one whom a word as old does not know", []peer.Status{up(4, 1, 0, 4, 90, members(1, 2, 3, 4)),
			up(3, 0, 0, 4, 90, members(1, 2, 3))}, 4, nil},
		{"one whom a later word of its term does not know", []peer.Status{up(4, 0, 0, 4, 80, members(1,
			2, 3, 4)),
			up(3, 3, 0, 4, 90, members(1, 2, 3))}, 3, []uint32{4}},
		{"one of whom another says nothing yet", []peer.Status{up(4, 1, 4, 4, 80, members(1, 2, 3, 4)),
			up(3, 0, 9, 5, 90, nil)}, 4, nil},
		{"one whom another cluster does not know", []peer.Status{up(4, 1, 4, 4, 80, members(1, 2, 3, 4)),
			elsewhere(up(3, 0, 9, 5, 90, members(1, 2, 3)))}, 4, nil},
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
		expect.Equal(t, id, test.best, "%s: the server that it believes", test.what)
		expect.List(t, ids, test.stale, "%s: servers that it does not believe", test.what)
	}
}

// A member that lost its data directory must not join again by itself. A server that has not read its whole
// log may not know the lost directory, so its answer alone does not let the member in.
func TestR6LostDirectoryIsRememberedBySomebody(t *testing.T) {
	members := map[uint32]string{1: "x", 2: "x", 4: "x"}
	server := func(id uint32, asOf uint64, waits string, incarnations map[uint32]string) peer.Status {
		return peer.Status{ID: id, AsOf: asOf, Cluster: "c", Up: true, Leader: 2, LastTerm: 3, LastIndex: 90,
			Members: members, Incarnations: incarnations, Waits: waits}
	}
	begins := server(1, 10, "no contact with a leader", map[uint32]string{1: "a", 2: "b"})
	behind := server(1, 40, "", map[uint32]string{1: "a", 2: "b"}) // it serves, perhaps with an old state
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
		{"also than one that serves", []peer.Status{behind, leads}, false,
			"server 2 says: server 4 was part of"},
		{"nobody else answers", []peer.Status{begins}, false,
			"waiting for server 1, which waits: no contact with a leader"},
		{"it has never had one", []peer.Status{begins, never}, false, "waiting for server 1"},
		{"it has never had one, and a server serves", []peer.Status{never, begins}, true, ""},
		{"the other server has yet to read of the replacement", []peer.Status{never, old}, true, ""},
		{"it is no member", []peer.Status{gone}, false, "does not know server 4"},
	} {
		d := memoryDisk(t, 4)
		f := New(Options{List: List{ID: 4, Peers: members}, Disk: d, Log: quiet})
		joins, err := f.joinFormed(&test.formed[0], test.formed)
		said := f.Waits()
		expect.That(t, !joins || d.Identity().Expected == test.formed[0].AsOf,
			"%s: the directory is expected as of entry %d", test.what, d.Identity().Expected)
		if err != nil || joins != test.joins || !strings.Contains(said, test.says) ||
			joins != (d.Identity().Cluster == "c") {
			t.Errorf("%s: joins %v, says %q, %v", test.what, joins, said, err)
		}
	}
}

// A server helps to form a cluster once, and only if the proposal has its data directory and its --peers.
func TestFormationsThatAServerRefuses(t *testing.T) {
	d := memoryDisk(t, 2)
	own := d.Identity().Incarnation
	peers := map[uint32]string{1: "one:1", 2: "two:1", 3: "three:1"}
	f := New(Options{List: List{ID: 2, Peers: peers, Observers: []uint32{3}}, Disk: d})
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
		"server 2 has another data directory now than the proposal": func(p *peer.Formation) {
			p.Incarnations = map[uint32]string{1: "a", 2: "b"}
		},
		"--peers: 1=one:1,2=two:1,3=three:1:observer instead of 1=one:1,2=two:1;": func(p *peer.Formation) {
			p.Peers, p.Observers = map[uint32]string{1: "one:1", 2: "two:1"}, nil
		},
		"3=three:1:observer instead of 1=one:1,2=two:1,3=three:1;": func(p *peer.Formation) {
			p.Observers = nil
		},
	} {
		err := f.Accept(formation(tune))
		if expect.Fails(t, err, "want %q", says) {
			expect.Has(t, err.Error(), says)
		}
		expect.Equal(t, d.Identity().Cluster, "", "%s: d.Identity().Cluster", says)
		expect.That(t, !accepted(),
			"%s: and yet it is part of the cluster: want !accepted()", says)
	}
	ours := formation(func(*peer.Formation) {})
	for range 2 { // twice, because the request may come again
		must.OK(t, f.Accept(ours))
		id := d.Identity()
		expect.That(t, accepted(), "identity %+v: want accepted()", id)
		expect.Equal(t, id.Cluster, "c", "identity %+v: id.Cluster", id)
		expect.That(t, maps.Equal(id.Incarnations, ours.Incarnations),
			"identity %+v: want maps.Equal(id.Incarnations, ours.Incarnations)", id)
		expect.That(t, maps.Equal(id.Peers, peers),
			"identity %+v: want maps.Equal(id.Peers, peers)", id)
		expect.List(t, id.Observers, ours.Observers, "identity %+v: id.Observers", id)
	}
	err := f.Accept(formation(func(p *peer.Formation) { p.Cluster = "d" }))
	must.Fails(t, err, "it forms two clusters")
	expect.Has(t, err.Error(), "server 2 already belongs to cluster c")
	expect.Equal(t, d.Identity().Cluster, "c")
}

// A server that forms a cluster becomes part of it itself. If the proposal names another directory for this
// server, form() fails.
func TestServerThatFormsACluster(t *testing.T) {
	var log must.Text
	d := memoryDisk(t, 1)
	peers := map[uint32]string{1: "one:1"} // there is no other server to ask
	f := New(Options{List: List{ID: 1, Peers: peers}, Disk: d, Log: slog.New(slog.NewTextHandler(&log, nil))})
	p := &peer.Formation{Cluster: "c", Incarnations: map[uint32]string{1: "another"}, Peers: peers}
	done, err := f.form(t.Context(), p)
	expect.That(t, !done, "with another server's directory it forms the cluster")
	expect.Fails(t, err, "with another server's directory")
	expect.Equal(t, log.String(), "")
	p.Incarnations[1] = d.Identity().Incarnation
	done, err = f.form(t.Context(), p)
	expect.That(t, done, "with its own directory it does not form the cluster")
	if expect.OK(t, err, "with its own") {
		expect.Equal(t, d.Identity().Cluster, "c", "with its own: d.Identity().Cluster")
	}
	expect.Has(t, log.String(), "new cluster formed")
}

// All voters that are present begin with the same configuration; observers may be absent. A server that
// comes later, or is alone, begins without a configuration.
func TestConfigurationThatAClusterBeginsWith(t *testing.T) {
	peers := map[uint32]string{1: "one:1", 2: "two:1", 3: "three:1"}
	all := map[uint32]string{1: "a", 2: "b", 3: "c"}
	for name, c := range map[string]struct {
		peers, incarnations map[uint32]string
		observers           []uint32
		want                string
	}{
		"all vote": {peers, all, nil, "1 one:1 Voter, 2 two:1 Voter, 3 three:1 Voter"},
		"one observes": {peers, all, []uint32{3},
			"1 one:1 Voter, 2 two:1 Voter, 3 three:1 Nonvoter"},
		"an observer was not there": {peers, map[uint32]string{1: "a", 2: "b"}, []uint32{3},
			"1 one:1 Voter, 2 two:1 Voter, 3 three:1 Nonvoter"},
		"a voter was not there":         {peers, map[uint32]string{1: "a", 2: "b"}, nil, ""},
		"this server was not there":     {peers, map[uint32]string{2: "b", 3: "c"}, nil, ""},
		"this server was alone":         {nil, map[uint32]string{1: "a"}, nil, ""},
		"nothing is known of a cluster": {nil, nil, nil, ""},
	} {
		d := memoryDisk(t, 1)
		f := New(Options{List: List{ID: 1, Peers: peers}, Disk: d})
		id := d.Identity()
		id.Peers, id.Incarnations, id.Observers = c.peers, c.incarnations, c.observers
		must.OK(t, d.SaveIdentity(id))
		var got []string
		if conf := f.peersConfig(); conf != nil {
			for _, s := range conf.Servers {
				got = append(got, fmt.Sprintf("%s %s %s", s.ID, s.Address, s.Suffrage))
			}
		}
		expect.Equal(t, strings.Join(got, ", "), c.want, "%s", name)
	}
}

// A server that starts alone forms a cluster, and belongs to it at each later start. A server whose
// directory belongs to a cluster of several servers does not start without --peers.
func TestServerThatIsStartedAlone(t *testing.T) {
	d := memoryDisk(t, 4)
	alone := func(peers map[uint32]string) *Forming {
		return New(Options{List: List{ID: 4, Peers: peers}, Disk: d, Rand: rand.Reader})
	}
	listed := map[uint32]string{4: "four:1"}
	for _, c := range []struct {
		peers map[uint32]string
		addr  string
	}{{nil, "local"}, {listed, "four:1"}} {
		was := d.Identity().Cluster
		conf := must.Get(alone(c.peers).Join(t.Context()))(t)
		expect.Equal(t, fmt.Sprint(conf.Servers), fmt.Sprintf("[{Voter 4 %s}]", c.addr))
		id := d.Identity()
		expect.That(t, id.Cluster != "", "the server has no cluster")
		if was != "" {
			expect.Equal(t, id.Cluster, was, "the cluster at a later start")
		}
		expect.That(t, maps.Equal(id.Incarnations, map[uint32]string{4: id.Incarnation}), "%v", id.Incarnations)
	}
	id := d.Identity()
	id.Incarnations, id.Peers = map[uint32]string{4: id.Incarnation, 5: "b"}, map[uint32]string{4: "four:1",
		5: "five:1"}
	must.OK(t, d.SaveIdentity(id))
	must.Get(alone(listed).Join(t.Context()))(t)
	_, err := alone(nil).Join(t.Context())
	must.Fails(t, err)
	expect.Has(t, err.Error(), "belongs to server 4 of a cluster: give --peers 4=four:1,5=five:1")
}

// A server logs what it waits for once, and again only when that changes.
func TestWhatAServerWaitsForIsToldOnce(t *testing.T) {
	var log must.Text
	var told []string
	f := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil)),
		Waiting: func(what string) { told = append(told, what) }})
	expect.Equal(t, f.Waits(), "")
	for _, what := range []string{"one", "one", "two", "two", "one"} {
		joined, err := f.say("server %s", what)
		expect.OK(t, err)
		expect.That(t, !joined, "it has joined")
		expect.Equal(t, f.Waits(), "server "+what)
	}
	expect.List(t, told, []string{"server one", "server two", "server one"})
	expect.Equal(t, strings.Count(log.String(), "server one"), 2, "lines")
	f.o.Waiting = nil
	_, _ = f.say("three")
	expect.Equal(t, f.Waits(), "three")
}

// A starting server logs how its --peers differ from the members.
func TestListThatDiffersFromTheMembersIsTold(t *testing.T) {
	members := []raft.Server{{ID: "1", Address: "one:1"}, {ID: "2", Address: "two:1"}, {ID: "3",
		Address: "three:1"}}
	const added, missing, other, moved = "names a server that is not a member", "a member is missing in --peers",
		"--peers and the cluster differ", "the cluster knows this server at another address"
	for _, c := range []struct {
		name  string
		peers map[uint32]string
		list  []raft.Server
		port  *peer.Port
		want  []string
	}{
		{"the same", map[uint32]string{1: "one:1", 2: "two:1", 3: "three:1"}, members, new(peer.Port), nil},
		{"one more", map[uint32]string{1: "one:1", 2: "two:1", 3: "three:1", 4: "four:1"}, members,
			new(peer.Port),
			[]string{added}},
		{"one less", map[uint32]string{1: "one:1", 2: "two:1"}, members, new(peer.Port), []string{missing}},
		{"it has moved", map[uint32]string{1: "new:1", 2: "two:1", 3: "three:1"}, members, new(peer.Port),
			[]string{moved}},
		{"another has moved", map[uint32]string{1: "one:1", 2: "new:1", 3: "three:1"}, members, new(peer.Port),
			[]string{other}},
		{"all at once", map[uint32]string{1: "new:1", 2: "new:2", 4: "four:1"}, members, new(peer.Port),
			[]string{moved, other, missing, added}},
		{"no member is known yet", map[uint32]string{1: "one:1", 2: "two:1"}, nil, new(peer.Port), nil},
		{"alone", nil, members[:1], nil, nil},
	} {
		var log must.Text
		f := New(Options{List: List{ID: 1, Peers: c.peers}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		f.Use(c.port)
		f.Compare(c.list)
		for _, text := range []string{added, missing, other, moved} {
			expect.Equal(t, strings.Contains(log.String(), text), slices.Contains(c.want, text),
				"%s: %s", c.name,
				text)
		}
		expect.Equal(t, strings.Count(log.String(), "\n"), len(c.want), "%s: lines in %s", c.name, log.String())
	}
}

// If a server does not listen at its address in --peers, it calls that address, to check that it is reached.
func TestServerLooksWhetherItIsReached(t *testing.T) {
	nowhere := must.Refused(t)
	port := openPort(t, 1, new(server))
	addr := port.Addr()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name         string
		ctx          context.Context
		says, listen string
		warns        bool
	}{
		{"there", t.Context(), nowhere, nowhere, false},
		{"elsewhere, and reached", t.Context(), addr, "0.0.0.0:1", false},
		{"elsewhere, and not reached", t.Context(), nowhere, addr, true},
		{"it stops", gone, nowhere, addr, false},
	} {
		must.Await(t, c.name, time.Minute, func() bool { // tried again: a busy machine may answer too late
			var log must.Text
			f := New(Options{List: List{ID: 1, Peers: map[uint32]string{1: c.says}}, Listen: c.listen,
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			f.Use(port)
			f.CheckReach(c.ctx)
			return strings.Contains(log.String(), "does not reach itself") == c.warns
		})
	}
}

// A starting server asks each other server. It notes the log position that each answer shows, and lists the
// answers by id.
func TestServerThatStartsAsksTheOthers(t *testing.T) {
	one := &server{Status: peer.Status{ID: 1, Incarnation: "a", Now: peer.Shown{Start: 1}}}
	three := &server{Status: peer.Status{ID: 3, Incarnation: "c", Now: peer.Shown{Start: 1}}}
	d := memoryDisk(t, 2)
	p := must.Get(LoadPromises(d, quiet))(t)
	peers := map[uint32]string{1: openPort(t, 1, one).Addr(), 2: "two:1", 3: openPort(t, 3, three).Addr()}
	f := New(Options{List: List{ID: 2, Peers: peers}, Disk: d, Promises: p, Log: quiet})
	f.Use(openPort(t, 2, new(server)))
	id := d.Identity()
	id.Cluster = "c"
	id.Incarnations = map[uint32]string{1: "a", 2: id.Incarnation, 3: "another"}
	must.OK(t, d.SaveIdentity(id))
	must.Await(t, "server 1 answers in time", time.Minute, func() bool {
		must.OK(t, expect.Err(f.Join(t.Context())))
		return p.Of("a").Start == 1
	})
	must.Await(t, "both answer in time", time.Minute, func() bool {
		list := f.askAll(t.Context(), time.Minute, peer.Question{})
		must.Equal(t, len(list), 2, "answers")
		must.Equal(t, list[0].ID, 1,
			"answers of %d and %d: list[0].ID", list[0].ID, list[1].ID)
		must.Equal(t, list[1].ID, 3,
			"answers of %d and %d: list[1].ID", list[0].ID, list[1].ID)
		return list[0].Err == nil && list[1].Err == nil && list[0].Status.ID == 1 && list[1].Status.ID == 3
	})
	expect.Equal(t, p.Of("c"), peer.Shown{}, "a directory that is not the one of the member")
	id.Incarnations[3] = "c"
	must.OK(t, d.SaveIdentity(id))
	must.Await(t, "server 3 answers in time", time.Minute, func() bool {
		must.OK(t, expect.Err(f.Join(t.Context())))
		return p.Of("c").Start == 1
	})
}

// A directory counts how often its server has started on it. If another server has seen more starts than
// that, the directory is an old copy, and the server does not start on it.
func TestServerThatStartsFromAnOldCopy(t *testing.T) {
	d := memoryDisk(t, 2)
	id := d.Identity()
	id.Cluster = "c"
	must.OK(t, d.SaveIdentity(id))
	one := &server{peer.Status{ID: 1, Known: peer.Shown{Start: id.Start + 1, Life: "later"}}}
	f := New(Options{List: List{ID: 2, Peers: map[uint32]string{1: openPort(t, 1, one).Addr(), 2: "two:1"}},
		Disk: d, Log: quiet})
	f.Use(openPort(t, 2, new(server)))
	var err error
	must.Await(t, "server 1 answers in time", time.Minute, func() bool {
		_, err = f.Join(t.Context())
		return err != nil
	})
	expect.Has(t, err.Error(), "the data directory of server 2 is an old copy: server 1 knows that")
}

// The first voter forms the cluster when all voters have answered. After its deadline, it neither forms the
// cluster nor reports the missing answers.
func TestFirstVoterFormsTheCluster(t *testing.T) {
	peers := map[uint32]string{1: must.Refused(t), 2: must.Refused(t), 3: must.Refused(t)}
	port := openPort(t, 2, new(server))
	for name, c := range map[string]struct {
		observers []uint32
		late      bool
		waits     string
		forms     bool
	}{
		"two do not answer":                     {nil, false, "waiting for server 1 at", false},
		"they did not have the time":            {nil, true, "", false},
		"one that does not answer observes":     {[]uint32{1}, false, "waiting for server 3 at", false},
		"both that do not answer observe":       {[]uint32{1, 3}, false, "", true},
		"both observe, and the time has passed": {[]uint32{1, 3}, true, "", false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if c.late {
			cancel()
			ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		}
		d := memoryDisk(t, 2)
		f := New(Options{List: List{ID: 2, Peers: peers, Observers: c.observers}, Disk: d, Rand: rand.Reader,
			Log: quiet})
		f.Use(port)
		joined, err := f.tryJoin(ctx)
		cancel()
		expect.OK(t, err, "%s", name)
		expect.Equal(t, joined, c.forms, "%s: it has joined", name)
		expect.That(t, strings.HasPrefix(f.Waits(), c.waits),
			"%s: %s: want strings.HasPrefix(f.Waits(), c.waits)", name, f.Waits())
		expect.Equal(t, c.waits == "", f.Waits() == "", "%s", name)
		expect.Equal(t, d.Identity().Cluster != "", c.forms, "%s: it has a cluster", name)
		if c.forms {
			expect.That(t, maps.Equal(d.Identity().Incarnations,
				map[uint32]string{2: d.Identity().Incarnation}),
				"%s: %v", name,
				d.Identity().Incarnations)
			joined, err = f.tryJoin(ctx)
			expect.OK(t, err, "%s", name)
			expect.That(t, joined, "%s: it has not joined", name)
		}
	}
}
