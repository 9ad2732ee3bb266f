package zkfiles

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash"
	"hash/adler32"
	"io"
)

// stream reads jute fields from a reader whose content is too long for one slice. After the first error every
// read returns a zero value. stream computes the checksum of all bytes that it has read.
type stream struct {
	r   *bufio.Reader
	sum hash.Hash32 // Adler-32 so far
	off int64
	err error
	buf [8]byte
}

func newStream(r io.Reader) *stream {
	return &stream{r: bufio.NewReaderSize(r, 256<<10), sum: adler32.New()}
}

// fail() records an error, with the offset of the next byte.
func (s *stream) fail(err error) {
	if s.err == nil {
		s.err = &FormatError{s.off, err}
	}
}

// full() reads exactly len(b) bytes.
func (s *stream) full(b []byte) {
	if s.err != nil {
		return
	}
	n, err := io.ReadFull(s.r, b)
	if err != nil {
		s.off += int64(n)
		s.fail(torn(err))
		return
	}
	s.sum.Write(b)
	s.off += int64(len(b))
}

func (s *stream) int() int32 {
	s.full(s.buf[:4])
	if s.err != nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(s.buf[:4]))
}

func (s *stream) long() int64 {
	s.full(s.buf[:8])
	if s.err != nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(s.buf[:8]))
}

// some() reads n bytes, or as many as there are. It allocates memory only as the bytes arrive, because n may
// be damaged.
func (s *stream) some(n int) []byte {
	b := make([]byte, 0, min(n, 64<<10))
	for s.err == nil && len(b) < n {
		at := len(b)
		b = append(b, make([]byte, min(n-at, max(at, 64<<10)))...)
		s.full(b[at:])
	}
	return b
}

// bytes() reads a buffer; null is nil.
func (s *stream) bytes() []byte {
	n := s.int()
	switch {
	case s.err != nil || n == -1:
		return nil
	case n < -1 || n > maxField:
		s.off -= 4
		s.fail(errLength)
		return nil
	}
	b := s.some(int(n))
	if s.err != nil {
		return nil
	}
	return b
}

var errLength = errors.New("impossible length")

// atEnd reports whether nothing follows.
func (s *stream) atEnd() bool {
	if s.err != nil {
		return true
	}
	_, err := s.r.Peek(1)
	if err != nil && err != io.EOF {
		s.fail(torn(err))
	}
	return err != nil
}
