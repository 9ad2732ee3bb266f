package tree_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// A snapshot that is just within the limits loads.
func TestLoaderTakesWhatIsWithinItsBounds(t *testing.T) {
	b := jute.AppendLong(jute.AppendLong(jute.AppendLong([]byte{'H', 1}, 9), 0), 6)
	b = jute.AppendACL(append(b, 'A'), jute.WorldAnyone)
	put := func(path string, kind byte, owner int64, zxids ...int64) {
		b = jute.AppendInt(jute.AppendInt(jute.AppendString(append(b, 'N', 0, 0, 0, 0), path), -1), 0)
		for _, v := range append(zxids, 0, 0, owner) {
			b = jute.AppendLong(b, v)
		}
		b = append(append(b, make([]byte, 3*4)...), kind)
	}
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		put(path, 0, 0, 9, 9, 9)
	}
	longest := "/" + strings.Repeat("x", 4*bounds.MaxPath-1)
	put(longest, 3, jute.MaxTTL, 0, 0, 0)
	put("/ephemeral", 1, -1, 0, 9, 0)
	b = jute.AppendACL(append(b, 'A'), []jute.ACL{entry(1, "ip", "10.0.0.1")}) // an ACL that no node has
	tr := must.Get(load(jute.AppendLong(append(b, 'E'), 6)))(t)
	must.OK(t, tr.Verify())
	got, there := tr.Get(longest)
	expect.That(t, there, "%v, %d ms: want there", there, got.TTL)
	expect.Equal(t, got.TTL, jute.MaxTTL, "%v, %d ms: got.TTL", there, got.TTL)
	expect.Equal(t, tr.EphemeralsIn(-1), 1,
		"%v, %d ms: tr.EphemeralsIn(-1)", there, got.TTL)
}

// A chunk has the number of nodes that was asked for, even if the buffer already holds other bytes.
func TestChunksStandBehindWhatIsThere(t *testing.T) {
	w := grown(6, 500)
	prefix := bytes.Repeat([]byte("x"), 2*tree.MaxChunk)
	plain := snapshotOf(w.tree, 10)
	must.That(t, len(plain) > 5, "%d chunks", len(plain))
	s := w.tree.StartSnapshot()
	for i, want := range plain {
		b, done := s.Append(slices.Clone(prefix), 10)
		must.That(t, bytes.HasPrefix(b, prefix),
			"chunk %d is another: want bytes.HasPrefix(b, prefix)", i)
		must.That(t, bytes.Equal(b[len(prefix):], want),
			"chunk %d is another: want bytes.Equal(b[len(prefix):], want)", i)
		must.Equal(t, done, i == len(plain)-1)
	}
	s.Close()
}
