package entries

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Read returns each request as it was proposed, with its place in its stream. It does so for entries with and
// without separate sets of identities.
func TestEntriesAreRead(t *testing.T) {
	ids := idsOf("a", 100)
	list := []Request{
		{Session: 7, Gen: 2, Op: jute.OpCreate, IDs: ids, Body: createBody("/a", 1)},
		{Session: 8, Gen: 3, Op: jute.OpSync, Body: []byte{}},
		{Session: 9, Gen: 4, Op: jute.OpDelete, IDs: ids, Body: []byte("xyz")},
	}
	entry := Begin(nil, NoTTL|Full)
	for i, bl := range []Block{{Origin: 1, Birth: 5, First: 10, Count: 2}, {Count: 1}} {
		for _, r := range [][]Request{list[:2], list[2:]}[i] {
			bl.Requests = r.Append(bl.Requests)
		}
		entry = bl.Append(entry)
	}
	named, shorter := NameOnce(bytes.Clone(entry))
	must.That(t, shorter, "the identities are named twice")
	for kind, entry := range map[string][]byte{"plain": entry, "named": named} {
		Seal(entry, 1234)
		var got []string
		read := func(l *Logged) error {
			got = append(got, fmt.Sprint(l.Origin, l.Birth, l.Seq, *l.Request))
			return nil
		}
		time, options, err := Read(entry, read)
		expect.OK(t, err, "%s", kind)
		expect.Equal(t, time, 1234, "%s: time", kind)
		expect.Equal(t, options, NoTTL|Full, "%s: options", kind)
		expect.List(t, got, []string{fmt.Sprint(1, 5, 10, list[0]), fmt.Sprint(1, 5, 11, list[1]),
			fmt.Sprint(0, 0, 0, list[2])}, kind)
		stop := errors.New("enough")
		n := 0
		_, _, err = Read(entry, func(*Logged) error {
			if n++; n == 2 {
				return stop
			}
			return nil
		})
		expect.Is(t, err, stop, "%s", kind)
		expect.Equal(t, n, 2, "%s: requests until the error", kind)
		whole := 0
		for cut := HeaderSize + 1; cut < len(entry); cut++ {
			short := bytes.Clone(entry[:cut])
			Seal(short, 1234) // valid, though no leader proposes it
			if _, _, err := Read(short, func(*Logged) error { return nil }); err == nil {
				whole++
			} else {
				expect.Is(t, err, ErrCorrupt, "%s: %d of %d bytes", kind, cut, len(entry))
			}
		}
		expect.Equal(t, whole, map[string]int{"plain": 1, "named": 2}[kind], "%s: cut behind the sets or a block", kind)
		entry[0]++
		_, _, err = Read(entry, read)
		expect.Fails(t, err, "%s: another format", kind)
	}
}

// OnlyEphemeralCreates recognizes an entry that only creates ephemeral nodes. PeekRequest finds the session
// of each request.
func TestEntriesOfEphemeralCreates(t *testing.T) {
	ephemeral := func(op jute.OpCode, flags int32) Request {
		return Request{Session: 3, Op: op, Body: createBody("/e", flags), IDs: idsOf("x", 3)}
	}
	for _, x := range []struct {
		name string
		list []Request
		want bool
	}{
		{"one", []Request{ephemeral(jute.OpCreate, 1)}, true},
		{"of both operations, one of a sequence", []Request{ephemeral(jute.OpCreate, 1), ephemeral(jute.OpCreate2, 3)}, true},
		{"none", nil, true},
		{"a plain one", []Request{ephemeral(jute.OpCreate, 0)}, false},
		{"a plain one of a sequence", []Request{ephemeral(jute.OpCreate2, 2)}, false},
		{"a plain one behind it", []Request{ephemeral(jute.OpCreate, 1), ephemeral(jute.OpCreate, 0)}, false},
		{"a container", []Request{ephemeral(jute.OpCreateContainer, 1)}, false},
		{"another operation", []Request{{Op: jute.OpSync, Body: []byte{1}}}, false},
	} {
		entry := Begin(nil, 0)
		for _, r := range x.list { // each request in a block of its own
			bl := Block{Count: 1, Requests: r.Append(nil)}
			entry = bl.Append(entry)
		}
		expect.Equal(t, OnlyEphemeralCreates(entry), x.want, "%s", x.name)
	}
	expect.That(t, !OnlyEphemeralCreates(append(Begin(nil, 0), 1)), "what is no block")
	first, second := ephemeral(jute.OpCreate, 1), Request{Session: -5, Op: jute.OpSync}
	b := second.Append(first.Append(nil))
	session, rest := PeekRequest(b)
	expect.Equal(t, session, 3, "session of the first request")
	expect.That(t, bytes.Equal(rest, second.Append(nil)), "after the first request come other bytes: %x", rest)
	session, rest = PeekRequest(rest)
	expect.Equal(t, session, -5, "session of the second request")
	expect.Equal(t, len(rest), 0, "bytes after the second request")
}

