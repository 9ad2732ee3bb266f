package tree_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// made() returns a tree with the digest 0 and the given nodes, parents first.
func made(t testing.TB, zxid int64, paths []string, infos ...tree.Info) *tree.Tree {
	m := tree.NewMaker()
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		must.OK(t, m.Set(path, &tree.Info{ACL: jute.WorldAnyone, Data: []byte{}}))
	}
	for i, path := range paths {
		must.OK(t, m.Set(path, &infos[i]))
	}
	return must.Get(m.Finish(zxid, 1<<20))(t)
}

// When a node changes, the digest covers all of the node. Two trees have different digests if a node differs
// in anything that a client or a snapshot can see.
func TestDigestMixesAllOfANode(t *testing.T) {
	base := func() tree.Info {
		return tree.Info{ACL: jute.WorldAnyone, Data: []byte("data"), Counter: 9, Stat: jute.Stat{
			Czxid: 2, Mzxid: 3, Pzxid: 4, Mtime: 5, Version: 6, Aversion: 7}}
	}
	seen := map[uint64]string{}
	for name, change := range map[string]func(i *tree.Info){
		"as it is":        func(*tree.Info) {},
		"czxid":           func(i *tree.Info) { i.Czxid = 1 },
		"mzxid":           func(i *tree.Info) { i.Mzxid = 8 },
		"pzxid":           func(i *tree.Info) { i.Pzxid = 8 },
		"mtime":           func(i *tree.Info) { i.Mtime = 8 },
		"version":         func(i *tree.Info) { i.Version = 8 },
		"aversion":        func(i *tree.Info) { i.Aversion = 8 },
		"counter":         func(i *tree.Info) { i.Counter = 8 },
		"data":            func(i *tree.Info) { i.Data = []byte("date") },
		"empty data":      func(i *tree.Info) { i.Data = []byte{} },
		"null":            func(i *tree.Info) { i.Data = nil },
		"ACL":             func(i *tree.Info) { i.ACL = []jute.ACL{entry(jute.PermAll, "ip", "10.0.0.1")} },
		"container":       func(i *tree.Info) { i.Kind = tree.ContainerNode },
		"time to live":    func(i *tree.Info) { i.Kind, i.TTL = tree.TTLNode, 1 },
		"longer to live":  func(i *tree.Info) { i.Kind, i.TTL = tree.TTLNode, 2 },
		"ephemeral":       func(i *tree.Info) { i.Kind, i.EphemeralOwner = tree.EphemeralNode, 1 },
		"another session": func(i *tree.Info) { i.Kind, i.EphemeralOwner = tree.EphemeralNode, 2 },
	} {
		info := base()
		change(&info)
		tr := made(t, 8, []string{"/n"}, info)
		must.Equal(t, tr.Digest(), 0)
		do(t, tr, &tree.Change{Zxid: 8}, jute.OpDelete, pathVersion("/n"), nil)
		other, known := seen[tr.Digest()]
		expect.That(t, !known, "a node that differs by %q and one by %q: the same digest", name, other)
		seen[tr.Digest()] = name
	}
	alone, withChild := made(t, 8, []string{"/n"}, base()), made(t, 8, []string{"/n", "/n/c"}, base(), base())
	body := jute.AppendInt(jute.AppendACL(jute.AppendString(nil, "/n"), jute.WorldAnyone), -1)
	for _, tr := range []*tree.Tree{alone, withChild} {
		do(t, tr, &tree.Change{Zxid: 8}, jute.OpSetACL, body, nil)
	}
	expect.That(t, alone.Digest() != withChild.Digest(), "the number of children is not in the digest")
}

// A change mixes into the digest also what it changes outside its node: the counter of the parent, and the
// text of a quota.
func TestDigestMixesWhatChangesBesideTheNode(t *testing.T) {
	plain := func(text string, counter int32) tree.Info {
		return tree.Info{ACL: jute.WorldAnyone, Data: []byte(text), Counter: counter}
	}
	paths := []string{"/q", "/zookeeper/quota/q", "/zookeeper/quota/q/zookeeper_limits",
		"/zookeeper/quota/q/zookeeper_stats"}
	seen := map[uint64]string{}
	for name, x := range map[string]struct {
		counter int32
		stats   string
	}{
		"as it is":        {1, "count=1,bytes=1"},
		"another counter": {2, "count=1,bytes=1"},
		"other counts":    {1, "count=2,bytes=1"},
		"other bytes":     {1, "count=1,bytes=2"},
	} {
		tr := made(t, 8, paths, plain("", x.counter), plain("", 0), plain("", 0), plain(x.stats, 0))
		do(t, tr, &tree.Change{Zxid: 8}, jute.OpCreate, createBody("/q/c", "", 0), nil)
		other, known := seen[tr.Digest()]
		expect.That(t, !known, "%s and %s: the same digest", name, other)
		seen[tr.Digest()] = name
	}
}

