package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/test/sim"
)

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l := must.Get(Open(dir, Options{}))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

func batch(rng *rand.Rand, index uint64, n, size int) []*raft.Log {
	var list []*raft.Log
	for i := range n {
		list = append(list, &raft.Log{Index: index + uint64(i), Term: 3, Type: raft.LogCommand,
			Data: data(rng, 1+rng.IntN(size)), AppendedAt: time.Unix(5, 6)})
	}
	return list
}

// model holds the entries that a log must have.
type model struct {
	first   uint64
	entries []*raft.Log
}

func (m *model) last() uint64 { return m.first + uint64(len(m.entries)) - 1 }

// same() compares a log with the model. A log that was opened again may have entries before the model's
// first.
func (m *model) same(t *testing.T, l *Log) {
	t.Helper()
	last, _ := l.LastIndex()
	if len(m.entries) == 0 {
		must.That(t, last == 0 || last < m.first, "the log ends at %d, want before %d", last, m.first)
		return
	}
	must.Equal(t, last, m.last(), "the last entry")
	first, _ := l.FirstIndex()
	must.That(t, first <= m.first, "the log starts at %d, want at %d or before", first, m.first)
	for _, want := range m.entries {
		var got raft.Log
		must.OK(t, l.GetLog(want.Index, &got))
		must.Equal(t, got.Index, want.Index, "index of entry %d", want.Index)
		must.Equal(t, got.Term, want.Term, "term of entry %d", want.Index)
		must.Equal(t, got.Type, want.Type, "type of entry %d", want.Index)
		must.That(t, bytes.Equal(got.Data, want.Data), "entry %d has other data", want.Index)
		must.That(t, bytes.Equal(got.Extensions, want.Extensions), "entry %d has other extensions", want.Index)
	}
	var l2 raft.Log
	must.Equal(t, l.GetLog(m.last()+1, &l2), raft.ErrLogNotFound, "the entry after the last")
}

// Random appends, truncations and restarts leave a log equal to a model.
func TestLogHoldsWhatItWasGiven(t *testing.T) {
	for seed := range uint64(2) {
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
				must.OK(t, l.StoreLogs(b))
				m.entries = append(m.entries, b...)
			case k < 16 && len(m.entries) > 1:
				n := rng.IntN(len(m.entries))
				must.OK(t, l.DeleteRange(m.first+uint64(n), m.last()))
				m.entries = m.entries[:n]
			case k < 18 && len(m.entries) > 0:
				n := 1 + rng.IntN(len(m.entries))
				from, _ := l.FirstIndex() // a log opened again may still know earlier entries
				must.OK(t, l.DeleteRange(from, m.first+uint64(n)-1))
				m.first += uint64(n)
				m.entries = m.entries[n:]
			case k == 18:
				m.first, m.entries = m.first+uint64(len(m.entries))+uint64(rng.IntN(50)), nil
				b := batch(rng, m.first, 3, 100) // the gap is the one that a received snapshot leaves
				must.OK(t, l.StoreLogs(b))
				m.entries = b
			case k == 19:
				must.OK(t, l.Close())
				l = open(t, dir)
			}
			m.same(t, l)
		}
	}
}

// The entries of a truncated tail do not come back after a restart.
func TestTruncatedTailSurvivesARestart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir()
	l := open(t, dir)
	b := batch(rng, 1, 10, 100)
	must.OK(t, l.StoreLogs(b))
	must.OK(t, l.DeleteRange(6, 10))
	b2 := batch(rng, 6, 2, 100)
	must.OK(t, l.StoreLogs(b2))
	must.OK(t, l.Close())
	(&model{1, append(b[:5], b2...)}).same(t, open(t, dir))
}

