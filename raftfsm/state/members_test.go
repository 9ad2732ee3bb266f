package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
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

// The published members are read back as they were, whatever the addresses look like,
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
	cut, _ := CutConfig(data)
	expect.Equal(t, cut, text, "%q without its version", data)
	for _, s := range list {
		p, c := portOf(s.Peer), portOf(s.Client)
		o := otherPort(p, c)
		expect.That(t, o != p, "%s: the third port is %d: want o != p", s.Line(), o)
		expect.That(t, o != c, "%s: the third port is %d: want o != c", s.Line(), o)
		expect.That(t, o >= 1 && o <= 65535,
			"%s: the third port is %d: want o >= 1 && o <= 65535", s.Line(), o)
	}
}

// A real ZooKeeper 3.8 refuses these lines, too.
func TestLinesThatAreNoServerAreRefused(t *testing.T) {
	for _, line := range []string{"", "server.1", "some thing", "server.1=h:1", "server.1=h:1:1",
		"server.1=:1:2", "server.1=h:1:2=3", "server.1=h:1:2:leader",
		"server.1=h:1:2:observer:3", "server.1=h:1:2;h:x", "server.1=h:a:2", "server.1=h:1:2|h:3:4",
		"server.1=h\nserver.2:1:2", "server.1=" + strings.Repeat("h", 256) + ":1:2"} {
		s, err := ParseServer(line)
		expect.That(t, err != nil && !errors.Is(err, ErrNumber), "%q is read as %+v, %v", line, s, err)
	}
	for _, line := range []string{"server.x=h:1:2", "server.=h:1:2", "server.1=h:1:65536",
		"server.1=h:1:2;65536", "server.1=h:-1:2"} {
		s, err := ParseServer(line)
		expect.Is(t, err, ErrNumber, "%q is read as %+v", line, s)
	}
	for line, want := range map[string]Server{
		" server.4 = h4:2888:3888:OBSERVER;2181": {ID: 4, Peer: "h4:2888", Election: "3888",
			Client: "0.0.0.0:2181"},
		"server.0=h:1:2;h:3":  {ID: ZeroID, Peer: "h:1", Election: "2", Client: "h:3", Voter: true},
		"9=[::1]:0:2;[::1]:3": {ID: 9, Peer: "[::1]:0", Election: "2", Client: "[::1]:3", Voter: true},
		"server.999=h:1:2":    {ID: 1<<31 | 999, Peer: "h:1", Election: "2", Voter: true},
		"server.255=h:1:2;":   {ID: 1<<31 | 255, Peer: "h:1", Election: "2", Voter: true},
	} {
		expect.Equal(t, must.Get(ParseServer(line))(t), want, "%q is read as", line)
	}
}

