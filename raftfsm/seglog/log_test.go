package seglog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// data never holds a zero, so that whole sectors of zeros mean unwritten.
func data(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + rng.IntN(255))
	}
	return b
}

func batch(rng *rand.Rand, index uint64, n, size int) []*raft.Log {
	var list []*raft.Log
	for i := range n {
		list = append(list, &raft.Log{Index: index + uint64(i), Term: 3, Type: raft.LogCommand, Data: data(rng, 1+rng.IntN(size)), AppendedAt: time.Unix(5, 6)})
	}
	return list
}

// model is the log as it should be.
type model struct {
	first   uint64
	entries []*raft.Log
}

func (m *model) last() uint64 { return m.first + uint64(len(m.entries)) - 1 }

// same compares everything the model holds; the log may still know entries
// before the model's first, when it was opened again.
func (m *model) same(t *testing.T, l *Log) {
	t.Helper()
	last, _ := l.LastIndex()
	if len(m.entries) == 0 {
		if last != 0 && last >= m.first {
			t.Fatalf("log reaches to %d, want none from %d on", last, m.first)
		}
		return
	}
	if first, _ := l.FirstIndex(); last != m.last() || first > m.first {
		t.Fatalf("log is %d..%d, want %d..%d", first, last, m.first, m.last())
	}
	for _, want := range m.entries {
		var got raft.Log
		must(t, l.GetLog(want.Index, &got))
		if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) ||
			!bytes.Equal(got.Extensions, want.Extensions) || !got.AppendedAt.Equal(want.AppendedAt) {
			t.Fatalf("entry %d differs", want.Index)
		}
	}
	var l2 raft.Log
	if err := l.GetLog(m.last()+1, &l2); err != raft.ErrLogNotFound {
		t.Fatalf("entry behind the last: %v", err)
	}
}

// TestLogHoldsWhatItWasGiven runs random appends, truncations and restarts
// against a model.
func TestLogHoldsWhatItWasGiven(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		dir := t.TempDir()
		l := open(t, dir)
		m := &model{first: 1}
		for range 300 {
			switch k := rng.IntN(20); {
			case k < 14:
				size := 300
				if k == 0 {
					size = 200_000
				}
				next := m.first + uint64(len(m.entries))
				b := batch(rng, next, 1+rng.IntN(10), size)
				if k == 1 {
					b[0].Extensions = []byte("ext")
				}
				must(t, l.StoreLogs(b))
				m.entries = append(m.entries, b...)
			case k < 16 && len(m.entries) > 1:
				n := rng.IntN(len(m.entries))
				must(t, l.DeleteRange(m.first+uint64(n), m.last()))
				m.entries = m.entries[:n]
			case k < 18 && len(m.entries) > 0:
				n := 1 + rng.IntN(len(m.entries))
				from, _ := l.FirstIndex() // a log opened again may still know earlier entries
				must(t, l.DeleteRange(from, m.first+uint64(n)-1))
				m.first += uint64(n)
				m.entries = m.entries[n:]
			case k == 18:
				m.first, m.entries = m.first+uint64(len(m.entries))+uint64(rng.IntN(50)), nil
				b := batch(rng, m.first, 3, 100) // behind a snapshot
				must(t, l.StoreLogs(b))
				m.entries = b
			case k == 19:
				must(t, l.Close())
				l = open(t, dir)
			}
			m.same(t, l)
		}
	}
}

// TestTruncatedTailSurvivesARestart is the case that other logs got wrong.
func TestTruncatedTailSurvivesARestart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir()
	l := open(t, dir)
	b := batch(rng, 1, 10, 100)
	must(t, l.StoreLogs(b))
	must(t, l.DeleteRange(6, 10))
	b2 := batch(rng, 6, 2, 100)
	must(t, l.StoreLogs(b2))
	must(t, l.Close())
	(&model{1, append(b[:5], b2...)}).same(t, open(t, dir))
}