// A log can be truncated twice at the same place, by two leaders in turn.
func TestTruncatedTwiceAtOnePlace(t *testing.T) {
	for _, size := range []int{40, 41} { // size of the last entry: as before, or different
		rng := rand.New(rand.NewPCG(2, 1))
		entries := func(first uint64, n int, term uint64, size int) (list []*raft.Log) {
			for i := range n {
				list = append(list, &raft.Log{Index: first + uint64(i), Term: term, Data: data(rng, size)})
			}
			return list
		}
		dir := t.TempDir()
		l := open(t, dir)
		kept := entries(1, 20, 1, 40)
		must.OK(t, l.StoreLogs(kept))
		must.OK(t, l.DeleteRange(11, 20))
		must.OK(t, l.StoreLogs(entries(11, 3, 2, 40)))
		must.OK(t, l.DeleteRange(11, 13))
		must.OK(t, l.Close())
		l = open(t, dir)
		(&model{1, kept[:10]}).same(t, l)
		last := entries(11, 1, 3, size)
		must.OK(t, l.StoreLogs(last))
		must.OK(t, l.Close())
		(&model{1, append(kept[:10], last...)}).same(t, open(t, dir))
	}
}

// Entries that are queued can be read at once, and Wait tells when they are durable.
func TestQueuedEntriesAreReadAndWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	dir := t.TempDir()
	l := open(t, dir)
	m := &model{first: 1}
	for i := range 200 {
		b := batch(rng, uint64(len(m.entries)+1), 1+rng.IntN(4), 300)
		must.OK(t, l.Append(b, false))
		m.entries = append(m.entries, b...)
		if i%10 == 0 {
			m.same(t, l)
		}
		if i%3 == 0 {
			must.OK(t, l.Wait(b[0].Index))
			must.That(t, l.Durable() >= b[0].Index,
				"durable up to %d after waiting for %d", l.Durable(), b[0].Index)
		}
	}
	expect.Fails(t, l.Append(batch(rng, 7, 1, 10), false), "an entry in the place of another was queued")
	must.OK(t, l.Close())
	expect.Fails(t, l.Append(batch(rng, m.last()+1, 1, 10), false), "an entry was queued after the end")
	m.same(t, open(t, dir))
}

// If Append is called with `lazily` false, the entries are written even if no call waits for them.
func TestQueuedEntriesAreWrittenByThemselves(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	l := open(t, t.TempDir())
	must.OK(t, l.Append(batch(rng, 1, 2, 100), false))
	must.Await(t, "the entries on the disk", 30*time.Second, func() bool { return l.Durable() >= 2 })
}

// All waiting callers hear of a write that fails, and nothing succeeds after it.
func TestWaitTellsOfAFailure(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	disk := sim.NewDisk(rng)
	l := must.Get(Open("log", Options{FS: disk.Mount(), FirstSize: 4 << 10}))(t)
	told := make(chan error, 1)
	l.Around(func(_ string, write func() error) error {
		err := write()
		told <- err
		return err
	})
	must.OK(t, l.StoreLogs(batch(rng, 1, 1, 10)))
	disk.OnOp(func(op sim.DiskOp) error {
		if op.Kind == "sync" {
			return errInjected
		}
		return nil
	})
	must.OK(t, l.Append(batch(rng, 2, 1, 10), false))
	expect.Is(t, l.Wait(2), errInjected, "Wait returned")
	expect.Is(t, <-told, errInjected, "what is around the writes was told")
	for _, err := range []error{l.Append(batch(rng, 3, 1, 10), false), l.StoreLogs(batch(rng, 3, 1, 10)),
		l.DeleteRange(1, 1)} {
		expect.Is(t, err, errInjected, "after a failure")
	}
	expect.OK(t, l.Wait(1), "what was durable before")
	l.Close()
}

// Within finds the newest entries that take at most a given number of bytes. After counts the bytes of
// entries.
func TestWithin(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	l := must.Get(Open("log", Options{FS: sim.NewDisk(rng).Mount(), FirstSize: 4 << 10, FullSize: 8 << 10}))(t)
	const each = 1000
	for i := range uint64(100) {
		must.OK(t, l.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: data(rng, each-recordSize)}))
	}
	must.OK(t, l.DeleteRange(1, 20))
	for bytes, want := range map[int64]uint64{0: 101, each - 1: 101, each: 100, 10 * each: 91, 10*each + 5: 91,
		80 * each: 21, 1 << 40: 21} {
		got := l.Within(bytes)
		expect.Equal(t, got, want, "%d bytes: from %d on", bytes, got)
	}
	for index, want := range map[uint64]int64{0: 80 * each, 19: 80 * each, 20: 80 * each, 21: 79 * each,
		60: 40 * each, 99: each, 100: 0, 200: 0} {
		got := l.After(index)
		expect.Equal(t, got, want, "behind entry %d there are %d bytes", index, got)
	}
	l.Close()
}

