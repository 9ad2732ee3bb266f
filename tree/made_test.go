package tree_test

import (
	"math/rand/v2"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
)

// Gen makes up operations. Most of them are sensible and work on a small tree, so that many concern the same
// nodes. A few are senseless.
type Gen struct{ *rand.Rand }

// NewGen returns a Gen that always makes up the same operations for a seed.
func NewGen(seed uint64) *Gen { return &Gen{rand.New(rand.NewPCG(seed, seed))} }

func pick[T any](g *Gen, of ...T) T { return of[g.IntN(len(of))] }

// Path returns a path, rarely an illegal one.
func (g *Gen) Path() string {
	switch g.IntN(40) {
	case 0:
		return pick(g, "", "/", "//", "/a/", "x", "/a//b", "/./a", "/..", "/a\x00", "/\xff", "/\u0080",
			"/a/\U0001F512", "/é/中")
	case 1:
		return pick(g, "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/zookeeper/quota/a/b")
	case 2, 3, 4:
		return "/zookeeper/quota" + pick(g, "/a", "/b", "/a/c") + pick(g, "", "/zookeeper_limits",
			"/zookeeper_stats", "/zookeeper_stats")
	}
	path := ""
	for range 1 + g.IntN(3) {
		path += "/" + pick(g, "a", "b", "c", "d-", "a-0000000001", "d-0000000000", "some longer name",
			"lock-", "x__lock__", "leases", "lease-")
	}
	return path
}

// Data returns the data of a node.
func (g *Gen) Data() []byte {
	switch g.IntN(12) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2, 3:
		return []byte(pick(g, "count=-1,bytes=-1=;byteHardLimit=20;countHardLimit=6", "count=5,bytes=7",
			"byteHardLimit=9", "countHardLimit=4", "count=x;;,=,bytes=", "count=9223372036854775807,bytes=+3"))
	}
	b := make([]byte, g.IntN(9))
	for i := range b {
		b[i] = byte('0' + g.IntN(10))
	}
	return b
}

// Identities returns the identities of a client.
func (g *Gen) Identities() []jute.ID {
	ip := jute.ID{Scheme: "ip", ID: pick(g, "10.0.0.1", "::1", "::ffff:10.0.0.2", "192.168.7.9")}
	switch g.IntN(8) {
	case 0:
		return []jute.ID{ip, acl.DigestID("u1:p1")}
	case 1:
		return []jute.ID{ip, acl.DigestID("u2:p2"), acl.DigestID("u1:p1")}
	case 2, 3, 4:
		return []jute.ID{ip, {Scheme: "super", ID: ""}}
	case 5:
		return []jute.ID{ip, {Scheme: "x509", ID: "CN=a"}}
	}
	return []jute.ID{ip}
}

// ACL returns an ACL, rarely an illegal one.
func (g *Gen) ACL() []jute.ACL {
	if g.IntN(3) > 0 {
		return jute.WorldAnyone
	}
	var list []jute.ACL
	for range g.IntN(4) {
		list = append(list, jute.ACL{
			Perms: pick[int32](g, 31, 31, 31, 1, 3, 30, 0, -1),
			ID: pick(g, jute.WorldAnyone[0].ID, jute.WorldAnyone[0].ID, acl.DigestID("u1:p1"), jute.ID{
				Scheme: "auth", ID: "any"},
				jute.ID{Scheme: "ip", ID: "10.0.0.0/24"}, jute.ID{Scheme: "ip", ID: "10.0.0.1"}, jute.ID{
					Scheme: "ip", ID: "10.0.0"},
				jute.ID{Scheme: "digest", ID: "a:b:c"}, jute.ID{Scheme: "x509", ID: "CN=a"}, jute.ID{
					Scheme: "world", ID: ""}),
		})
	}
	return list
}

// Op returns a write as a client sends it, rarely a damaged one.
func (g *Gen) Op() (jute.OpCode, []byte) {
	op, body := g.Request()
	if g.IntN(300) == 0 && len(body) > 0 {
		body = body[:g.IntN(len(body))]
	}
	if g.IntN(300) == 0 && len(body) > 0 {
		body[g.IntN(len(body))] ^= byte(1 << g.IntN(8))
	}
	return op, body
}

// Request returns a write that is well encoded.
func (g *Gen) Request() (jute.OpCode, []byte) {
	op := pick(g, jute.OpCreate, jute.OpCreate, jute.OpCreate2, jute.OpCreate2, jute.OpCreateContainer,
		jute.OpCreateTTL,
		jute.OpDelete, jute.OpDelete, jute.OpDelete, jute.OpSetData, jute.OpSetData, jute.OpSetACL, jute.OpMulti,
		jute.OpMulti)
	if g.IntN(200) == 0 {
		op = pick(g, jute.OpCheck, jute.OpDeleteContainer, jute.OpGetData, jute.OpSync,
			jute.OpCode(g.Int32N(200)-50))
	}
	if op != jute.OpMulti {
		return op, g.body(nil, op)
	}
	var body []byte
	for range g.IntN(6) {
		sub := pick(g, jute.OpCreate, jute.OpCreate2, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL,
			jute.OpDelete, jute.OpDelete, jute.OpSetData, jute.OpCheck)
		if g.IntN(100) == 0 {
			sub = pick(g, jute.OpSetACL, jute.OpMulti, jute.OpGetData, jute.OpCode(99))
		}
		body = jute.AppendMultiHeader(body, sub, false, -1)
		body = g.body(body, sub)
	}
	return op, jute.AppendMultiHeader(body, jute.OpError, true, -1)
}

// body() appends the body of an operation.
func (g *Gen) body(b []byte, op jute.OpCode) []byte {
	version := pick(g, -1, -1, -1, 0, 1, 2, -2)
	path := g.Path()
	if g.IntN(300) == 0 {
		b = jute.AppendInt(b, -1)
	} else {
		b = jute.AppendString(b, path)
	}
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		flags := g.Int32N(4)
		switch {
		case g.IntN(100) == 0:
			flags = pick(g, int32(-1), 7, 99, 4, 5, 6)
		case op == jute.OpCreateContainer:
			flags = jute.FlagContainer
		case op == jute.OpCreateTTL:
			flags = 5 + g.Int32N(2)
		}
		b = jute.AppendBuffer(b, g.Data())
		b = jute.AppendACL(b, g.ACL())
		b = jute.AppendInt(b, flags)
		if op == jute.OpCreateTTL {
			b = jute.AppendLong(b, pick[int64](g, 1, 50, 1000, jute.MaxTTL, 0, -1, jute.MaxTTL+1))
		}
	case jute.OpSetData:
		b = jute.AppendBuffer(b, g.Data())
		b = jute.AppendInt(b, int32(version))
	case jute.OpSetACL:
		b = jute.AppendACL(b, g.ACL())
		b = jute.AppendInt(b, int32(version))
	default:
		b = jute.AppendInt(b, int32(version))
	}
	return b
}
