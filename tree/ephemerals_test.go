package tree_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// owned returns a tree in which session 7 owns ephemeral nodes, and their paths
// in the order in which they were made.
func owned(t testing.TB, n int) (*tree.Tree, []string) {
	tr := tree.New()
	c := &tree.Change{Session: 7}
	var paths []string
	for i := range n {
		path := fmt.Sprintf("/%c-%d", 'a'+rune(i%7), i*i)
		c.Zxid++
		c.Events = c.Events[:0]
		if _, code, _ := tr.Apply(c, jute.OpCreate, createBody(path, "", jute.FlagEphemeral),
			nil); code != jute.OK {
			t.Fatal(path, code)
		}
		paths = append(paths, path)
	}
	return tr, paths
}

// The order is that of a set that grew and was copied, and the one of a part is
// the order that it has in the whole.
func TestEphemeralsComeInTheOrderOfTheReference(t *testing.T) {
	for _, n := range []int{0, 1, 5, 13, 100, 3000} {
		tr, want := owned(t, n)
		for _, buckets := range []int{jute.GrownTable(n), jute.CopiedTable(n)} {
			jute.SortByBucket(want, buckets, jute.JavaHash)
		}
		for _, prefix := range []string{"/", "/c-", "/c-1", "/none"} {
			var part []string
			for _, path := range want {
				if strings.HasPrefix(path, prefix) {
					part = append(part, path)
				}
			}
			d := jute.NewDecoder(tr.AppendEphemerals(nil, 7, prefix))
			if got, _ := d.Strings(); !slices.Equal(got, part) || d.Err() != nil || len(d.Rest()) > 0 {
				t.Errorf("%d nodes, prefix %q: %d paths, want %d in another order", n, prefix, len(got), len(part))
			}
		}
	}
}

func BenchmarkEphemerals(b *testing.B) {
	tr, _ := owned(b, 50_000)
	for _, prefix := range []string{"/", "/none"} {
		b.Run(prefix[1:], func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				buf = tr.AppendEphemerals(buf[:0], 7, prefix)
			}
		})
	}
}
