package tree_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

// program() encodes operations for FuzzTree: one byte for the operation, one for the session, two for the
// length of the body, and the body.
func program(g *Gen, n int) (b []byte) {
	for range n {
		op, body := g.Op()
		if len(body) > 0xffff {
			continue
		}
		b = append(b, byte(op), byte(g.IntN(256)))
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
	}
	return b
}

// FuzzTree applies any bodies to the tree and to the model. Neither panics, and both agree.
func FuzzTree(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(program(NewGen(seed), 20))
	}
	who := [][]jute.ID{nil, {{Scheme: "super"}}, {acl.DigestID("u1:p1")}, {{Scheme: "ip", ID: "10.0.0.1"}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		tr, model := tree.New(), NewModel()
		zxid := int64(0)
		for len(b) >= 4 && zxid < 200 {
			op, how, size := jute.OpCode(int8(b[0])), b[1], int(binary.BigEndian.Uint16(b[2:]))
			b = b[4:]
			body := b[:min(size, len(b))]
			b = b[len(body):]
			c := tree.Change{Zxid: zxid + 1, Time: zxid, Session: int64(how & 3), IDs: who[how>>2&3],
				NoQuota: how&16 != 0, NoTTL: how&32 != 0, OneLayout: how&64 != 0}
			m := c
			out, code, changed := tr.Apply(&c, op, body, nil)
			want, wantCode, wantChanged := model.Apply(&m, op, body, nil)
			must.That(t, bytes.Equal(out, want),
				"%v %q:\n%q %v %v\nthe model\n%q %v %v: want bytes.Equal(out, want)",
				op, body, out, code, changed, want, wantCode, wantChanged)
			must.Equal(t, code, wantCode,
				"%v %q:\n%q %v %v\nthe model\n%q %v %v: code",
				op, body, out, code, changed, want, wantCode, wantChanged)
			must.Equal(t, changed, wantChanged,
				"%v %q:\n%q %v %v\nthe model\n%q %v %v: changed",
				op, body, out, code, changed, want, wantCode, wantChanged)
			must.That(t, SameEvents(c.Events, m.Events),
				"%v %q:\n%v\nthe model\n%v", op, body, c.Events, m.Events)
			if changed {
				zxid++
			}
			tr.AppendMultiRead(nil, c.IDs, body)
			tr.AppendExists(nil, nil, string(body))
			tr.AppendEphemerals(nil, 1, string(body))
		}
		if got, want := Dump(tr), model.Dump(); got != want {
			t.Fatalf("the tree is\n%s\nthe model\n%s", got, want)
		}
		must.OK(t, tr.Verify())
	})
}

// FuzzSnapshot loads any bytes in two chunks. The loader may refuse them, but must not panic. A tree that it
// accepts is sound, and can be restored from its own snapshot.
func FuzzSnapshot(f *testing.F) {
	for seed := range uint64(5) {
		b := bytes.Join(snapshotOf(grown(seed, 60).tree, 64), nil)
		f.Add(b, uint16(len(b)/2))
	}
	f.Add(bytes.Join(snapshotOf(tree.New(), 64), nil), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		at := min(int(cut), len(b))
		input := slices.Clone(b)
		whole, err := load(input)
		clear(input) // the tree must not share memory with the input
		if halves, err := load(b[:at], b[at:]); err == nil && whole == nil {
			t.Fatal("accepted in two chunks only", halves)
		}
		if err != nil {
			return
		}
		must.OK(t, whole.Verify())
		again, err := load(snapshotOf(whole, 3)...)
		must.OK(t, err, "not the same after a restore")
		must.Equal(t, Dump(again), Dump(whole), "not the same after a restore: Dump(again)")
		must.Equal(t, again.Digest(), whole.Digest(),
			"not the same after a restore: again.Digest()")
	})
}
