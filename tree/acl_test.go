package tree_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

func id(scheme, id string) jute.ID { return jute.ID{Scheme: scheme, ID: id} }

func entry(perms int32, scheme, name string) jute.ACL {
	return jute.ACL{Perms: perms, ID: id(scheme, name)}
}

// S3: TestPermissions tries each operation, alone and in a multi, with each permission and each scheme.
func TestPermissions(t *testing.T) {
	digest := acl.DigestID("u1:p1")
	schemes := []struct {
		entry   jute.ID
		in, out []jute.ID
	}{
		{id("world", "anyone"), nil, nil},
		{digest, []jute.ID{digest}, []jute.ID{acl.DigestID("u2:p2")}},
		{id("ip", "10.0.0.0/8"), []jute.ID{id("ip", "10.9.9.9")}, []jute.ID{id("ip", "11.0.0.1")}},
		{id("x509", "CN=a"), []jute.ID{id("x509", "CN=a")}, []jute.ID{id("x509", "CN=b")}},
	}
	// The field `on` names the node with the ACL: "/p", or its child "/p/c".
	ops := []struct {
		name, on string
		need     int32
		run      func(t *tree.Tree, c *tree.Change, multi bool) jute.ErrCode
	}{
		{"create", "/p", jute.PermCreate, write(jute.OpCreate, createBody("/p/new", "", 0))},
		{"create2", "/p", jute.PermCreate, write(jute.OpCreate2, createBody("/p/new", "", 3))},
		{"createContainer", "/p", jute.PermCreate, write(jute.OpCreateContainer, createBody("/p/new", "", 4))},
		{"createTTL", "/p", jute.PermCreate, write(jute.OpCreateTTL, jute.AppendLong(createBody("/p/new", "", 5),
			9))},
		{"delete", "/p", jute.PermDelete, write(jute.OpDelete, pathVersion("/p/c"))},
		{"setData", "/p/c", jute.PermWrite,
			write(jute.OpSetData, jute.AppendInt(jute.AppendString(jute.AppendString(nil, "/p/c"), ""), -1))},
		{"check", "/p/c", jute.PermRead, write(jute.OpCheck, pathVersion("/p/c"))},
		{"setACL", "/p/c", jute.PermAdmin,
			write(jute.OpSetACL, jute.AppendInt(jute.AppendACL(jute.AppendString(nil, "/p/c"), jute.WorldAnyone),
				-1))},
		{"exists", "/p/c", 0, read((*tree.Tree).AppendExists)},
		{"getData", "/p/c", jute.PermRead, read((*tree.Tree).AppendData)},
		{"getACL", "/p/c", jute.PermRead | jute.PermAdmin, read((*tree.Tree).AppendACL)},
		{"getChildren", "/p/c", jute.PermRead, read((*tree.Tree).AppendChildren)},
		{"getChildren2", "/p/c", jute.PermRead, read((*tree.Tree).AppendChildrenStat)},
		{"getAllChildrenNumber", "/p/c", jute.PermRead, read((*tree.Tree).AppendChildrenNumber)},
		{"multiRead getData", "/p/c", jute.PermRead, multiRead(jute.OpGetData)},
		{"multiRead getChildren", "/p/c", jute.PermRead, multiRead(jute.OpGetChildren)},
	}
	super := []jute.ID{id("super", "")}
	for _, op := range ops {
		for _, s := range schemes {
			for bits := range int32(32) {
				for _, who := range []struct {
					ids   []jute.ID
					holds bool
				}{{s.in, true}, {s.out, s.out == nil}, {super, true}} {
					for _, multi := range []bool{false, true} {
						perms := bits
						want := jute.OK
						if !(who.holds && perms&op.need != 0) && op.need != 0 && !reflect.DeepEqual(who.ids, super) {
							want = jute.NoAuth
						}
						tr := tree.New()
						c := &tree.Change{Zxid: 1, Session: 1, IDs: []jute.ID{id("x509", "any")}}
						for _, p := range []string{"/p", "/p/c"} {
							acl := jute.WorldAnyone
							if p == op.on {
								acl = []jute.ACL{{Perms: perms, ID: s.entry}}
							}
							body := jute.AppendACL(jute.AppendInt(jute.AppendString(nil, p), -1), acl)
							c.IDs = append(c.IDs[:1:1], super...)
							_, code, _ := tr.Apply(c, jute.OpCreate, jute.AppendInt(body, 0), nil)
							must.Equal(t, code, jute.OK)
						}
						if got := op.run(tr, &tree.Change{Zxid: 2, Session: 1, IDs: who.ids}, multi); got != want {
							t.Fatalf("%s (in a multi: %v) with bits %d for %v, asked by %v: %v, want %v", op.name, multi, perms,
								s.entry, who.ids, got, want)
						}
					}
				}
			}
		}
	}
}

func pathVersion(path string) []byte { return jute.AppendInt(jute.AppendString(nil, path), -1) }

