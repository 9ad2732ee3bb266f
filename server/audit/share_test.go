package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// A client has many requests refused. Only as many lines as its share allows are logged, and one line counts
// the rest. No line of another client is lost.
func TestAddressWritesItsShareOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	synctest.Test(t, func(t *testing.T) {
		l := must.Get(Open(Options{Name: file}))(t)
		const refused = 20_000
		for n := range refused {
			l.Add(&Event{IP: "10.0.0.66", Operation: "delete", Path: strings.Repeat("x", 65_500), Result: failure})
			if n%1000 == 0 {
				l.Add(&Event{IP: "10.0.0.7", Operation: "create", Path: "/mine"})
			}
			if n%2000 == 0 {
				time.Sleep(2 * flushAfter)
			}
		}
		time.Sleep(2 * sweepEvery)
		l.Close()
		text := must.Get(os.ReadFile(file))(t)
		written := int64(bytes.Count(text, []byte("operation=delete")))
		expect.That(t, len(text) < 2<<20, "bytes: got %d, want 2 MiB at most", len(text))
		expect.Equal(t, bytes.Count(text, []byte("znode=/mine")), refused/1000, "lines of the other client")
		expect.Equal(t, l.Figures().Lost, refused-written, "lost")
		told := int64(0)
		for line := range strings.Lines(string(text)) {
			var n int64
			if _, rest, ok := strings.Cut(line, "operation=linesLost\trequest="); ok {
				must.Get(fmt.Sscanf(rest, "%d lines", &n))(t)
				told += n
			}
		}
		expect.Equal(t, told, refused-written, "lines that the log tells of as lost")
	})
}

// A share from which nothing has been taken for a while is full again, so it is removed. The addresses beyond
// the first maxShares use one share together.
func TestSharesAreBounded(t *testing.T) {
	s := &sink{}
	at := time.Unix(0, 0)
	for n := range maxShares + 100 {
		s.shareOf(fmt.Sprint("10.0.0.", n), at).left--
	}
	expect.Equal(t, len(s.shares), maxShares+1)
	s.sweep(at.Add(sweepEvery))
	expect.Equal(t, len(s.shares), 0)
}

// A session with many nodes ends. All lines about these nodes are written, and later lines of other clients
// are not lost.
func TestLinesOfEndsPushOutNoOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l := must.Get(Open(Options{Name: file}))(t)
	events := make([]tree.Event, 150_000)
	for i := range events {
		events[i] = tree.Event{Type: jute.EventDeleted, Path: fmt.Sprintf("/ephs/some-longer-name-%d", i)}
	}
	l.Ended(1, events)
	clear(events) // the caller may reuse its list
	l.Add(&Event{IP: "10.0.0.7", Operation: "delete", Path: "/valuable"})
	l.Close()
	text := must.Get(os.ReadFile(file))(t)
	expect.Equal(t, bytes.Count(text, []byte("znode=/ephs/some-longer-name-")), len(events), "lines of the end")
	expect.That(t, bytes.Contains(text, []byte("znode=/valuable")), "the delete behind it has no line")
	expect.Equal(t, l.Figures().Lost, 0, "lost")
}

// A file at its size limit is replaced by a new one, and the oldest files are removed.
func TestFileIsTurnedBySize(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "audit[1].log")
	must.OK(t, os.WriteFile(file+".1.gz", nil, 0o600)) // a file of another program
	at := time.Unix(1_700_000_000, 0)
	first := func(name string) string { return string(must.Get(os.ReadFile(name))(t)[:1]) }
	w := must.Get(opener(&Options{Name: file, Size: 100, Keep: 2, Now: func() time.Time { return at }})())(t)
	for n := range 10 {
		at = at.Add(time.Second)
		must.Get(w.Write([]byte(strings.Repeat(string(rune('a'+n)), 60))))(t)
	}
	must.OK(t, w.Close())
	expect.Equal(t, first(file), "j")
	old := must.Get(filepath.Glob(globbed(file) + ".2*"))(t)
	must.Equal(t, len(old), 2, "old files")
	expect.Equal(t, first(old[0])+first(old[1]), "hi")
	expect.OK(t, expect.Err(os.Stat(file+".1.gz")))
}

