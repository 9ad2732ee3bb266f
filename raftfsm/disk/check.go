package disk

import "io"

// check runs a verification of a stream beside the goroutine that reads or writes it.
type check struct {
	w    *io.PipeWriter
	done chan error
}

// startCheck starts a verification that reads the bytes given to feed.
func startCheck(verify func(io.Reader) error) *check {
	r, w := io.Pipe()
	c := &check{w: w, done: make(chan error, 1)}
	go func() {
		err := verify(r)
		_, _ = io.Copy(io.Discard, r) // so that feed does not wait
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

// checkedReader verifies the bytes that are read through it, once all of them are read.
type checkedReader struct {
	io.ReadCloser
	check   *check // nil: it has ended
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
		_ = r.check.end() // not all of it was read
		r.check = nil
	}
	return r.ReadCloser.Close()
}
