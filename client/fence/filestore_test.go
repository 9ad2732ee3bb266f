package fence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestFileStoreOutlivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	first := must.Get(NewFileStore(dir))(t)
	if ok, err := first.Raise(t.Context(), "/a", 7); !ok || err != nil {
		t.Fatal(ok, err)
	}
	second, err := NewFileStore(dir)
	must.OK(t, err)
	must.Equal(t, must.Get(second.Load(t.Context(), "/a"))(t), 7)
	if ok, err := second.Raise(t.Context(), "/a", 6); ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := second.Raise(t.Context(), "/a", 7); !ok || err != nil {
		t.Fatal(ok, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".token-*"))
	must.Equal(t, len(left), 0, "temporary files left: %v", left)
}

func TestFileStoreRefusesADamagedFile(t *testing.T) {
	s, err := NewFileStore(t.TempDir())
	must.OK(t, err)
	for _, text := range []string{"", "0\n", "x", "7\n8\n"} {
		must.OK(t, os.WriteFile(s.file("/a", ".token"), []byte(text), 0o600))
		if ok, err := s.Raise(t.Context(), "/a", 9); ok || !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, %v", text, ok, err)
		}
	}
}

func TestFileStoreKeepsResourcesApart(t *testing.T) {
	s, err := NewFileStore(t.TempDir())
	must.OK(t, err)
	long := strings.Repeat("x", 300)
	seen := map[string]string{}
	for _, res := range []string{"", ".", "..", "a", "/a", "a/", "%2Fa", "../a", ".hidden", long, long + "y",
		"a.token", "é"} {
		name := s.file(res, ".token")
		prev, ok := seen[name]
		expect.That(t, !ok, "%q and %q share %s", prev, res, name)
		seen[name] = res
		expect.Equal(t, filepath.Dir(name), s.dir,
			"%q is kept in %s: filepath.Dir(name)", res, name)
		expect.That(t, len(filepath.Base(name)) <= 255,
			"%q is kept in %s: want len(filepath.Base(name)) <= 255", res, name)
		expect.That(t, must.Get(s.Raise(t.Context(), res, 1))(t), "%q", res)
	}
}

func TestFileStoreWaitForItsLockEndsWithTheContext(t *testing.T) {
	s, err := NewFileStore(t.TempDir())
	must.OK(t, err)
	// Another gate stands for another process.
	err = NewGate(s).Do(t.Context(), "/a", Exclusive, 1, func(context.Context) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return NewGate(s).Do(ctx, "/a", Exclusive, 2, nil)
	})
	must.Is(t, err, context.DeadlineExceeded)
}

// If another process has locked the file of a token, Raise does not raise the token.
func TestFileStoreThatCannotLockRaisesNothing(t *testing.T) {
	s, err := NewFileStore(t.TempDir())
	must.OK(t, err)
	unlock, _, err := s.lock(t.Context(), s.file("/a", ".lock"), false)
	must.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fresh, err := s.Raise(ctx, "/a", 7)
	unlock()
	expect.That(t, !fresh && errors.Is(err, context.Canceled), "raised: %v, %v", fresh, err)
	expect.Equal(t, must.Get(s.Load(t.Context(), "/a"))(t), 0, "the token")
}

// A hold is admitted, and then waits for another process. If a later hold is admitted in the meantime, the
// waiting hold does not run.
func TestGateAdmitsAgainAfterWaitingForAnotherProcess(t *testing.T) {
	s, err := NewFileStore(t.TempDir())
	must.OK(t, err)
	early := make(chan error, 1)
	err = NewGate(s).Do(t.Context(), "/a", Shared, 5, func(context.Context) error {
		g := NewGate(s)
		go func() {
			early <- g.Do(t.Context(), "/a", Exclusive, 6, func(context.Context) error {
				t.Error("run after a later hold was admitted")
				return nil
			})
		}()
		for { // until the hold with token 6 is admitted
			if high, err := s.Load(t.Context(), "/a"); err != nil || high == 6 {
				break
			}
		}
		_, err := s.Raise(t.Context(), "/a", 7)
		return err
	})
	must.OK(t, err)
	wantErr(t, <-early, ErrStale)
	free := must.Get(os.Open(s.file("/a", ".do")))(t)
	defer free.Close()
	expect.That(t, must.Get(tryLockFile(free, false))(t), "the hold that was too late keeps others out")
}

func TestGateWithFileStoreLetsReadersRunSideBySide(t *testing.T) {
	s, err := NewFileStore(t.TempDir())
	must.OK(t, err)
	err = NewGate(s).Do(t.Context(), "/a", Shared, 5, func(context.Context) error {
		return NewGate(s).Do(t.Context(), "/a", Shared, 6, func(context.Context) error { return nil })
	})
	must.OK(t, err)
}

