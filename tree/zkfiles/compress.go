package zkfiles

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Decompress undoes the compression that a snapshot's name shows.
func Decompress(r io.Reader, name string) (io.Reader, error) {
	switch {
	case strings.HasSuffix(name, ".gz"):
		z, err := gzip.NewReader(bufio.NewReaderSize(r, 256<<10))
		if err != nil {
			return nil, &FormatError{0, torn(err)}
		}
		return z, nil
	case strings.HasSuffix(name, ".snappy"):
		return newSnappy(r)
	}
	return r, nil
}

// snappyReader reads what ZooKeeper's snappy library writes:
//
//	stream := 0x82 "SNAPPY" 0 · version i32 · oldest version i32 · (length i32 · block)*
type snappyReader struct {
	r    *bufio.Reader
	left []byte // the unread bytes of the last block
	raw  []byte
	out  []byte
}

var snappyMagic = []byte("\x82SNAPPY\x00")

// maxBlock is the longest block that is accepted. The blocks of all writers have 32 KiB.
const maxBlock = 64 << 20

var errSnappy = errors.New("the snappy compression is damaged")

func newSnappy(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 256<<10)
	head := make([]byte, 16)
	if _, err := io.ReadFull(b, head); err != nil {
		return nil, &FormatError{0, torn(err)}
	}
	if !bytes.HasPrefix(head, snappyMagic) {
		return nil, &FormatError{0, fmt.Errorf("it begins with %q, unlike a snappy file", head[:8])}
	}
	return &snappyReader{r: b}, nil
}

func (s *snappyReader) Read(b []byte) (int, error) {
	for len(s.left) == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *snappyReader) next() error {
	var head [4]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return err // io.EOF between blocks
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxBlock {
		return errSnappy
	}
	s.raw = append(s.raw[:0], make([]byte, size)...)
	if _, err := io.ReadFull(s.r, s.raw); err != nil {
		return io.ErrUnexpectedEOF
	}
	var err error
	s.out, err = unsnap(s.out[:0], s.raw)
	s.left = s.out
	return err
}

// unsnap() decompresses one block: the length of the result, then literals and copies of earlier
// bytes.
func unsnap(out, b []byte) ([]byte, error) {
	want, n := binary.Uvarint(b)
	if n <= 0 || want > maxBlock {
		return out, errSnappy
	}
	for b = b[n:]; len(b) > 0; {
		tag := b[0]
		kind, length := tag&3, int(tag>>2)+1
		extra := [...]int{0, 1, 2, 4}[kind] // how many bytes hold the distance of a copy
		if kind == 0 && length > 60 {
			extra = length - 60
		}
		if len(b) < 1+extra {
			return out, errSnappy
		}
		v := 0
		for i := extra; i > 0; i-- {
			v = v<<8 | int(b[i])
		}
		b = b[1+extra:]
		if kind == 0 {
			if extra > 0 {
				length = v + 1
			}
			if length > len(b) || len(out)+length > int(want) {
				return out, errSnappy
			}
			out = append(out, b[:length]...)
			b = b[length:]
			continue
		}
		if kind == 1 {
			v |= int(tag>>5) << 8
			length = int(tag>>2)&7 + 4
		}
		if v == 0 || v > len(out) || len(out)+length > int(want) {
			return out, errSnappy
		}
		for range length { // the source may overlap the bytes that the copy appends
			out = append(out, out[len(out)-v])
		}
	}
	if len(out) != int(want) {
		return out, errSnappy
	}
	return out, nil
}
