package disk

import (
	"context"
	"io"
)

// check verifies a stream in a goroutine of its own, beside the goroutine that reads or writes the stream.
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
		_, _ = io.Copy(io.Discard, r) // otherwise feed would wait for a reader
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
