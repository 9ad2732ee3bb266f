package seglog

import (
	"bytes"
	"encoding/binary"
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
)

// data() returns bytes as a client may send them: often with sectors of zeros, which look like sectors that
// were never written, and often with the image of a record.
func data(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.IntN(256))
	}
	if n > 0 && rng.IntN(2) == 0 {
		from := rng.IntN(n)
		clear(b[from:min(n, from+rng.IntN(4*sector))])
	}
	if n > recordSize && rng.IntN(2) == 0 {
		copy(b[rng.IntN(n-recordSize):], image(1<<40, rng.Uint64()))
	}
	return b
}

// image() returns a valid record of a batch that starts at index.
func image(index, secret uint64) []byte {
	b := appendRecord(nil, &raft.Log{Index: index, Term: 9, Type: raft.LogCommand}, index, secret)
	seal(b, 0)
	return b
}

// forged() returns data that a client fills with records of a later batch, at each alignment.
func forged(secret uint64) []byte {
	b := bytes.Repeat([]byte{'x'}, 4096)
	for k := range 8 {
		copy(b[1024+k*65:], image(1<<40, secret))
	}
	return b
}

// unwritten() clears a record from its offset to the end of the sector, as if the power had failed during the
// write.
func unwritten(t *testing.T, file string, at int) {
	t.Helper()
	b := must.Get(os.ReadFile(file))(t)
	clear(b[at : (at/sector+1)*sector])
	must.OK(t, os.WriteFile(file, b, 0o600))
}

// The data of a torn write may look like the records of a later batch, because clients choose the data. The
// torn write is dropped all the same. If a real batch follows it, the log is damaged.
func TestClientsDataIsNoLaterBatch(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, c := range []struct {
			name  string
			data  []byte
			later bool
			want  error
		}{
			{"plain data", make([]byte, 4096), false, nil},
			{"no secret", forged(0), false, nil},
			{"the time as a secret", forged(uint64(time.Unix(5, 6).UnixNano())), false, nil},
			{"another secret", forged(77), false, nil},
			{"a later batch", forged(77), true, errDamaged},
		} {
			t.Run(fmt.Sprintf("%s, first in its segment: %v", c.name, first), func(t *testing.T) {
				dir := t.TempDir()
				l := open(t, dir)
				must.OK(t, l.StoreLog(&raft.Log{Index: 1, Term: 3, Data: []byte("acknowledged")}))
				if first {
					must.OK(t, l.DeleteRange(2, 2))
					_, _, err := l.roll(2, 0)
					must.OK(t, err)
				}
				must.OK(t, l.StoreLog(&raft.Log{Index: 2, Term: 3, Type: raft.LogCommand, Data: c.data}))
				tail := l.segments[len(l.segments)-1]
				at := int(tail.offsets[len(tail.offsets)-1])
				if c.later {
					must.OK(t, l.StoreLog(&raft.Log{Index: 3, Term: 3}))
				}
				must.OK(t, l.Close())
				unwritten(t, tail.name, at)
				_, scanned := Scan(dir, func(*raft.Log, string) error { return nil })
				expect.Is(t, scanned, c.want, "Scan")
				l, err := Open(dir, Options{})
				expect.Is(t, err, c.want, "Open")
				if err == nil {
					expect.Equal(t, must.Get(l.LastIndex())(t), 1, "the last entry")
					must.OK(t, l.Close())
				}
			})
		}
	}
}

// old() writes a segment as release 0.1.0 did: no secret, the time of the append in each record, and room for
// records up to the end of the file.
func old(t *testing.T, dir string, entries []*raft.Log, size int) (file string, offsets []int) {
	t.Helper()
	b := binary.BigEndian.AppendUint64(append([]byte(nil), magic...), entries[0].Index)
	b = binary.BigEndian.AppendUint32(b, checksum(b))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	for _, e := range entries {
		at := len(b)
		offsets = append(offsets, at)
		b = appendRecord(b, e, e.Index, uint64(time.Unix(5, 6).UnixNano()))
		seal(b[at:], at)
	}
	must.That(t, len(b) <= size, "%d bytes of records for a segment of %d", len(b), size)
	file = filepath.Join(dir, segmentName(1))
	must.OK(t, os.WriteFile(file, append(b, make([]byte, size-len(b))...), 0o600))
	return file, offsets
}

