package disk

import (
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// synced notes the directories whose names were made durable.
type synced struct {
	vfs.FS
	dirs []string
}

func (s *synced) SyncDir(dir string) error {
	s.dirs = append(s.dirs, dir)
	return s.FS.SyncDir(dir)
}

// Who was told that a directory was made may throw away what it was made of: it
// must not go with the power, at any height.
func TestFoundDirectoryIsDurable(t *testing.T) {
	s := &synced{FS: osFiles.FS}
	osFiles.FS = s
	defer func() { osFiles.FS = s.FS }()
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b")
	must.OK(t, Found(dir, Founding{Server: 1, Cluster: "c", Index: 1, Term: 1}, func(w io.Writer) error {
		_, err := io.WriteString(w, "content")
		return err
	}))
	for _, want := range []string{top, filepath.Join(top, "a"), dir, filepath.Join(dir, "raft"),
		filepath.Join(dir, "snapshots")} {
		expect.That(t, slices.Contains(s.dirs, want), "the names in %s may go with the power", want)
	}
}
