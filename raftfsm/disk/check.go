package disk

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// A check verifies a stream in a goroutine of its own, beside the goroutine that reads or writes the stream.
type check struct {
	w    *io.PipeWriter
	done chan error
}

// startCheck starts a verification of the bytes that are given to feed().
func startCheck(verify func(io.Reader) error) *check {
	r, w := io.Pipe()
	c := &check{w: w, done: make(chan error, 1)}
	go func() {
		err := verify(r)
		_, _ = io.Copy(io.Discard, r) // otherwise feed() would wait for a reader
		c.done <- err
	}()
	return c
}

func (c *check) feed(b []byte) { _, _ = c.w.Write(b) }

// end ends the stream, and returns the result of the verification.
func (c *check) end() error {
	_ = c.w.Close()
	return <-c.done
}

// checkedReader verifies its content. The verification ends when a caller has read all of the content.
type checkedReader struct {
	io.ReadCloser
	check   *check // nil: the verification has ended
	damaged func(error)
}

func (r *checkedReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if r.check == nil {
		return n, err
	}
	r.check.feed(b[:n])
	if err == io.EOF {
		c := r.check
		r.check = nil
		if bad := c.end(); bad != nil {
			r.damaged(bad)
			return n, bad
		}
	}
	return n, err
}

func (r *checkedReader) Close() error {
	if r.check != nil {
		_ = r.check.end() // the result does not count, because the caller has not read all of the content
		r.check = nil
	}
	return r.ReadCloser.Close()
}

// Until returns a writer to w that fails when ctx has ended: a large snapshot must not delay a server that
// stops, or a command that is interrupted.
func Until(ctx context.Context, w io.Writer) io.Writer { return stoppable{ctx, w} }

type stoppable struct {
	ctx context.Context
	io.Writer
}

func (w stoppable) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}

// CheckLog verifies every entry of a log in bolt, which has no checksums of its own; seglog verifies the
// whole log when it opens the log. Entries that the newest snapshot covers may be missing: where a snapshot
// of another server was installed, the log has a hole between its older entries and the newer ones.
func (d *Disk) CheckLog(covered uint64) error {
	if d.seg != nil {
		return nil
	}
	first, err := d.stores.Log.FirstIndex()
	if err != nil || first == 0 {
		return err
	}
	last, err := d.stores.Log.LastIndex()
	for i := first; i <= last && err == nil; i++ {
		var l raft.Log
		if err = getLog(d.stores.Log, i, &l); i <= covered && errors.Is(err, raft.ErrLogNotFound) {
			err = nil
		}
	}
	return err
}

// checkParts refuses a directory that has lost a part of its files. Without this check, its server would look
// as if it had never voted or stored an entry.
func (d *dataDir) checkParts(id *Identity) error {
	if id.Cluster == "" && !id.Begun {
		return nil
	}
	for _, part := range []string{boltName, "raft/log", "snapshots"} {
		if d.files.Stable != nil && part == boltName {
			continue
		}
		if there, err := vfs.Exists(d.files.FS, d.sub(part)); err == nil && !there {
			return incomplete(d.path, part+" is missing")
		}
	}
	return nil
}

func incomplete(path, what string) error {
	return fmt.Errorf("data directory %s is not complete: %s; restore its old content, or remove "+
		"the directory and add this server again as a new one", path, what)
}

// checkBegun checks a directory that has had a term, and a log or a snapshot. It refuses the directory if
// one of them is missing now.
func (id *Identity) checkBegun(path string, term, end uint64) error {
	if id.Begun && (term == 0 || end == 0) {
		return incomplete(path, "its terms are missing, or both its log and its snapshots")
	}
	return nil
}

// checkWhole records in `id` that the directory has a log. It refuses a directory that has lost its log or a
// part of the log. It also refuses a directory whose term is older than its log, because its server could
// vote a second time in the same term.
func (s *Stores) checkWhole(path string, id *Identity) error {
	c, err := s.content()
	if err != nil {
		return err
	}
	if err := id.checkBegun(path, c.term, c.end()); err != nil {
		return err
	}
	id.Begun = c.term > 0 && c.end() > 0
	var newest raft.Log
	if c.last > 0 {
		if err := s.Log.GetLog(c.last, &newest); err != nil {
			return err
		}
	}
	of := max(newest.Term, c.snapshot.Term)
	if of > c.term {
		return incomplete(path,
			fmt.Sprintf("its log or its newest snapshot has term %d, but the last term in %s is %d",
				of, boltName, c.term))
	}
	if c.first > c.snapshot.Index+1 {
		return incomplete(path, fmt.Sprintf("its log begins at entry %d, but its newest snapshot ends at %d",
			c.first, c.snapshot.Index))
	}
	return nil
}
