package fence

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A token counts once it is on the disk: the new file before it takes the old
// one's place, and the name after it has.
func TestFileStoreSyncsBeforeItSaysSo(t *testing.T) {
	s, err := NewFileStore(t.TempDir())
	must.OK(t, err)
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

// A disk that does not take the token is an error of Raise, not a grant.
func TestFileStoreSaysThatASyncFailed(t *testing.T) {
	bad := errors.New("the disk is gone")
	for name, spoil := range map[string]func(*FileStore){
		"file":      func(s *FileStore) { s.syncFile = func(*os.File) error { return bad } },
		"directory": func(s *FileStore) { s.syncDir = func(string) error { return bad } },
	} {
		s, err := NewFileStore(t.TempDir())
		must.OK(t, err)
		must.Get(s.Raise(t.Context(), "/a", 7))(t)
		spoil(s)
		expect.Is(t, expect.Err(s.Raise(t.Context(), "/a", 9)), bad, "%s", name)
		if high, err := s.Load(t.Context(), "/a"); err != nil || name == "file" && high != 7 {
			t.Errorf("%s: %v is shown, %v", name, high, err)
		}
		if left, _ := filepath.Glob(filepath.Join(s.dir, ".token-*")); len(left) != 0 {
			t.Errorf("%s: left behind %q", name, left)
		}
	}
}

// A token that somebody else has written, and not seen to the disk, counts for nobody
// before it is there.
func TestFileStoreSyncsATokenOfAnother(t *testing.T) {
	dir, bad := t.TempDir(), errors.New("the disk is gone")
	first, err := NewFileStore(dir)
	must.OK(t, err)
	first.syncDir = func(string) error { return bad }
	must.Is(t, expect.Err(first.Raise(t.Context(), "/a", 7)), bad)
	second, err := NewFileStore(dir)
	must.OK(t, err)
	syncs := 0
	second.syncDir = func(string) error { syncs++; return bad }
	for range 2 {
		expect.Is(t, expect.Err(second.Raise(t.Context(), "/a", 7)), bad)
	}
	second.syncDir = func(dir string) error { syncs++; return syncDir(dir) }
	for range 2 {
		if ok, err := second.Raise(t.Context(), "/a", 7); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	}
	expect.Equal(t, syncs, 3, "syncs")
}

// A power loss must not take the directory with all its tokens.
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