// A log refuses an entry that it could not read back. The test stores entries of the largest length, of one
// byte less and of one byte more, with and without extensions.
func TestLongestEntry(t *testing.T) {
	defer func(was int) { maxRecord = was }(maxRecord)
	maxRecord = recordSize + 100_000
	for _, by := range []int{-1, 0, 1} {
		for _, ext := range []int{0, 1000} {
			for _, queued := range []bool{false, true} {
				dir := t.TempDir()
				l := open(t, dir)
				e := &raft.Log{Index: 1, Term: 1, Data: make([]byte, 100_000+by-ext)}
				if ext > 0 {
					e.Extensions = make([]byte, ext)
				}
				store := func() error { return l.StoreLog(e) }
				if queued {
					store = func() error { return errors.Join(l.Append([]*raft.Log{e}, false), l.Wait(1)) }
				}
				must.Equal(t, store() == nil, by <= 0, "an entry at the limit and %d", by)
				must.OK(t, l.Close())
				l = open(t, dir)
				var got raft.Log
				if err := l.GetLog(1, &got); by > 0 {
					expect.Is(t, err, raft.ErrLogNotFound, "limit and %d", by)
				} else if expect.OK(t, err, "limit and %d", by) {
					expect.Equal(t, len(got.Data), len(e.Data), "limit and %d: bytes of data", by)
					expect.Equal(t, len(got.Extensions), ext, "limit and %d: bytes of extensions", by)
				}
				next := must.Get(l.LastIndex())(t)
				next++
				must.OK(t, l.StoreLog(&raft.Log{Index: next, Term: 1}))
				must.OK(t, l.Close())
			}
		}
	}
}

// After a crash any of the sectors of the last append may be missing. Open drops the torn entries and keeps
// all before them.
func TestTornWritesAreDropped(t *testing.T) {
	race.Alone(t)
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		dir := t.TempDir()
		l := open(t, dir)
		var all []*raft.Log
		for range 5 {
			b := batch(rng, uint64(len(all)+1), 1+rng.IntN(4), 2000)
			must.OK(t, l.StoreLogs(b))
			all = append(all, b...)
		}
		before := l.segments[0].end
		torn := batch(rng, uint64(len(all)+1), 1+rng.IntN(5), 3000)
		must.OK(t, l.StoreLogs(torn))
		after := l.segments[0].end
		must.OK(t, l.Close())
		file := filepath.Join(dir, segmentName(1))
		b, err := os.ReadFile(file)
		must.OK(t, err)
		lost := false
		for at := before; at < after; {
			end := min((at/sector+1)*sector, after)
			if rng.IntN(2) == 0 {
				lost = lost || len(bytes.Trim(b[at:end], "\x00")) > 0
				clear(b[at:end])
			}
			at = end
		}
		must.OK(t, os.WriteFile(file, b, 0o600))
		l, err = Open(dir, Options{})
		must.OK(t, err, "seed %d: a torn write was taken for damage", seed)
		last, _ := l.LastIndex()
		must.That(t, last >= uint64(len(all)), "seed %d: the log ends at %d, before the synced entry %d", seed, last,
			len(all))
		if !lost {
			must.Equal(t, last, uint64(len(all)+len(torn)), "seed %d: the last entry, when no sector was lost", seed)
		}
		n := int(last) - len(all)
		all = append(all, torn[:n]...)
		more := batch(rng, last+1, 3, 500)
		must.OK(t, l.StoreLogs(more))
		must.OK(t, l.Close())
		(&model{1, append(all, more...)}).same(t, open(t, dir))
	}
}