func write(op jute.OpCode, body []byte) func(*tree.Tree, *tree.Change, bool) jute.ErrCode {
	return func(t *tree.Tree, c *tree.Change, multi bool) jute.ErrCode {
		// A multi has no setACL, and a check exists only in a multi.
		if multi && op != jute.OpSetACL || op == jute.OpCheck {
			b := append(jute.AppendMultiHeader(nil, op, false, -1), body...)
			reply, code, changed := t.Apply(c, jute.OpMulti, jute.AppendMultiHeader(b, jute.OpError, true, -1), nil)
			d := jute.NewDecoder(reply)
			h := d.MultiHeader()
			if code != jute.OK || changed != (h.Err == jute.OK) {
				return code
			}
			return h.Err
		}
		_, code, _ := t.Apply(c, op, body, nil)
		return code
	}
}

func read(f func(*tree.Tree, []byte, []jute.ID, string) ([]byte,
	jute.ErrCode)) func(*tree.Tree, *tree.Change, bool) jute.ErrCode {
	return func(t *tree.Tree, c *tree.Change, _ bool) jute.ErrCode {
		_, code := f(t, nil, c.IDs, "/p/c")
		return code
	}
}

func multiRead(op jute.OpCode) func(*tree.Tree, *tree.Change, bool) jute.ErrCode {
	return func(t *tree.Tree, c *tree.Change, _ bool) jute.ErrCode {
		b := jute.AppendBool(jute.AppendString(jute.AppendMultiHeader(nil, op, false, -1), "/p/c"), false)
		b, _, _ = t.AppendMultiRead(nil, c.IDs, jute.AppendMultiHeader(b, jute.OpError, true, -1))
		d := jute.NewDecoder(b)
		return d.MultiHeader().Err
	}
}

// The log waits while a multi is applied, so its time must not depend on the length of ACLs. The multi of
// this test checks two nodes in turn, ten thousand times. Their ACLs have hundreds of entries, and the client
// has 64 identities.
func TestLongACLsDoNotKeepTheLogWaiting(t *testing.T) {
	tr := tree.New()
	c := &tree.Change{Session: 7, IDs: []jute.ID{id("ip", "10.9.9.9")}}
	for i := range 63 {
		c.IDs = append(c.IDs, acl.DigestID(fmt.Sprintf("%02d:x", i)))
	}
	var digests, addresses []jute.ACL
	for i := range 500 {
		digests = append(digests, jute.ACL{Perms: jute.PermRead,
			ID: acl.DigestID(fmt.Sprintf("%02d:y%d", i%100, i))})
		addresses = append(addresses, jute.ACL{Perms: jute.PermRead,
			ID: id("ip", fmt.Sprintf("10.1.%d.%d/32", i/250, i%250))})
	}
	digests = append(digests, jute.ACL{Perms: jute.PermRead, ID: c.IDs[63]})
	addresses = append(addresses, jute.ACL{Perms: jute.PermRead, ID: c.IDs[63]})
	run := func(op jute.OpCode, body []byte) {
		t.Helper()
		c.Zxid++
		if _, code, changed := tr.Apply(c, op, body, nil); code != jute.OK || !changed {
			t.Fatal(op, code)
		}
	}
	took := func(path string, acl []jute.ACL) (checks, reads time.Duration) {
		for _, suffix := range []string{"a", "b"} { // the two nodes that are checked in turn
			acl[0].Perms ^= jute.PermDelete // so that the ACLs differ
			body := jute.AppendACL(jute.AppendBuffer(jute.AppendString(nil, path+suffix), nil), acl)
			run(jute.OpCreate, jute.AppendInt(body, 0))
		}
		var multi, read []byte
		for i := range 1000 {
			path := path + []string{"a", "b"}[i%2]
			multi = jute.AppendMultiHeader(multi, jute.OpCheck, false, -1)
			multi = jute.AppendInt(jute.AppendString(multi, path), -1)
			read = jute.AppendMultiHeader(read, jute.OpGetData, false, -1)
			read = jute.AppendBool(jute.AppendString(read, path), false)
		}
		multi = jute.AppendMultiHeader(multi, jute.OpError, true, -1)
		read = jute.AppendMultiHeader(read, jute.OpError, true, -1)
		checks, reads = time.Hour, time.Hour
		for range 5 {
			began := time.Now()
			run(jute.OpMulti, multi)
			checks = min(checks, time.Since(began))
			began = time.Now()
			b, _, code := tr.AppendMultiRead(nil, c.IDs, read)
			reads = min(reads, time.Since(began))
			must.That(t, code == jute.OK && len(b) >= 1000*76, "%v %v", code, len(b))
		}
		return checks, reads
	}
	for name, acl := range map[string][]jute.ACL{"/digests": digests, "/addresses": addresses} {
		var checks, reads, many, manyReads time.Duration
		for try := range 10 { // repeat, because another program may use the processor during a measurement
			checks, reads = took(fmt.Sprint(name, "-short", try), slices.Clone(jute.WorldAnyone))
			if many, manyReads = took(fmt.Sprint(name, try), acl); many <= 20*checks && manyReads <= 20*reads {
				break
			}
		}
		if many > 20*checks || manyReads > 20*reads {
			t.Errorf("a thousand checks and reads of %s take %v and %v, of one entry %v and %v",
				name, many, manyReads, checks, reads)
		}
	}
}
