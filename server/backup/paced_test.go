package backup

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A backup is synced after each step. The first error ends the backup.
func TestStepsOfABackup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "backup")))(t)
	p := &paced{ctx: ctx, f: f}
	for _, c := range []struct{ n, unsynced int }{{100, 100}, {paceStep - 101, paceStep - 1}, {1, 0}, {10, 10},
		{paceStep, 0}, {1, 1}} {
		n, err := p.Write(make([]byte, c.n))
		if expect.OK(t, err, "%d bytes", c.n) {
			expect.Equal(t, n, c.n, "%d bytes", c.n)
			expect.Equal(t, p.unsynced, c.unsynced, "%d bytes: unsynced", c.n)
		}
	}
	cancel()
	n, err := p.Write([]byte("x"))
	expect.Equal(t, n, 0)
	expect.Equal(t, err, context.Canceled, "the error")
	must.OK(t, f.Close())
	p.ctx = t.Context()
	_, err = p.Write([]byte("x"))
	expect.Is(t, err, os.ErrClosed)

	r, w, err := os.Pipe() // a pipe, because it cannot be synced
	must.OK(t, err)
	go func() { _, _ = io.Copy(io.Discard, r) }()
	p = &paced{ctx: t.Context(), f: w}
	n, err = p.Write(make([]byte, paceStep))
	expect.Equal(t, n, paceStep, "a sync failed")
	expect.Fails(t, err)
	must.OK(t, w.Close())

	fifo := filepath.Join(t.TempDir(), "backup")
	must.OK(t, unix.Mkfifo(fifo+".tmp", 0o600))
	go func() { // the writer can open the fifo only while it has a reader
		r, err := os.Open(fifo + ".tmp")
		expect.OK(t, err)
		_, _ = io.Copy(io.Discard, r)
	}()
	expect.Fails(t, writeFile(t.Context(), fifo, strings.NewReader("state")), "the last sync failed")
	expect.Fails(t, expect.Err(os.Lstat(fifo)), "a backup that is not synced is there")
}
