package seglog

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// contents is every file of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		b := must.Get(os.ReadFile(filepath.Join(dir, e.Name())))(t)
		files[e.Name()] = string(b)
	}
	return files
}

// TestScanReadsWhatOpenReads makes a log with a cut tail and a torn end; Scan
// finds what Open finds, and changes nothing.
func TestScanReadsWhatOpenReads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir()
	l := open(t, dir)
	must.OK(t, l.StoreLogs(batch(rng, 1, 20, 300)))
	must.OK(t, l.DeleteRange(11, 20))
	must.OK(t, l.StoreLogs(batch(rng, 11, 5, 3000)))
	must.OK(t, l.DeleteRange(1, 3))
	must.OK(t, l.Close())
	names := must.Get(filepath.Glob(filepath.Join(dir, "*.log")))(t)
	last := names[len(names)-1]
	b := must.Get(os.ReadFile(last))(t)
	whole := len(bytes.TrimRight(b, "\x00"))
	for _, cut := range []int{0, 2000} {
		torn := bytes.Clone(b)
		clear(torn[whole-cut:])
		must.OK(t, os.WriteFile(last, torn, 0o600))
		before := contents(t, dir)
		var got []*raft.Log
		at := must.Get(Scan(dir, func(l *raft.Log, _ Place) error { got = append(got, l); return nil }))(t)
		expect.Equal(t, at != nil, cut > 0, "%d bytes cut: torn at %v", cut, at)
		after := contents(t, dir)
		expect.Equal(t, len(before), len(after), "files came or went")
		for name := range before {
			expect.Equal(t, before[name], after[name], "%s was changed", name)
		}
		l := open(t, dir)
		m := &model{first: got[0].Index, entries: got}
		m.same(t, l)
		must.OK(t, l.Close())
	}
	b[len(b)/2%whole] ^= 1
	must.OK(t, os.WriteFile(last, b, 0o600))
	expect.Fails(t, expect.Err(Scan(dir, func(*raft.Log, Place) error { return nil })),
		"a changed byte went unnoticed")
}

// A log is found whatever its directory is called, and a directory that is not
// there is no log without entries.
func TestScanFindsItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data[1]*?")
	must.OK(t, os.Mkdir(dir, 0o700))
	l := open(t, dir)
	must.OK(t, l.StoreLogs(batch(rand.New(rand.NewPCG(1, 1)), 1, 3, 30)))
	must.OK(t, l.Close())
	n := 0
	must.Get(Scan(dir, func(*raft.Log, Place) error { n++; return nil }))(t)
	expect.Equal(t, n, 3, "entries of 3")
	expect.Fails(t, expect.Err(Scan(dir+"x", func(*raft.Log, Place) error { return nil })),
		"no directory, and no error")
}

// A file that has lost its end, as a copy does that was not finished, is no log
// that ends earlier.
func TestSegmentCutShortIsDamaged(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range uint64(20) {
		must.OK(t, l.StoreLogs(batch(rng, i+1, 1, 300)))
	}
	must.OK(t, l.Close())
	names := must.Get(filepath.Glob(filepath.Join(dir, "*.log")))(t)
	file := names[len(names)-1]
	whole := must.Get(os.ReadFile(file))(t)
	for n := 0; n < len(whole); n += 8 {
		must.OK(t, os.WriteFile(file, whole[:n], 0o600))
		l, err := Open(dir, Options{})
		if err == nil {
			l.Close()
			t.Fatalf("%d of %d bytes: opened", n, len(whole))
		}
		must.Fails(t, expect.Err(Scan(dir, func(*raft.Log, Place) error { return nil })),
			"%d of %d bytes: scanned", n, len(whole))
		if n == 2000 {
			n = len(whole) - 1000
		}
	}
	must.OK(t, os.WriteFile(file, whole, 0o600))
	must.OK(t, open(t, dir).Close())
}
