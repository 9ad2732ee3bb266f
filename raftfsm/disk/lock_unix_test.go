//go:build !windows

package disk

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A process that was just started may still have a copy of the descriptor of a directory's lock. Once the
// directory is closed, it can be opened at once all the same.
func TestClosedDirectoryIsFree(t *testing.T) {
	path := t.TempDir()
	first := must.Get(openDataDir(path, osFiles))(t)
	expect.That(t, InUse(path), "an open directory counts as free")
	fd := must.Get(unix.Dup(int(first.lock.Fd())))(t)
	defer unix.Close(fd)
	must.OK(t, first.close())
	expect.That(t, !InUse(path), "a closed directory counts as used")
	second := must.Get(openDataDir(path, osFiles))(t)
	expect.OK(t, second.close())
}