// AppendWith encodes a request and its separate identities as if the identities were in the request.
func TestRequestsGetTheirIdentities(t *testing.T) {
	r := Request{Session: 3, Gen: 4, Op: jute.OpDelete, Body: []byte("body")}
	plain := r.Append(nil)
	for _, ids := range [][]jute.ID{nil, idsOf("a", 10)[:1], idsOf("a", 10)} {
		r.IDs = ids
		want := r.Append([]byte("before"))
		expect.List(t, AppendWith([]byte("before"), plain, ids), want)
		expect.Equal(t, IdentitiesSize(ids), len(want)-len(plain)-len("before"))
		expect.Equal(t, r.size(), len(want)-len("before"))
	}
	for body, ok := range map[int]bool{MaxRequest - requestMinSize: true, MaxRequest - requestMinSize + 1: false} {
		long := Request{Body: make([]byte, body)}
		expect.Equal(t, long.Check() == nil, ok, "a body of %d bytes", body)
	}
}

// NameOnce writes a set of identities once if that saves at least one byte.
func TestNamesOfIdentitiesSaveBytes(t *testing.T) {
	for size := range 30 { // size of an identity, which takes 12 + size bytes in a request; a reference takes 4
		for n := range 6 {
			var bl Block
			for range n {
				r := Request{IDs: []jute.ID{{ID: string(make([]byte, size))}}}
				bl.Requests = r.Append(bl.Requests)
				bl.Count++
			}
			entry := bl.Append(Begin(nil, 0))
			saved := (n-1)*(12+size-4) - 4 - 4
			if n == 0 {
				saved = -4
			}
			got, shorter := NameOnce(bytes.Clone(entry))
			expect.Equal(t, shorter, saved > 0, "%d sets of %d bytes: the entry is shorter", n, size)
			expect.Equal(t, len(got), len(entry)-max(saved, 0), "%d sets of %d bytes: bytes of the entry", n, size)
			if shorter {
				expect.Equal(t, got[1]&kindMask, kindNamed, "%d sets of %d bytes: kind of the entry", n, size)
				expect.Equal(t, cap(got), len(got), "%d sets of %d bytes: room of the entry", n, size)
			}
		}
	}
}

// The encoding of an entry never changes, because a log may have entries of an older release, and servers of
// two releases share one log.
func TestBytesOfAnEntryStay(t *testing.T) {
	ids := []jute.ID{{Scheme: "digest", ID: "ann:0123456789"}, {Scheme: "ip", ID: "10.0.0.1"}}
	var requests []byte
	for _, r := range []Request{
		{Session: 7, Gen: 2, Op: jute.OpDelete, IDs: ids, Body: []byte("first")},
		{Session: -2, Gen: 0, Op: -31, Body: nil},
		{Session: 7, Gen: 2, Op: jute.OpDelete, IDs: ids, Body: []byte("next")},
	} {
		requests = r.Append(requests)
	}
	bl := Block{Origin: 3, Birth: 5, First: 1 << 33, Count: 3, Requests: requests}
	plain := bl.Append(Begin(nil, OneLayout|NoQuota|NoTTL|Full|LowDisk))
	named, _ := NameOnce(bytes.Clone(plain))
	for name, x := range map[string]struct {
		entry []byte
		want  string
	}{
		"plain": {plain, "01f9973a49470000018bcfe568000000000300000005000000020000000000000003000000ad000000000000" +
			"0007000000020000000200000002000000066469676573740000000e616e6e3a303132333435363738390000" +
			"000269700000000831302e302e302e31000000056669727374fffffffffffffffe00000000ffffffe1000000" +
			"00ffffffff0000000000000007000000020000000200000002000000066469676573740000000e616e6e3a30" +
			"3132333435363738390000000269700000000831302e302e302e31000000046e657874"},
		"named": {named, "01fa9f320a420000018bcfe568000000000100000002000000066469676573740000000e616e6e3a30313233" +
			"3435363738390000000269700000000831302e302e302e310000000300000005000000020000000000000003" +
			"0000005100000000000000070000000200000002ffffffff000000056669727374fffffffffffffffe000000" +
			"00ffffffe100000000ffffffff00000000000000070000000200000002ffffffff000000046e657874"},
	} {
		Seal(x.entry, 1_700_000_000_000)
		expect.Equal(t, hex.EncodeToString(x.entry), x.want, "%s", name)
	}
}