// The digest covers each byte of a text, however long the text is.
func TestDigestMixesEveryByte(t *testing.T) {
	seen := map[uint64]string{}
	for size := range 50 {
		for at := range size + 1 {
			data := []byte(strings.Repeat("\x00", size))
			if at < size {
				data[at] = 'x'
			}
			tr := tree.New()
			do(t, tr, &tree.Change{}, jute.OpCreate, createBody("/n", string(data), 0), nil)
			name := fmt.Sprintf("%q", data)
			other, known := seen[tr.Digest()]
			must.That(t, !known, "%s and %s have the same digest", name, other)
			seen[tr.Digest()] = name
		}
	}
}

// Servers of two releases compare digests, so a change must mix the same values into the digest in every
// release.
func TestDigestIsThatOfTheRelease(t *testing.T) {
	tr, c := tree.New(), &tree.Change{Time: 1000, Session: 7}
	acl := []jute.ACL{entry(jute.PermAll, "world", "anyone"), entry(jute.PermRead, "ip", "10.0.0.1")}
	null := jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, "/a"), nil), -1)
	multi := append(jute.AppendMultiHeader(nil, jute.OpSetData, false, -1), setBody("/a", "in a multi")...)
	multi = append(jute.AppendMultiHeader(multi, jute.OpDelete, false, -1), pathVersion("/a/b")...)
	for _, x := range []struct {
		op   jute.OpCode
		body []byte
		want uint64
	}{
		{jute.OpCreate, createBody("/a", "some data, more than 16 bytes", 0), 0x63cdf43ae5a53c56},
		{jute.OpCreate2, createBody("/a/b", "", 0), 0xc60c595c3b35a2a1},
		{jute.OpCreate, createBody("/a/-", "x", jute.FlagEphemeralSequential), 0xcba92e14c8687e2d},
		{jute.OpCreateContainer, createBody("/c", "x", jute.FlagContainer), 0x9b1c6b0345705b20},
		{jute.OpCreateTTL, jute.AppendLong(createBody("/t", "x", jute.FlagPersistentTTL), 1000), 0xb003f4a2c308e0b2},
		{jute.OpSetData, setBody("/c", "other"), 0xb79a4c2ba38d8913},
		{jute.OpSetData, null, 0x5d12a2b561cfe36},
		{jute.OpSetACL, jute.AppendInt(jute.AppendACL(jute.AppendString(nil, "/a"), acl), -1), 0xd052df8813be9ad3},
		{jute.OpMulti, jute.AppendMultiHeader(multi, jute.OpError, true, -1), 0x8f189fc25c22ad74},
		{jute.OpDelete, pathVersion("/c"), 0x4568a3f177d8a3f},
		{jute.OpCreate, createBody("/zookeeper/quota/a", "", 0), 0x939084aa2ddfdab6},
		{jute.OpCreate, createBody("/zookeeper/quota/a/zookeeper_limits", "count=1", 0), 0xd35b83ee5c024388},
		{jute.OpCreate, createBody("/zookeeper/quota/a/zookeeper_stats", "", 0), 0x6b6e5a8b9bf5a2d3},
		{jute.OpCreate, createBody("/a/c", "", 0), 0x8dca597df82f1819},
	} {
		do(t, tr, c, x.op, x.body, nil)
		expect.Equal(t, tr.Digest(), x.want, "after %v, number %d", x.op, c.Zxid)
	}
	c.Zxid++
	tr.CloseSession(c, 7)
	expect.Equal(t, tr.Digest(), uint64(0xb66a760f9df1a388), "after the end of a session")
	c.Zxid++
	tr.SetConfig(c, []byte("server.1=a:1:2"))
	expect.Equal(t, tr.Digest(), uint64(0x7109d2c71ef84aa9), "after a change of the members")
}
