package state

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestVersionOfTheMembership(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "server.1=a:1:1:participant\nversion=1a": 0x1a,
		"\nversion=": 0, "\nversion=zz": 0} {
		if _, got := CutConfig(text); got != want {
			t.Errorf("%q has version %d", text, got)
		}
	}
}

// What is published is read back as it was, whatever the addresses look like,
// and no two of a server's three ports are the same: Java clients insist.
func TestMembersAreReadBackAsTheyWerePublished(t *testing.T) {
	list := []Server{
		{ID: 1, Peer: "h1:2888", Client: "h1:2181", Voter: true},
		{ID: 2, Peer: "[::1]:2888", Client: "[::1]:2889", Voter: true},
		{ID: 3, Peer: "h3:65535", Client: "h3:65534", Voter: true},
		{ID: 4, Peer: "h4:2888", Election: "3888", Client: "0.0.0.0:2181"},
		{ID: 254, Peer: "10.0.0.1:1"},
		{ID: ZeroID, Peer: "h0:1", Election: "2", Voter: true},
	}
	text := ConfigText(list)
	data := string(withVersion([]byte(text), 0x10000002a))
	got, version := ParseConfig(data)
	for i := range got {
		if list[i].Election == "" { // one is made up
			got[i].Election = ""
		}
	}
	expect.That(t, slices.Equal(got, list) && version == 0x10000002a,
		"%q is read as %+v, version %x", data, got, version)
	if cut, _ := CutConfig(data); cut != text {
		t.Errorf("%q without its version is %q", data, cut)
	}
	for _, s := range list {
		p, c := portOf(s.Peer), portOf(s.Client)
		if o := otherPort(p, c); o == p || o == c || o < 1 || o > 65535 {
			t.Errorf("%s: the third port is %d", s.Line(), o)
		}
	}
}

// What a real ZooKeeper 3.8 answers to lines that join.
func TestLinesThatAreNoServerAreRefused(t *testing.T) {
	for _, line := range []string{"", "server.1", "some thing", "server.1=h:1", "server.1=h:1:1",
		"server.1=:1:2", "server.1=h:1:2=3", "server.1=h:1:2:leader",
		"server.1=h:1:2:observer:3", "server.1=h:1:2;h:x", "server.1=h:a:2", "server.1=h:1:2|h:3:4",
		"server.1=h\nserver.2:1:2", "server.1=" + strings.Repeat("h", 256) + ":1:2"} {
		if s, err := ParseServer(line); err == nil || errors.Is(err, ErrNumber) {
			t.Errorf("%q is read as %+v, %v", line, s, err)
		}
	}
	for _, line := range []string{"server.x=h:1:2", "server.=h:1:2", "server.1=h:1:65536",
		"server.1=h:1:2;65536", "server.1=h:-1:2"} {
		if s, err := ParseServer(line); !errors.Is(err, ErrNumber) {
			t.Errorf("%q is read as %+v, %v", line, s, err)
		}
	}
	for line, want := range map[string]Server{
		" server.4 = h4:2888:3888:OBSERVER;2181": {ID: 4, Peer: "h4:2888", Election: "3888",
			Client: "0.0.0.0:2181"},
		"server.0=h:1:2;h:3":  {ID: ZeroID, Peer: "h:1", Election: "2", Client: "h:3", Voter: true},
		"9=[::1]:0:2;[::1]:3": {ID: 9, Peer: "[::1]:0", Election: "2", Client: "[::1]:3", Voter: true},
		"server.999=h:1:2":    {ID: 1<<31 | 999, Peer: "h:1", Election: "2", Voter: true},
		"server.255=h:1:2;":   {ID: 1<<31 | 255, Peer: "h:1", Election: "2", Voter: true},
	} {
		if s, err := ParseServer(line); err != nil || s != want {
			t.Errorf("%q is read as %+v %v", line, s, err)
		}
	}
}

// A zoo.cfg may name one port, or one twice, where a line that joins may not.
func TestAddressesOfAFileAreReadWithLess(t *testing.T) {
	for value, want := range map[string]Server{
		"h:1":                       {Peer: "h:1", Voter: true},
		"h:1:1":                     {Peer: "h:1", Voter: true},
		"h:1:2":                     {Peer: "h:1", Election: "2", Voter: true},
		"[::1]:1:2:Observer;3":      {Peer: "[::1]:1", Election: "2", Client: "0.0.0.0:3"},
		"h:1:1:participant;c:3":     {Peer: "h:1", Client: "c:3", Voter: true},
		" h:0:2:participant;[::]:3": {Peer: "h:0", Election: "2", Client: "[::]:3", Voter: true},
	} {
		want.ID = 7
		if s, err := ParseAddresses(7, value); err != nil || s != want {
			t.Errorf("%q is read as %+v %v", value, s, err)
		}
		line := "server.7=" + value
		if s, err := ParseServer(line); (err == nil) != (want.Election != "") || err == nil && s != want {
			t.Errorf("%q is read as %+v %v", line, s, err)
		}
	}
	for _, value := range []string{"", "h", "h:", ":1:2", "h:x", "h:1:y", "h:1:70000", "h:1:2:watcher",
		"h:1:2:observer:3", "h:1:2;x", "h:1:2|i:1:2", "[::1:1:2"} {
		if s, err := ParseAddresses(7, value); err == nil {
			t.Errorf("%q is read as %+v", value, s)
		}
	}
}

