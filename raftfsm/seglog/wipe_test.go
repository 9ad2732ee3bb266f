package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The type `noted` is a file that records the calls on it, and fails at one of them.
type noted struct {
	vfs.File
	calls []string
	fails int // number of the call that fails; -1: no call fails
}

func (n *noted) call(what string) error {
	n.calls = append(n.calls, what)
	if len(n.calls)-1 == n.fails {
		return errors.New("the disk failed")
	}
	return nil
}

func (n *noted) WriteAt(b []byte, at int64) (int, error) {
	if err := n.call(fmt.Sprintf("write %d at %d", len(b), at)); err != nil {
		return 0, err
	}
	return n.File.WriteAt(b, at)
}

func (n *noted) Datasync() error { return n.call("sync") }

// The wipe clears what a torn write left after the last record: to the last byte, from the end to the start,
// and durably. It leaves earlier records alone. If a write or a sync fails, the wipe fails.
func TestTornTailIsWiped(t *testing.T) {
	const end, mib = 100, 1 << 20
	for _, c := range []struct {
		tail  int
		calls []string
	}{
		{0, nil},
		{1, []string{"write 1 at 100", "sync"}},
		{mib, []string{"write 1048576 at 100", "sync"}},
		{mib + 1, []string{"write 1 at 1048676", "sync", "write 1048576 at 100", "sync"}},
		{2*mib + 7, []string{"write 7 at 2097252", "sync", "write 1048576 at 1048676", "sync",
			"write 1048576 at 100", "sync"}},
	} {
		for fails := -1; fails < len(c.calls); fails++ {
			path := filepath.Join(t.TempDir(), "segment")
			must.OK(t, os.WriteFile(path, bytes.Repeat([]byte{7}, end+c.tail), 0o600))
			f := &noted{File: must.Get(vfs.OS.Open(path))(t), fails: fails}
			s := &segment{size: end + c.tail, end: end}
			err := s.wipe(f)
			must.OK(t, f.Close())
			if fails >= 0 {
				expect.Fails(t, err, "a tail of %d bytes: %s fails", c.tail, c.calls[fails])
				expect.Equal(t, len(f.calls), fails+1, "a tail of %d bytes: after %s has failed", c.tail, c.calls[fails])
				continue
			}
			must.OK(t, err)
			expect.That(t, slices.Equal(f.calls, c.calls), "a tail of %d bytes: %q", c.tail, f.calls)
			b := must.Get(os.ReadFile(path))(t)
			expect.That(t, bytes.Equal(b[:end], bytes.Repeat([]byte{7}, end)), "a record in front of %d bytes is changed",
				c.tail)
			expect.That(t, len(bytes.Trim(b[end:], "\x00")) == 0, "a tail of %d bytes is not wiped", c.tail)
		}
	}
}
