package backup

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

var errHangs = errors.New("the disk does not respond")

// patient is a writer that gives up if the reader at the other end reads nothing for a while.
type patient struct {
	to    *io.PipeWriter
	from  *io.PipeReader
	limit time.Duration
}

func (p *patient) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		enough := time.AfterFunc(p.limit, func() { p.from.CloseWithError(errHangs) })
		var some int
		some, err = p.to.Write(b[n:min(n+paceStep, len(b))])
		enough.Stop()
		n += some
	}
	return n, err
}

// writeFile copies the given reader into a file. The file appears under its name only when it is whole.
func writeFile(ctx context.Context, file string, from io.Reader) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file+unfinished, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(&paced{ctx: ctx, f: f}, from, make([]byte, 256<<10))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return vfs.OS.SyncDir(dir)
}

// paced writes in steps. After each step it syncs the file and rests. A single sync at the end would delay
// the syncs of the log.
type paced struct {
	ctx      context.Context
	f        *os.File
	unsynced int
}

const (
	paceStep = 1 << 20
	paceRest = 50 * time.Millisecond // the longest rest
)

func (p *paced) Write(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := p.f.Write(b)
	if p.unsynced += n; err != nil || p.unsynced < paceStep {
		return n, err
	}
	p.unsynced = 0
	begun := time.Now()
	if err := p.f.Sync(); err != nil {
		return n, err
	}
	select {
	case <-time.After(min(time.Since(begun), paceRest)):
	case <-p.ctx.Done():
	}
	return n, nil
}