func TestWordsDescribeTheServerTheyMean(t *testing.T) {
	words := map[uint32]Server{1: {ID: 1, Peer: "h:1", Election: "7", Client: "c:2"},
		2: {ID: 2, Peer: "h:2", Election: "8"}}
	for is, want := range map[Server]Server{
		{ID: 1, Peer: "h:1", Client: "x:1", Voter: true}: {ID: 1, Peer: "h:1", Election: "7", Client: "c:2",
			Voter: true},
		{ID: 1, Peer: "g:1", Client: "x:1"}: {ID: 1, Peer: "g:1", Client: "x:1"},
		{ID: 2, Peer: "h:2", Client: "x:1"}: {ID: 2, Peer: "h:2", Election: "8", Client: "x:1"},
		{ID: 3, Peer: "h:1"}:                {ID: 3, Peer: "h:1"},
	} {
		if is.Describe(words); is != want {
			t.Errorf("%+v, want %+v", is, want)
		}
	}
}

// A new cluster of several begins where a ZooKeeper ensemble does, once.
func TestAClusterIsFoundedOnce(t *testing.T) {
	s, to := New("c"), &collector{births: map[uint32]uint32{}}
	entry := Founding([]Server{{ID: 1, Peer: "h:1", Election: "2", Client: "h:3", Voter: true}}, 1000)
	for range 2 {
		must.OK(t, s.Apply(entry, to))
		if want := "server.1=h:1:2:participant;h:3\nversion=100000000"; s.Zxid() != 1<<32 ||
			s.ConfigData() != want || !s.Configured() {
			t.Fatalf("zxid %x, %q", s.Zxid(), s.ConfigData())
		}
	}
	bare := New("c")
	if err := bare.Apply(Founding([]Server{{ID: 1, Peer: "h:1", Client: "c:1"}, {ID: 2, Peer: "h:2"}}, 1000),
		to); err != nil || bare.Zxid() != 1<<32 || bare.Configured() {
		t.Errorf("it is not said yet where clients reach the second: %v", err)
	}
	b := newBench(t)
	b.session()
	zxid := b.s.Zxid()
	if err := b.s.Apply(entry, &b.got); err != nil || b.s.Zxid() != zxid || b.s.ConfigData() != "" {
		t.Errorf("founded where there is something: zxid %x, %v", b.s.Zxid(), err)
	}
}

// Clients of a new cluster are not told of the servers of the one its data come
// from. One that never told of any stays as it is.
func TestANewClusterForgetsTheServersOfTheOld(t *testing.T) {
	s, to := New("c"), &collector{births: map[uint32]uint32{}}
	s.Refound("d", 2000)
	if s.Zxid() != 0 {
		t.Errorf("zxid %x of an empty state", s.Zxid())
	}
	must.OK(t, s.Apply(Founding([]Server{{ID: 1, Peer: "h:1", Client: "h:3", Voter: true}}, 1000),
		to))
	was := s.Zxid()
	s.Refound("e", 3000)
	node, _ := s.Tree().Get(ConfigPath)
	if len(node.Data) > 0 || node.Mtime != 3000 || node.Mzxid != was+1 || s.Zxid() != was+1 || s.Configured() {
		t.Errorf("%q, %+v, zxid %x", node.Data, node.Stat, s.Zxid())
	}
}

// The words of an operator are kept, and a state without any is written as it
// was before there were words.
func TestWordsAreKeptInSnapshots(t *testing.T) {
	b := newBench(t)
	none := b.s.appendHeader(nil, Position{})
	words := "server.1=h:1:2:participant;c:3"
	b.do(Request{Op: OpWords, Body: []byte(words)})
	var file bytes.Buffer
	snap := b.s.StartSnapshot(Position{Index: 7, Term: 1})
	must.OK(t, snap.Write(&file, func(f func()) { f() }))
	snap.Close()
	s, _, err := ReadSnapshot(&file)
	if err != nil || s.Words() != words {
		t.Fatalf("%q, %v", s.Words(), err)
	}
	if _, err := s.loadHeader(none); err != nil || s.Words() != "" {
		t.Errorf("a header without words: %q, %v", s.Words(), err)
	}
	expect.Fails(t, expect.Err(s.loadHeader(append(none, "\x00\x00\x00\x01wx"...))),
		"bytes behind the words are accepted")
}