// One wrong bit anywhere in a log has one of three results: Open fails, reading the entry fails, or all
// entries are unchanged.
func TestDamageIsRefused(t *testing.T) {
	race.Alone(t)
	rng := rand.New(rand.NewPCG(4, 4))
	dir := t.TempDir()
	l := open(t, dir)
	var all []*raft.Log
	for range 6 {
		b := batch(rng, uint64(len(all)+1), 2, 120)
		must.OK(t, l.StoreLogs(b))
		all = append(all, b...)
	}
	zeros := &raft.Log{Index: uint64(len(all) + 1), Term: 3, Data: make([]byte, 2*sector)} // the last entry
	must.OK(t, l.StoreLog(zeros))
	all = append(all, zeros)
	end := l.segments[0].end
	must.OK(t, l.Close())
	file := filepath.Join(dir, segmentName(1))
	good := must.Get(os.ReadFile(file))(t)
	far := 4
	if testing.Short() {
		far = 64
	}
	for at := 0; at < end+64; at += 1 + rng.IntN(far) {
		bad := append([]byte(nil), good...)
		bad[at] ^= 1 << rng.IntN(8)
		must.OK(t, os.WriteFile(file, bad, 0o600))
		l, err := Open(dir, Options{})
		_, scanned := Scan(dir, func(*raft.Log, string) error { return nil })
		expect.Equal(t, scanned != nil, err != nil, "a flip at %d: Scan says %v, Open %v", at, scanned, err)
		if err != nil {
			continue
		}
		last, _ := l.LastIndex()
		expect.Equal(t, last, uint64(len(all)),
			"a flip at %d cut the log to %d of %d", at, last, len(all))
		for _, want := range all {
			var got raft.Log
			if l.GetLog(want.Index, &got) == nil {
				expect.That(t, bytes.Equal(got.Data, want.Data), "a flip at %d is served in the data of entry %d", at, want.Index)
				expect.Equal(t, got.Term, want.Term, "a flip at %d is served in the term of entry %d", at, want.Index)
			}
		}
		l.Close()
	}
}

// An entry that the disk damages while the log is open is not served.
func TestDamageUnderAnOpenLogIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	must.OK(t, l.StoreLogs(batch(rand.New(rand.NewPCG(4, 4)), 1, 3, 120)))
	file := filepath.Join(dir, segmentName(1))
	b := must.Get(os.ReadFile(file))(t)
	b[l.segments[0].offsets[1]+recordSize] ^= 1
	must.OK(t, os.WriteFile(file, b, 0o600))
	var got raft.Log
	for i, want := range []error{nil, errDamaged, nil} {
		expect.Is(t, l.GetLog(uint64(i+1), &got), want, "entry %d", i+1)
	}
	must.OK(t, l.Close())
}

// Open refuses a log whose terms decrease, within a segment or between two segments. Such a log was assembled
// from several logs.
func TestOlderTermIsDamage(t *testing.T) {
	for _, between := range []bool{false, true} {
		dir := t.TempDir()
		l := open(t, dir)
		must.OK(t, l.StoreLogs([]*raft.Log{{Index: 1, Term: 3}, {Index: 2, Term: 3}}))
		if between {
			must.OK(t, l.DeleteRange(2, 2)) // the next entry begins a segment
		} else {
			must.OK(t, l.StoreLog(&raft.Log{Index: 3, Term: 3}))
		}
		last, _ := l.LastIndex()
		must.OK(t, l.StoreLog(&raft.Log{Index: last + 1, Term: 2}))
		must.OK(t, l.Close())
		expect.Is(t, expect.Err(Open(dir, Options{})), errTerm, "between segments: %v", between)
		expect.Is(t, expect.Err(Scan(dir, func(*raft.Log, string) error { return nil })), errTerm,
			"between segments: %v: scanned", between)
	}
}

// FuzzOpen opens directories of any bytes. Open may fail, but must not panic.
func FuzzOpen(f *testing.F) {
	rng := rand.New(rand.NewPCG(4, 5))
	b := append(append([]byte(nil), magic...), 0, 0, 0, 0, 0, 0, 0, 1)
	for _, e := range batch(rng, 1, 3, 50) {
		at := len(b)
		b = appendRecord(b, e, 1, 7)
		seal(b[at:], at)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(dir, segmentName(1)), b, 0o600))
		if l, err := Open(dir, Options{}); err == nil {
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
				must.OK(b, l.StoreLogs(e))
			}
		})
	}
}
