package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// nodesFor returns the nodes of a new state. If owner is not 0, one of the nodes belongs to that session.
func nodesFor(t testing.TB, owner int64) *tree.Maker {
	m := tree.NewMaker()
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		must.OK(t, m.Set(path, &tree.Info{ACL: jute.WorldAnyone}))
	}
	if owner != 0 {
		must.OK(t, m.Set("/e", &tree.Info{ACL: jute.WorldAnyone, Kind: tree.EphemeralNode,
			Stat: jute.Stat{Czxid: 5, Mzxid: 5, Pzxid: 5, EphemeralOwner: owner}}))
	}
	return m
}

// Adopt returns a state with the given sessions and nodes. It refuses sessions and nodes that contradict each
// other.
func TestStatesFromElsewhereAreAdopted(t *testing.T) {
	one, two := session.Session{ID: 7, Gen: 3, Timeout: 1000}, session.Session{ID: 9, Gen: 1, Timeout: 1000}
	s := must.Get(Adopt("test", 50, []session.Session{one, two}, nodesFor(t, 7)))(t)
	got, known := s.Sessions().Get(7)
	expect.That(t, known, "session 7 is not in the state")
	expect.Equal(t, got, one, "session 7")
	expect.Equal(t, s.Sessions().Len(), 2, "sessions")
	expect.Equal(t, s.Zxid(), 50, "zxid")
	expect.Equal(t, s.ClusterID(), "test", "cluster")
	expect.That(t, !s.Configured(), "the members count as published")
	expect.Equal(t, s.Tree().EphemeralsIn(7), 1, "ephemeral nodes of session 7")
	read, _, err := ReadSnapshot(bytes.NewReader(backupOf(t, s)))
	if expect.OK(t, err, "its snapshot") {
		expect.Equal(t, read.Digest(), s.Digest(), "its snapshot: read.Digest()")
	}
	for name, x := range map[string]struct {
		zxid     int64
		sessions []session.Session
		nodes    *tree.Maker
	}{
		"a session twice":        {50, []session.Session{one, one}, nodesFor(t, 7)},
		"a node of no session":   {50, []session.Session{two}, nodesFor(t, 7)},
		"a node of a later time": {4, []session.Session{one}, nodesFor(t, 7)},
	} {
		_, err := Adopt("test", x.zxid, x.sessions, x.nodes)
		expect.Fails(t, err, "%s", name)
	}
	m := nodesFor(t, 0)
	must.OK(t, m.Set(config.Path, &tree.Info{ACL: jute.WorldAnyone, Data: []byte("server.1=a:1:1\nversion=5")}))
	s = must.Get(Adopt("test", 50, nil, m))(t)
	expect.That(t, s.Configured(), "published members do not count as published")
}

func TestZxidsOfTimes(t *testing.T) {
	for now, want := range map[int64]int64{0: 0, zxidTime - 1: 0, zxidTime: 0, zxidTime + 1: 1024, zxidTime + 7: 7 * 1024} {
		expect.Equal(t, TimeZxid(now), want, "%d", now)
	}
	s := New("test")
	for _, x := range [][2]int64{{5, 5}, {3, 5}, {6, 6}} {
		s.Raise(x[0])
		expect.Equal(t, s.Zxid(), x[1], "raised to %d", x[0])
	}
}

// A state that moves to another cluster keeps only its nodes and sessions.
func TestRefoundedStateForgetsItsCluster(t *testing.T) {
	b := newBench(t)
	old := b.session()
	b.do(Request{Op: OpConfig, Body: []byte("server.1=a:1:1;2")}, Request{Op: OpWords, Body: []byte("words")})
	b.do((&Staging{ID: 9, Origin: 1, Birth: b.birth, Size: 5}).Open())
	b.s.restored = 4
	b.s.Refound("other", 5000)
	_, _, open := b.s.Staged()
	birth, _, _ := b.s.Stream(1)
	_, member := b.s.Member(1)
	expect.Equal(t, b.s.ClusterID(), "other", "b.s.ClusterID()")
	expect.That(t, !b.s.Configured(), "the members count as published")
	expect.Equal(t, b.s.ConfigData(), "", "b.s.ConfigData()")
	expect.Equal(t, b.s.Words(), "", "b.s.Words()")
	expect.Equal(t, b.s.Restored(), 0, "b.s.Restored()")
	expect.That(t, !open, "a restore is still under way")
	expect.Equal(t, birth, 0, "birth of the stream")
	expect.That(t, !member, "server 1 is still known")
	expect.Equal(t, len(b.s.Members()), 0, "len(b.s.Members())")
	_, known := b.s.Sessions().Get(old.ID)
	next := b.s.Sessions().Create(1, old.Password, 1, "", 0)
	first := New("other").Sessions().Create(1, old.Password, 1, "", 0)
	expect.That(t, known, "the session is lost")
	expect.Equal(t, next.ID, first.ID, "id of the next session, as in a new cluster")
	expect.That(t, next.ID != old.ID, "the next session has the id of an old one")
}

// CheckBackup says what a backup holds. It refuses a damaged backup. ReadNodes ends with the first error of
// begin() or each().
func TestBackupsAreDescribed(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.do(create(s, "/a", 0), create(s, "/a/b", 1))
	backup := backupOf(t, b.s)
	got := must.Get(CheckBackup(bytes.NewReader(backup)))(t)
	want := Backup{Cluster: "test", Zxid: b.s.Zxid(), Nodes: 6, Sessions: 1, Bytes: b.s.Tree().Bytes()}
	expect.Equal(t, *got, want)
	must.OK(t, CheckSnapshot(bytes.NewReader(backup)))
	for n := range backup {
		expect.Fails(t, CheckSnapshot(bytes.NewReader(backup[:n])), "%d bytes", n)
		expect.Fails(t, expect.Err(CheckBackup(bytes.NewReader(backup[:n]))), "%d bytes", n)
		flipped := bytes.Clone(backup)
		flipped[n] ^= 1
		expect.Fails(t, CheckSnapshot(bytes.NewReader(flipped)), "another byte %d", n)
	}
	longer := append(slices.Clone(backup), 0)
	expect.Fails(t, CheckSnapshot(bytes.NewReader(longer)), "a byte behind the end")
	expect.Fails(t, expect.Err(CheckBackup(bytes.NewReader(longer))), "a byte behind the end")

	stop := errors.New("enough")
	var order []string
	read, err := ReadNodes(bytes.NewReader(backup), func(s *State) error {
		order = append(order, fmt.Sprint("begin of ", s.ClusterID(), s.Sessions().Len()))
		return nil
	}, func(path string, i *tree.Info) error { order = append(order, path); return nil })
	if expect.OK(t, err) {
		expect.Equal(t, read.Zxid(), b.s.Zxid(), "read.Zxid()")
	}
	if expect.Equal(t, len(order), 7, "len(order)") {
		expect.Equal(t, order[0], "begin of test1", "the first call")
		expect.That(t, slices.Contains(order, "/a/b"), "the nodes %q lack /a/b", order)
	}
	_, err = ReadNodes(bytes.NewReader(backup), func(*State) error { return stop },
		func(string, *tree.Info) error { t.Error("a node after the error"); return nil })
	expect.Is(t, err, stop)
	n := 0
	_, err = ReadNodes(bytes.NewReader(backup), nil, func(string, *tree.Info) error { n++; return stop })
	expect.Is(t, err, stop)
	expect.Equal(t, n, 1, "nodes until the error")
}
