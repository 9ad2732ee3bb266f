package zkfiles

import (
	"bytes"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

func FuzzSnapshot(f *testing.F) {
	tree := NewTree()
	for _, x := range sample()[:8] {
		tree.Apply(x)
	}
	f.Add(snapshotOf(f, tree))
	f.Add([]byte("ZKSN"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := load(b, 8)
		if err != nil {
			return
		}
		again, err := load(snapshotOf(t, got), 8)
		if err == nil {
			err = same(got, again)
		}
		must.OK(t, err)
	})
}

func FuzzLog(f *testing.F) {
	b, _ := encodeLog(sample(), 40)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		log, err := readLog(b)
		tree := NewTree()
		for _, x := range log {
			tree.Zxid = x.Zxid - 1
			tree.Apply(x)
		}
		if err != nil {
			return
		}
		again, _ := encodeLog(log, 0)
		must.Get(readLog(again))(t)
	})
}

// FuzzTxn reads records without their checksum, which random bytes would not match.
func FuzzTxn(f *testing.F) {
	for _, x := range sample() {
		f.Add(x.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decodeTxn(b)
		if err != nil {
			return
		}
		again, err := decodeTxn(x.encode())
		must.OK(t, err, "%+v, then %+v, %v", x, again, err)
		must.That(t, bytes.Equal(again.encode(), x.encode()),
			"%+v, then %+v, %v: want bytes.Equal(again.encode(), x.encode())", x, again, err)
	})
}

func FuzzUnsnap(f *testing.F) {
	f.Add([]byte("\x0b\x28hello world"))
	f.Add([]byte("\x0a\x00a\x22\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 8 {
			b[0] &= 0x7f // so that the result is short
		}
		unsnap(nil, b)
	})
}