// TestTornWritesAreDropped keeps a random subset of the sectors of the last
// append, as a crash may, and expects everything before it.
func TestTornWritesAreDropped(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 9))
		dir := t.TempDir()
		l := open(t, dir)
		var all []*raft.Log
		for range 5 {
			b := batch(rng, uint64(len(all)+1), 1+rng.IntN(4), 2000)
			must(t, l.StoreLogs(b))
			all = append(all, b...)
		}
		before := l.segments[0].end
		torn := batch(rng, uint64(len(all)+1), 1+rng.IntN(5), 3000)
		must(t, l.StoreLogs(torn))
		after := l.segments[0].end
		must(t, l.Close())
		file := filepath.Join(dir, segmentName(1))
		b, err := os.ReadFile(file)
		must(t, err)
		lost := false
		for at := before; at < after; {
			end := min((at/sector+1)*sector, after)
			if rng.IntN(2) == 0 {
				lost = lost || len(bytes.Trim(b[at:end], "\x00")) > 0
				clear(b[at:end])
			}
			at = end
		}
		must(t, os.WriteFile(file, b, 0o600))
		l, err = Open(dir)
		if err != nil {
			t.Fatalf("seed %d: a torn write was taken for damage: %v", seed, err)
		}
		last, _ := l.LastIndex()
		if last < uint64(len(all)) || !lost && last != uint64(len(all)+len(torn)) {
			t.Fatalf("seed %d: log reaches to %d of %d synced", seed, last, len(all))
		}
		n := int(last) - len(all)
		all = append(all, torn[:n]...)
		more := batch(rng, last+1, 3, 500)
		must(t, l.StoreLogs(more))
		must(t, l.Close())
		(&model{1, append(all, more...)}).same(t, open(t, dir))
	}
}

// TestDamageIsRefused flips every bit position class of a log's written bytes:
// either Open or the read of the entry must fail, or nothing has changed.
func TestDamageIsRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	dir := t.TempDir()
	l := open(t, dir)
	var all []*raft.Log
	for range 6 {
		b := batch(rng, uint64(len(all)+1), 2, 120)
		must(t, l.StoreLogs(b))
		all = append(all, b...)
	}
	end := l.segments[0].end
	must(t, l.Close())
	file := filepath.Join(dir, segmentName(1))
	good, err := os.ReadFile(file)
	must(t, err)
	for at := range end + 64 {
		bad := append([]byte(nil), good...)
		bad[at] ^= 1 << rng.IntN(8)
		must(t, os.WriteFile(file, bad, 0o600))
		l, err := Open(dir)
		if err != nil {
			continue
		}
		last, _ := l.LastIndex()
		if last != uint64(len(all)) {
			t.Errorf("a flip at %d cut the log to %d of %d", at, last, len(all))
		}
		for _, want := range all {
			var got raft.Log
			if err := l.GetLog(want.Index, &got); err == nil && (!bytes.Equal(got.Data, want.Data) || got.Term != want.Term) {
				t.Errorf("a flip at %d is served in entry %d", at, want.Index)
			}
		}
		l.Close()
	}
}

// FuzzOpen opens directories of arbitrary bytes: an error, never a panic.
func FuzzOpen(f *testing.F) {
	rng := rand.New(rand.NewPCG(4, 5))
	b := append(append([]byte(nil), magic...), 0, 0, 0, 0, 0, 0, 0, 1)
	for _, e := range batch(rng, 1, 3, 50) {
		b = appendRecord(b, e, 1)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, segmentName(1)), b, 0o600))
		if l, err := Open(dir); err == nil {
			l.Close()
		}
	})
}

func BenchmarkStoreLogs(b *testing.B) {
	for _, size := range []int{200, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(4, 5))
			l := open(b, b.TempDir())
			e := batch(rng, 1, 1, 2)
			e[0].Data = data(rng, size)
			b.ReportAllocs()
			for i := range b.N {
				e[0].Index = uint64(i + 1)
				must(b, l.StoreLogs(e))
			}
		})
	}
}