func TestEntriesWithoutRepetitionStayAsTheyAre(t *testing.T) {
	plain := Request{Session: 7, Gen: 1, Op: jute.OpCreate, Body: createBody("/x", 0)}
	named := plain
	named.IDs = idsOf("a", 1000)
	for name, list := range map[string][]Request{
		"nobody":     {plain, plain},
		"everybody":  {named},
		"not enough": {named, plain},
	} {
		bl := Block{Origin: 1, Birth: 1, First: 1, Count: uint32(len(list))}
		for _, r := range list {
			bl.Requests = r.Append(bl.Requests)
		}
		entry := bl.Append(Begin(nil, 0))
		same, ok := NameOnce(entry)
		expect.That(t, !ok, "%s: the entry counts as shorter", name)
		expect.That(t, bytes.Equal(same, entry), "%s: the entry has changed", name)
		expect.Equal(t, entry[1], KindBatch, "%s: kind of the entry", name)
	}
}

func TestEntryOfAnotherReleaseIsNotCalledCorrupt(t *testing.T) {
	for name, tune := range map[string]func([]byte){
		"format 2":     func(e []byte) { e[0] = version + 1 },
		"unknown kind": func(e []byte) { e[1] = 15 },
	} {
		e := Begin(nil, 0)
		tune(e)
		Seal(e, 1)
		err := Check(e)
		if expect.Fails(t, err, "%s", name) {
			expect.That(t, !errors.Is(err, ErrCorrupt), "%s counts as corrupt: %v", name, err)
			expect.Has(t, err.Error(), name)
		}
	}
	full := Begin(nil, NoQuota|NoTTL|Full)
	Seal(full, 1)
	expect.OK(t, Check(full), "all options")
}

func TestBlockIsCheckedToTheLastByte(t *testing.T) {
	var requests []byte
	list := []Request{
		{Session: 7, Gen: 1, Op: jute.OpCreate, IDs: []jute.ID{{Scheme: "digest", ID: "a:b"},
			{Scheme: "ip", ID: "::1"}}, Body: []byte("body")},
		{Session: 8, Gen: 2, Op: jute.OpSync, Body: nil},
	}
	for i := range list {
		requests = list[i].Append(requests)
	}
	good := Block{Origin: 1, Birth: 2, First: 3, Count: 2, Requests: requests}
	must.OK(t, good.Check())
	for n := range requests {
		bad := good
		bad.Requests = requests[:n]
		expect.Is(t, bad.Check(), ErrCorrupt, "%d of %d bytes", n, len(requests))
	}
	for _, count := range []uint32{0, 1, 3} {
		bad := good
		bad.Count = count
		expect.Is(t, bad.Check(), ErrCorrupt, "%d requests announced, 2 there", count)
	}
	whole := good.Append(nil)
	for n := range whole {
		if _, _, err := NextBlock(whole[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("block of %d of %d bytes: %v", n, len(whole), err)
		}
	}
	got, rest, err := NextBlock(append(whole, 9))
	if expect.OK(t, err, "read back as %+v, %d bytes behind, %v", got, len(rest), err) {
		if expect.Equal(t, len(rest), 1,
			"read back as %+v, %d bytes behind, %v: len(rest)", got, len(rest), err) {
			expect.Equal(t, got.Origin, 1,
				"read back as %+v, %d bytes behind, %v: got.Origin", got, len(rest), err)
			expect.Equal(t, got.Birth, 2,
				"read back as %+v, %d bytes behind, %v: got.Birth", got, len(rest), err)
			expect.Equal(t, got.First, 3,
				"read back as %+v, %d bytes behind, %v: got.First", got, len(rest), err)
			expect.Equal(t, got.Count, 2,
				"read back as %+v, %d bytes behind, %v: got.Count", got, len(rest), err)
			expect.That(t, bytes.Equal(got.Requests, requests),
				"read back as %+v, %d bytes behind, %v: want bytes.Equal(got.Requests, requests)",
				got, len(rest), err)
		}
	}
	session, next := PeekRequest(requests)
	second, end := PeekRequest(next)
	expect.That(t, session == 7 && second == 8 && len(end) == 0,
		"peeked sessions %d and %d, %d bytes left", session, second, len(end))
}

// idsOf returns a set of identities of about the given size.
func idsOf(name string, size int) []jute.ID {
	return []jute.ID{{Scheme: "ip", ID: "10.0.0.1"}, {Scheme: "digest", ID: name + strings.Repeat("x", size)}}
}

// createBody returns the body of a create.
func createBody(path string, flags int32) []byte {
	b := jute.AppendBuffer(jute.AppendString(nil, path), []byte("data"))
	return jute.AppendInt(jute.AppendACL(b, jute.WorldAnyone), flags)
}
