package vfs_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// FillNew makes a whole file or no file. It does not replace a file, not even one that appears while FillNew
// writes.
func TestFillNewMakesAWholeFileOrNone(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	full := errors.New("the disk is full")
	write := func(err error) func(io.Writer) error {
		return func(w io.Writer) error {
			must.Get(io.WriteString(w, "new"))(t)
			expect.That(t, expect.Err(os.Stat(name)) != nil, "the file is seen before it is whole")
			return err
		}
	}
	expect.Is(t, vfs.FillNew(name, 0o644, write(full)), full)
	expect.Equal(t, len(must.Get(os.ReadDir(dir))(t)), 0, "files after a write that failed")
	must.OK(t, vfs.FillNew(name, 0o644, write(nil)))
	expect.Equal(t, string(must.Get(os.ReadFile(name))(t)), "new")
	must.OK(t, os.Remove(name))
	expect.Is(t, vfs.FillNew(name, 0o600, func(io.Writer) error {
		return os.WriteFile(name, []byte("other"), 0o600)
	}), os.ErrExist)
	expect.Equal(t, string(must.Get(os.ReadFile(name))(t)), "other")
	expect.Equal(t, len(must.Get(os.ReadDir(dir))(t)), 1, "files")
}