// Several processes append lines under Gate.Do with a FileStore. Each checks that no line before its own has
// a later token.
func TestGateWithFileStoreIsAtomicAcrossProcesses(t *testing.T) {
	if dir := os.Getenv("FENCE_TEST_DIR"); dir != "" {
		appendInOrder(t, dir)
		return
	}
	dir := t.TempDir()
	var cmds []*exec.Cmd
	for i := range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestGateWithFileStoreIsAtomicAcrossProcesses$")
		cmd.Env = append(os.Environ(), "FENCE_TEST_DIR="+dir, fmt.Sprint("FENCE_TEST_OFFSET=", i))
		cmd.Stderr = os.Stderr
		must.OK(t, cmd.Start())
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		expect.OK(t, cmd.Wait())
	}
	b := must.Get(os.ReadFile(filepath.Join(dir, "data")))(t)
	last := Token(0)
	for line := range strings.Lines(string(b)) {
		tok, err := ParseToken(strings.TrimSpace(line))
		must.OK(t, err, "%q after %d", line, last)
		must.That(t, tok >= last, "%q after %d: %v: want tok >= last", line, last, err)
		last = tok
	}
	must.That(t, last != 0, "nothing was written")
}

func appendInOrder(t *testing.T, dir string) {
	s := must.Get(NewFileStore(dir))(t)
	offset, err := parseToken(os.Getenv("FENCE_TEST_OFFSET"))
	must.OK(t, err)
	g := NewGate(s)
	for i := Token(1); i <= 40; i++ {
		tok := i + offset
		err := g.Do(t.Context(), "/a", Exclusive, tok, func(context.Context) error {
			f, err := os.OpenFile(filepath.Join(dir, "data"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = fmt.Fprintln(f, tok)
			return err
		})
		must.That(t, err == nil || errors.Is(err, ErrStale), "%v", err)
	}
}

// If a later hold comes while a hold waits for another process, the waiting hold gets ErrStale, not the error
// of its context.
func TestWaitForAnotherProcessThatALaterHoldEndsIsStale(t *testing.T) {
	s, err := NewFileStore(t.TempDir())
	must.OK(t, err)
	early := make(chan error, 1)
	later := make(chan error, 1)
	err = NewGate(s).Do(t.Context(), "/a", Shared, 5, func(context.Context) error {
		g := NewGate(s)
		go func() { early <- g.Do(t.Context(), "/a", Exclusive, 6, nil) }()
		for { // until the hold with token 6 is admitted
			if high, err := s.Load(t.Context(), "/a"); err != nil || high == 6 {
				break
			}
		}
		go func() { later <- g.Do(t.Context(), "/a", Exclusive, 7, func(context.Context) error { return nil }) }()
		expect.Is(t, <-early, ErrStale)
		return nil
	})
	must.OK(t, errors.Join(err, <-later))
}

// A token counts only when it is durable: the new file is synced before the rename, and the directory after
// the rename.
func TestFileStoreSyncsBeforeItSaysSo(t *testing.T) {
	s := must.Get(NewFileStore(t.TempDir()))(t)
	var done []string
	shown := func() string { b, _ := os.ReadFile(s.file("/a", ".token")); return strings.TrimSpace(string(b)) }
	s.syncFile = func(f *os.File) error {
		b, _ := os.ReadFile(f.Name())
		done = append(done, "file with "+strings.TrimSpace(string(b))+" while "+shown()+" is shown")
		return f.Sync()
	}
	s.syncDir = func(dir string) error {
		done = append(done, "directory while "+shown()+" is shown")
		return syncDir(dir)
	}
	for _, token := range []Token{7, 9, 9, 8} {
		must.Get(s.Raise(t.Context(), "/a", token))(t)
	}
	want := []string{"file with 7 while  is shown", "directory while 7 is shown", "file with 9 while 7 is shown",
		"directory while 9 is shown"}
	if !slices.Equal(done, want) {
		t.Errorf("synced\n%q\nwant\n%q", done, want)
	}
}

// If the disk does not take a token, Raise returns an error, and the token does not count.
func TestFileStoreSaysThatASyncFailed(t *testing.T) {
	bad := errors.New("the disk is gone")
	for name, spoil := range map[string]func(*FileStore){
		"file":      func(s *FileStore) { s.syncFile = func(*os.File) error { return bad } },
		"directory": func(s *FileStore) { s.syncDir = func(string) error { return bad } },
	} {
		s := must.Get(NewFileStore(t.TempDir()))(t)
		must.Get(s.Raise(t.Context(), "/a", 7))(t)
		spoil(s)
		expect.Is(t, expect.Err(s.Raise(t.Context(), "/a", 9)), bad, "%s", name)
		high, err := s.Load(t.Context(), "/a")
		if expect.OK(t, err, "%s", name) {
			expect.That(t, name != "file" || high == 7,
				"%s: %v is shown, %v: want name != \"file\" || high == 7", name, high, err)
		}
		left, _ := filepath.Glob(filepath.Join(s.dir, ".token-*"))
		expect.Equal(t, len(left), 0, "%s: left behind %q", name, left)
	}
}

// A token that another process wrote without a sync counts only after a sync.
func TestFileStoreSyncsATokenOfAnother(t *testing.T) {
	dir, bad := t.TempDir(), errors.New("the disk is gone")
	first := must.Get(NewFileStore(dir))(t)
	first.syncDir = func(string) error { return bad }
	must.Is(t, expect.Err(first.Raise(t.Context(), "/a", 7)), bad)
	second := must.Get(NewFileStore(dir))(t)
	syncs := 0
	second.syncDir = func(string) error { syncs++; return bad }
	for range 2 {
		expect.Is(t, expect.Err(second.Raise(t.Context(), "/a", 7)), bad)
	}
	second.syncDir = func(dir string) error { syncs++; return syncDir(dir) }
	for range 2 {
		ok, err := second.Raise(t.Context(), "/a", 7)
		expect.That(t, ok && err == nil, "%v, %v", ok, err)
	}
	expect.Equal(t, syncs, 3, "syncs")
}

// A loss of power does not remove the directory with its tokens.
func TestFileStoreMakesItsDirectoryDurably(t *testing.T) {
	top := t.TempDir()
	var synced []string
	sync := func(dir string) error {
		synced = append(synced, strings.TrimPrefix(dir, top))
		return nil
	}
	for range 2 {
		must.Get(newFileStore(filepath.Join(top, "a", "b"), sync))(t)
	}
	expect.List(t, synced, []string{"", "/a"}, "synced")
	must.OK(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o600))
	for _, dir := range []string{"file", "file/below"} {
		expect.Fails(t, expect.Err(NewFileStore(filepath.Join(top, dir))), "%s is no directory", dir)
	}
}

// A store that cannot read, lock or write a file returns an error. It does not treat the token as missing.
func TestFileStoreSaysWhatItCannotDo(t *testing.T) {
	blocked := func(suffix string) *FileStore {
		s := must.Get(NewFileStore(t.TempDir()))(t)
		must.OK(t, os.Mkdir(s.file("/a", suffix), 0o700))
		return s
	}
	for _, suffix := range []string{".token", ".lock"} {
		ok, err := blocked(suffix).Raise(t.Context(), "/a", 7)
		expect.That(t, !ok && err != nil, "%s is a directory: %v, %v", suffix, ok, err)
	}
	expect.Fails(t, expect.Err(blocked(".token").Load(t.Context(), "/a")), "a token was read from a directory")
	err := NewGate(blocked(".do")).Do(t.Context(), "/a", Exclusive, 7, func(context.Context) error {
		t.Error("a call runs beside those of other processes")
		return nil
	})
	expect.Fails(t, err, "a directory was locked")

	s := must.Get(NewFileStore(t.TempDir()))(t)
	s.syncFile = func(f *os.File) error { return f.Close() }
	expect.Fails(t, s.write("/a", 7), "a file was closed twice")
	gone := must.Get(NewFileStore(filepath.Join(t.TempDir(), "gone")))(t)
	must.OK(t, os.Remove(gone.dir))
	expect.Fails(t, gone.write("/a", 7), "a file was made in a directory that has gone")
}

// Without a durable directory there is no store.
func TestFileStoreNeedsItsDirectory(t *testing.T) {
	top, bad := t.TempDir(), errors.New("the disk is gone")
	for _, dir := range []string{"a", "b/c"} {
		_, err := newFileStore(filepath.Join(top, dir), func(dir string) error {
			if dir == top {
				return bad
			}
			return nil
		})
		expect.Is(t, err, bad, "%s", dir)
	}
	above := filepath.Join(top, "d")
	_, err := newFileStore(filepath.Join(above, "e"), func(string) error {
		return errors.Join(os.Remove(above), os.WriteFile(above, nil, 0o600)) // replaces the directory by a file
	})
	expect.Fails(t, err, "a directory was made in a file")
}

// The names of the files are the same in each release.
func TestFileStoreNamesOfLongResources(t *testing.T) {
	s := must.Get(NewFileStore(t.TempDir()))(t)
	plain := strings.Repeat("x", 200)
	expect.Equal(t, filepath.Base(s.file(plain, ".token")), plain+".token")
	expect.Equal(t, filepath.Base(s.file("", ".token")),
		"%sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.token")
}