// Old files are found however the name of the log is written.
func TestOldFilesOfAnUncleanNameAreRemoved(t *testing.T) {
	for _, between := range []string{"/./", "//", strings.Repeat("/.", 30) + "/"} {
		dir := t.TempDir()
		at := time.Unix(1_700_000_000, 0)
		w := must.Get(opener(&Options{Name: dir + between + "log", Size: 100, Keep: 2,
			Now: func() time.Time { return at }})())(t)
		for range 9 {
			at = at.Add(time.Second)
			must.Get(w.Write(bytes.Repeat([]byte("x"), 60)))(t)
		}
		must.OK(t, w.Close())
		expect.Equal(t, len(must.Get(os.ReadDir(dir))(t)), 3, "files of a log named DIR%slog", between)
	}
}

// If a full disk or a kill has cut a line, the next line begins on a line of its own.
func TestCutLineStaysAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for _, tc := range []struct{ is, want string }{
		{"", "next\n"}, {"whole\n", "whole\nnext\n"}, {"whole\nhal", "whole\nhal\nnext\n"},
	} {
		must.OK(t, os.WriteFile(file, []byte(tc.is), 0o600))
		must.OK(t, Try(file))
		expect.Equal(t, string(must.Get(os.ReadFile(file))(t)), tc.is, "after a look")
		w := must.Get(opener(&Options{Name: file})())(t)
		must.Get(w.Write([]byte("next\n")))(t)
		must.OK(t, w.Close())
		expect.Equal(t, string(must.Get(os.ReadFile(file))(t)), tc.want)
	}
}

// While Room returns an error, the log writes nothing, and reports the error.
func TestNothingIsWrittenWithoutRoom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	full := errors.New("no room")
	l := must.Get(Open(Options{Name: file, Room: func() error { return full }}))(t)
	l.Add(&Event{Operation: "x"})
	l.Close()
	expect.Equal(t, len(must.Get(os.ReadFile(file))(t)), 0, "bytes")
	f := l.Figures()
	expect.Equal(t, f.Problem, full)
	expect.Equal(t, f.Lost, 3)
	expect.Equal(t, f.Written, 0)
}

// If the directory does not allow a rename, the log continues in the same file, and says why. As soon as the
// directory allows it, a new file is begun.
func TestFileThatCannotBeTurnedGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	at := time.Unix(1_700_000_000, 0)
	s := &sink{open: opener(&Options{Name: file, Size: 100, Keep: 2, Now: func() time.Time { return at }}),
		room: func() error { return nil }, now: time.Now}
	in := filepath.Join(file+"."+at.UTC().Format(stampForm), "in the way") // no rename replaces a directory
	must.OK(t, os.MkdirAll(in, 0o700))
	w := must.Get(s.open())(t)
	line := append(bytes.Repeat([]byte("x"), 59), '\n')
	for n := range int64(5) {
		w = s.write(w, line, 1)
		expect.Equal(t, s.written, n+1, "written")
		expect.Equal(t, s.outgrows != nil, n > 0, "the reason %v, after %d lines", s.outgrows, n+1)
		expect.OK(t, s.problem)
	}
	expect.Equal(t, s.lost, 0, "lost")
	expect.Equal(t, len(must.Get(os.ReadFile(file))(t)), 5*len(line))
	at = at.Add(time.Second)
	w = s.write(w, line, 1)
	expect.OK(t, s.outgrows, "the file is turned")
	expect.Equal(t, len(must.Get(os.ReadFile(file))(t)), len(line))
	at = at.Add(time.Second)
	must.OK(t, os.Remove(file)) // as if another program had moved it away
	w = s.write(s.write(w, line, 1), line, 1)
	expect.OK(t, s.outgrows, "there is nothing to turn")
	must.OK(t, w.Close())
}