// A segment of release 0.1.0, without a secret, is read. New entries go to a segment with a secret.
func TestSegmentWithoutASecretIsRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	dir := t.TempDir()
	entries := batch(rng, 1, 5, 300)
	old(t, dir, entries, 4096)
	l := open(t, dir)
	more := batch(rng, 6, 5, 300)
	must.OK(t, l.StoreLogs(more))
	(&model{1, append(entries, more...)}).same(t, l)
	expect.Equal(t, len(l.segments), 2, "segments")
	must.OK(t, l.Close())
	l = open(t, dir)
	(&model{1, append(entries, more...)}).same(t, l)
	must.OK(t, l.StoreLogs(batch(rng, 11, 1, 300)))
	expect.Equal(t, len(l.segments), 2, "segments after a second start")
}

// In a segment of release 0.1.0, a missing record is damage if another record follows it, even if a client's
// data look like a secret.
func TestSegmentWithoutASecretKeepsItsRule(t *testing.T) {
	dir := t.TempDir()
	const size = 4096
	entries := []*raft.Log{{Index: 1, Term: 3}, {Index: 2, Term: 3, Data: bytes.Repeat([]byte{'x'}, 1000)},
		{Index: 3, Term: 3}}
	used := headerSize + 3*recordSize + 1000
	last := entries[2]
	last.Data = make([]byte, size-used)
	binary.BigEndian.PutUint64(last.Data[len(last.Data)-16:], 77)
	binary.BigEndian.PutUint64(last.Data[len(last.Data)-8:], ^uint64(77))
	file, offsets := old(t, dir, entries, size)
	l := open(t, dir)
	(&model{1, entries}).same(t, l)
	must.OK(t, l.Close())
	unwritten(t, file, offsets[1])
	expect.Is(t, expect.Err(Open(dir, Options{})), errDamaged, "entry 2 is gone, and entry 3 follows")
}

// Release 0.1.0 clears the secret of a segment and appends its own entries to it. Afterwards this release
// reads all entries.
func TestSegmentThatHasLostItsSecretIsRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 2))
	dir := t.TempDir()
	l := open(t, dir)
	entries := batch(rng, 1, 5, 300)
	must.OK(t, l.StoreLogs(entries))
	at, file := l.segments[0].end, l.segments[0].name
	must.OK(t, l.Close())
	b := must.Get(os.ReadFile(file))(t)
	clear(b[len(b)-endSize:])
	theirs := batch(rng, 6, 1, 300)
	record := appendRecord(nil, theirs[0], 6, uint64(time.Unix(5, 6).UnixNano()))
	seal(record, at)
	copy(b[at:], record)
	must.OK(t, os.WriteFile(file, b, 0o600))
	l = open(t, dir)
	ours := batch(rng, 7, 2, 300)
	must.OK(t, l.StoreLogs(ours))
	(&model{1, append(append(entries, theirs...), ours...)}).same(t, l)
}

// Each log has its own secret, from the source of randomness in its options.
func TestEveryLogHasItsSecret(t *testing.T) {
	a, b := open(t, t.TempDir()), open(t, t.TempDir())
	expect.That(t, a.secret != 0, "a log has the secret 0")
	expect.That(t, a.secret != b.secret, "two logs have the secret %x", a.secret)
	c := must.Get(Open(t.TempDir(), Options{Rand: bytes.NewReader(make([]byte, 8))}))(t)
	expect.Equal(t, c.secret, 1, "the secret from zeros; 0 would mean no secret")
	must.OK(t, c.Close())
	broken := errors.New("no randomness")
	expect.Is(t, expect.Err(Open(t.TempDir(), Options{Rand: failing{broken}})), broken, "without randomness")
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
