package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The first entry of a new cluster sets the zxid and the members. Applied a second time, it changes nothing.
func TestAClusterIsFoundedOnce(t *testing.T) {
	s, to := New("c"), &collector{births: map[uint32]uint32{}}
	entry := Founding([]config.Server{{ID: 1, Peer: "h:1", Election: "2", Client: "h:3", Voter: true}}, 1000)
	for range 2 {
		must.OK(t, s.Apply(entry, to))
		want := "server.1=h:1:2:participant;h:3\nversion=100000000"
		must.Equal(t, s.Zxid(), 1<<32, "zxid")
		must.Equal(t, s.ConfigData(), want, "published members")
		must.That(t, s.Configured(), "the members do not count as published")
	}
	bare := New("c")
	two := []config.Server{{ID: 1, Peer: "h:1", Client: "c:1"}, {ID: 2, Peer: "h:2"}}
	must.OK(t, bare.Apply(Founding(two, 1000), to))
	expect.Equal(t, bare.Zxid(), 1<<32, "zxid, when it is not known where clients reach server 2")
	expect.That(t, !bare.Configured(), "the members are published, and it is not known where clients reach server 2")
	b := newBench(t)
	b.session()
	zxid := b.s.Zxid()
	expect.OK(t, b.s.Apply(entry, &b.got), "founding a cluster that has a session")
	expect.Equal(t, b.s.Zxid(), zxid, "zxid, after a cluster with a session was founded")
	expect.Equal(t, b.s.ConfigData(), "", "published members, after a cluster with a session was founded")
}

// A new cluster with the data of another cluster does not publish the other cluster's servers. A state
// without published servers stays as it is.
func TestANewClusterForgetsTheServersOfTheOld(t *testing.T) {
	s, to := New("c"), &collector{births: map[uint32]uint32{}}
	s.Refound("d", 2000)
	expect.Equal(t, s.Zxid(), 0, "zxid %x of an empty state", s.Zxid())
	must.OK(t, s.Apply(Founding([]config.Server{{ID: 1, Peer: "h:1", Client: "h:3", Voter: true}}, 1000),
		to))
	was := s.Zxid()
	s.Refound("e", 3000)
	node, _ := s.Tree().Get(config.Path)
	expect.Equal(t, len(node.Data), 0, "bytes of published members: %q", node.Data)
	expect.Equal(t, node.Mtime, 3000, "time of the change")
	expect.Equal(t, node.Mzxid, was+1, "zxid of the change")
	expect.Equal(t, s.Zxid(), was+1, "zxid")
	expect.That(t, !s.Configured(), "the members count as published")
}

// A snapshot keeps the text in which an operator described the members (OpWords). If there is no such text,
// the snapshot has no field for it.
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
	expect.OK(t, expect.Err(s.loadHeader(none)), "a header without words")
	expect.Equal(t, s.Words(), "", "the words of a header without words")
	expect.Fails(t, expect.Err(s.loadHeader(append(none, "\x00\x00\x00\x01wx"...))),
		"bytes behind the words are accepted")
}

// idsOf returns a set of identities of about the given size.
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
		// Each request makes a node whose ACL names the request's identities, so the ACL shows which
		// identities it had.
		r.Body = creatorOnly(fmt.Sprint("/n", i))
		list = append(list, r)
	}
	entry := b.entry(b.next, list...)
	second := entries.Block{Origin: 1, Birth: b.birth, First: b.next + 60, Count: 1, Requests: list[0].Append(nil)}
	entry = second.Append(entry)
	short, ok := entries.NameOnce(bytes.Clone(entry))
	most := 16<<10 + 100 + 62*(120)
	must.That(t, ok, "the entry is not shorter")
	must.That(t, len(short) <= most, "%d bytes became %d, want at most %d", len(entry), len(short), most)

	// The long entry and the short one have the same effect.
	twin := newBench(t)
	twin.session()
	b.must(entry)
	twin.must(short)
	expect.Equal(t, b.s.Digest(), twin.s.Digest(), "digest, compared with the short entry's")
	expect.Equal(t, b.s.Zxid(), twin.s.Zxid(), "zxid, compared with the short entry's")
	expect.Equal(t, len(twin.got.outcomes), 61, "outcomes of the short entry")
	for i := range 60 {
		is, _ := twin.s.Tree().Get(fmt.Sprint("/n", i))
		was, _ := b.s.Tree().Get(fmt.Sprint("/n", i))
		expect.Equal(t, fmt.Sprint(is), fmt.Sprint(was), "/n%d", i)
		if want := list[i].IDs; want != nil && expect.Equal(t, len(is.ACL), 1, "/n%d: entries of its ACL", i) {
			expect.Equal(t, is.ACL[0].ID, want[1], "/n%d belongs to", i)
		}
	}

	// Blocks after a skipped block may refer to the set of identities in the skipped block.
	again := newBench(t)
	again.session()
	again.next++
	stale := entries.Block{Origin: 1, Birth: b.birth + 1, First: 1, Count: 1, Requests: list[0].Append(nil)}
	entry = stale.Append(entries.Begin(nil, 0))
	live := entries.Block{Origin: 1, Birth: again.birth, First: 2, Count: 1, Requests: list[0].Append(nil)}
	entry, ok = entries.NameOnce(live.Append(entry))
	must.That(t, ok, "not shorter")
	again.must(entry)
	is, _ := again.s.Tree().Get("/n0")
	if expect.Equal(t, len(is.ACL), 1, "/n0: entries of its ACL") {
		expect.Equal(t, is.ACL[0].ID, long[1], "/n0 belongs to")
	}
}

// creatorOnly returns the body of a create that gives all rights to its creator.
func creatorOnly(path string) []byte {
	b := jute.AppendString(nil, path)
	b = jute.AppendBuffer(b, nil)
	b = jute.AppendInt(b, 1)
	b = jute.AppendInt(b, jute.PermAll)
	b = jute.AppendString(jute.AppendString(b, "auth"), "")
	return jute.AppendInt(b, 0)
}

func TestDamagedSetsOfIdentitiesStop(t *testing.T) {
	b := newBench(t)
	s := b.session()
	r := create(s, "/x", 0)
	r.IDs = idsOf("a", 100)
	entry, ok := entries.NameOnce(b.entry(b.next, r, r))
	must.That(t, ok, "not shorter")
	reference := bytes.LastIndex(entry, []byte{255, 255, 255, 255})
	for name, spoil := range map[string]func(e []byte) []byte{
		"no such set":     func(e []byte) []byte { e[reference+3] = 254; return e },
		"least number":    func(e []byte) []byte { binary.BigEndian.PutUint32(e[reference:], 1<<31); return e },
		"too many sets":   func(e []byte) []byte { e[entries.HeaderSize] = 1; return e },
		"a set too few":   func(e []byte) []byte { e[entries.HeaderSize+3] = 0; return e },
		"cut in the sets": func(e []byte) []byte { return e[:entries.HeaderSize+20] },
		"of a plain kind": func(e []byte) []byte { e[1] = entries.Begin(nil, 0)[1]; return e },
	} {
		expect.Fails(t, b.apply(spoil(bytes.Clone(entry))), "%s was applied", name)
	}
	// An entry without sets that refers to a set is refused.
	bad := b.entry(b.next, create(s, "/y", 0))
	binary.BigEndian.PutUint32(bad[entries.HeaderSize+entries.BlockHeaderSize+16:], 1<<32-1)
	expect.Fails(t, b.apply(bad), "a reference without sets was applied")
}
