package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

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
	if most := 16<<10 + 100 + 62*(120); !ok || len(short) > most {
		t.Fatalf("%d bytes of %d, at most %d wanted", len(short), len(entry), most)
	}

	// Both do the same.
	twin := newBench(t)
	twin.session()
	b.must(entry)
	twin.must(short)
	if b.s.Digest() != twin.s.Digest() || b.s.Zxid() != twin.s.Zxid() || len(twin.got.outcomes) != 61 {
		t.Error("the short entry does something else")
	}
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
	if entry, ok = NameOnce(live.Append(entry)); !ok {
		t.Fatal("not shorter")
	}
	again.must(entry)
	if is, _ := again.s.Tree().Get("/n0"); len(is.ACL) != 1 || is.ACL[0].ID != long[1] {
		t.Errorf("/n0 belongs to %v", is.ACL)
	}
}

// creatorOnly is the body of a create that gives all rights to whoever asks.
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
		if same, ok := NameOnce(entry); ok || !bytes.Equal(same, entry) || entry[1] != kindBatch {
			t.Errorf("%s: made shorter", name)
		}
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