// A zoo.cfg may name only one port, or one port twice; the line of a joining server may not.
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
		expect.Equal(t, must.Get(ParseAddresses(7, value))(t), want, "%q is read as", value)
		line := "server.7=" + value
		if s, err := ParseServer(line); (err == nil) != (want.Election != "") || err == nil && s != want {
			t.Errorf("%q is read as %+v %v", line, s, err)
		}
	}
	for _, value := range []string{"", "h", "h:", ":1:2", "h:x", "h:1:y", "h:1:70000", "h:1:2:watcher",
		"h:1:2:observer:3", "h:1:2;x", "h:1:2|i:1:2", "[::1:1:2"} {
		s, err := ParseAddresses(7, value)
		expect.Fails(t, err, "%q is read as %+v", value, s)
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
		want := "server.1=h:1:2:participant;h:3\nversion=100000000"
		must.Equal(t, s.Zxid(), 1<<32, "zxid %x, %q: s.Zxid()", s.Zxid(), s.ConfigData())
		must.Equal(t, s.ConfigData(), want,
			"zxid %x, %q: s.ConfigData()", s.Zxid(), s.ConfigData())
		must.That(t, s.Configured(),
			"zxid %x, %q: want s.Configured()", s.Zxid(), s.ConfigData())
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

// Clients of a new cluster do not hear of the servers of the cluster from which its data come. A state that
// never named servers stays as it is.
func TestANewClusterForgetsTheServersOfTheOld(t *testing.T) {
	s, to := New("c"), &collector{births: map[uint32]uint32{}}
	s.Refound("d", 2000)
	expect.Equal(t, s.Zxid(), 0, "zxid %x of an empty state", s.Zxid())
	must.OK(t, s.Apply(Founding([]Server{{ID: 1, Peer: "h:1", Client: "h:3", Voter: true}}, 1000),
		to))
	was := s.Zxid()
	s.Refound("e", 3000)
	node, _ := s.Tree().Get(ConfigPath)
	if expect.That(t, len(node.Data) <= 0,
		"%q, %+v, zxid %x: want len(node.Data) <= 0", node.Data, node.Stat, s.Zxid()) {
		expect.Equal(t, node.Mtime, 3000,
			"%q, %+v, zxid %x: node.Mtime", node.Data, node.Stat, s.Zxid())
		expect.Equal(t, node.Mzxid, was+1,
			"%q, %+v, zxid %x: node.Mzxid", node.Data, node.Stat, s.Zxid())
		expect.Equal(t, s.Zxid(), was+1,
			"%q, %+v, zxid %x: s.Zxid()", node.Data, node.Stat, s.Zxid())
		expect.That(t, !s.Configured(),
			"%q, %+v, zxid %x: want !s.Configured()", node.Data, node.Stat, s.Zxid())
	}
}

// The words of an operator are kept, and a state without any is written as it was before there were words.
func TestWordsAreKeptInSnapshots(t *testing.T) {
	b := newBench(t)
	none := b.s.header(Position{})
	words := "server.1=h:1:2:participant;c:3"
	b.do(Request{Op: OpWords, Body: []byte(words)})
	var file bytes.Buffer
	snap := b.s.StartSnapshot(Position{Index: 7, Term: 1})
	must.OK(t, snap.Write(&file, func(f func()) { f() }))
	snap.Close()
	s, _, err := ReadSnapshot(&file)
	must.OK(t, err)
	must.Equal(t, s.Words(), words, "s.Words()")
	if _, err := s.loadHeader(none); err != nil || s.Words() != "" {
		t.Errorf("a header without words: %q, %v", s.Words(), err)
	}
	expect.Fails(t, expect.Err(s.loadHeader(append(none, "\x00\x00\x00\x01wx"...))),
		"bytes behind the words are accepted")
}

// idsOf makes a set of identities that is about as long as is asked for.
func idsOf(name string, size int) []jute.ID {
	return []jute.ID{{Scheme: "ip", ID: "10.0.0.1"}, {Scheme: "digest", ID: name + strings.Repeat("x", size)}}
}

func TestAnEntryNamesEachSetOfIdentitiesOnce(t *testing.T) {
	b := newBench(t)
	s := b.session()
	long, other := idsOf("a", 16<<10), idsOf("b", 100)
	var list []Request
	for i := range 60 {
		r := create(s, fmt.Sprint("/n", i), 0)
		switch i % 3 {
		case 0:
			r.IDs = long
		case 1:
			r.IDs = other
		}
		// Only its maker may see the node.
		r.Body = creatorOnly(fmt.Sprint("/n", i))
		list = append(list, r)
	}
	entry := b.entry(b.next, list...)
	second := Block{Origin: 1, Birth: b.birth, First: b.next + 60, Count: 1, Requests: list[0].Append(nil)}
	entry = second.Append(entry)
	short, ok := NameOnce(bytes.Clone(entry))
	most := 16<<10 + 100 + 62*(120)
	must.That(t, ok,
		"%d bytes of %d, at most %d wanted: want ok", len(short), len(entry), most)
	must.That(t, len(short) <= most,
		"%d bytes of %d, at most %d wanted: want len(short) <= most",
		len(short), len(entry), most)

	// Both do the same.
	twin := newBench(t)
	twin.session()
	b.must(entry)
	twin.must(short)
	expect.Equal(t, b.s.Digest(), twin.s.Digest(),
		"the short entry does something else: b.s.Digest()")
	expect.Equal(t, b.s.Zxid(), twin.s.Zxid(),
		"the short entry does something else: b.s.Zxid()")
	expect.Equal(t, len(twin.got.outcomes), 61,
		"the short entry does something else: len(twin.got.outcomes)")
	for i := range 60 {
		is, _ := twin.s.Tree().Get(fmt.Sprint("/n", i))
		was, _ := b.s.Tree().Get(fmt.Sprint("/n", i))
		expect.Equal(t, fmt.Sprint(is), fmt.Sprint(was), "/n%d: %v, want %v", i, is.ACL, was.ACL)
		if want := list[i].IDs; want != nil && (len(is.ACL) != 1 || is.ACL[0].ID != want[1]) {
			t.Errorf("/n%d belongs to %v", i, is.ACL)
		}
	}

	// A block that is skipped takes no set away from those behind it.
	again := newBench(t)
	again.session()
	again.next++
	stale := Block{Origin: 1, Birth: b.birth + 1, First: 1, Count: 1, Requests: list[0].Append(nil)}
	entry = stale.Append(BeginEntry(nil, 0))
	live := Block{Origin: 1, Birth: again.birth, First: 2, Count: 1, Requests: list[0].Append(nil)}
	entry, ok = NameOnce(live.Append(entry))
	must.That(t, ok, "not shorter")
	again.must(entry)
	if is, _ := again.s.Tree().Get("/n0"); len(is.ACL) != 1 || is.ACL[0].ID != long[1] {
		t.Errorf("/n0 belongs to %v", is.ACL)
	}
}

// creatorOnly is the body of a create that gives all rights to its creator.
func creatorOnly(path string) []byte {
	b := jute.AppendString(nil, path)
	b = jute.AppendBuffer(b, nil)
	b = jute.AppendInt(b, 1)
	b = jute.AppendInt(b, jute.PermAll)
	b = jute.AppendString(jute.AppendString(b, "auth"), "")
	return jute.AppendInt(b, 0)
}

func TestEntriesWithoutRepetitionStayAsTheyAre(t *testing.T) {
	b := newBench(t)
	s := b.session()
	named := create(s, "/x", 0)
	named.IDs = idsOf("a", 1000)
	for name, list := range map[string][]Request{
		"nobody":     {create(s, "/x", 0), create(s, "/y", 0)},
		"everybody":  {named},
		"not enough": {named, create(s, "/y", 0)},
	} {
		entry := b.entry(b.next, list...)
		same, ok := NameOnce(entry)
		expect.That(t, !ok, "%s: made shorter: want !ok", name)
		expect.That(t, bytes.Equal(same, entry),
			"%s: made shorter: want bytes.Equal(same, entry)", name)
		expect.Equal(t, entry[1], kindBatch, "%s: entry[1]", name)
	}
}

func TestDamagedSetsOfIdentitiesStop(t *testing.T) {
	b := newBench(t)
	s := b.session()
	r := create(s, "/x", 0)
	r.IDs = idsOf("a", 100)
	entry, ok := NameOnce(b.entry(b.next, r, r))
	must.That(t, ok, "not shorter")
	reference := bytes.LastIndex(entry, []byte{255, 255, 255, 255})
	for name, spoil := range map[string]func(e []byte) []byte{
		"no such set":     func(e []byte) []byte { e[reference+3] = 254; return e },
		"least number":    func(e []byte) []byte { binary.BigEndian.PutUint32(e[reference:], 1<<31); return e },
		"too many sets":   func(e []byte) []byte { e[EntryHeaderSize] = 1; return e },
		"a set too few":   func(e []byte) []byte { e[EntryHeaderSize+3] = 0; return e },
		"cut in the sets": func(e []byte) []byte { return e[:EntryHeaderSize+20] },
		"of a plain kind": func(e []byte) []byte { e[1] = kindBatch; return e },
	} {
		expect.Fails(t, b.apply(spoil(bytes.Clone(entry))), "%s was applied", name)
	}
	// No reference without sets, whatever the version.
	bad := b.entry(b.next, create(s, "/y", 0))
	binary.BigEndian.PutUint32(bad[EntryHeaderSize+BlockHeaderSize+16:], 1<<32-1)
	expect.Fails(t, b.apply(bad), "a reference without sets was applied")
}
