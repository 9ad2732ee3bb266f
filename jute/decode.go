package jute

import (
	"encoding/binary"
	"errors"
	"unsafe"
)

// Errors of a Decoder. Both mean that the input is not the expected record. A server answers such a request
// with MARSHALLINGERROR.
var (
	ErrShort  = errors.New("jute: record is cut short")
	ErrLength = errors.New("jute: impossible length")
)

// Decoder reads the fields of a record in order. After the first error every read returns a zero value, and
// Err returns that error. The zero Decoder reads an empty input.
type Decoder struct {
	buf []byte
	off int
	err error
}

// NewDecoder returns a Decoder over buf, which it neither copies nor changes.
func NewDecoder(buf []byte) Decoder { return Decoder{buf: buf} }

// Err returns the first error of a read. It returns nil if all reads so far succeeded.
func (d *Decoder) Err() error { return d.err }

// Rest returns the bytes not yet read.
func (d *Decoder) Rest() []byte { return d.buf[d.off:] }

// Offset returns how many bytes have been read.
func (d *Decoder) Offset() int { return d.off }

func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// take() returns the next n bytes. It returns nil if fewer are left.
func (d *Decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.buf)-d.off {
		d.err = ErrShort
		return nil
	}
	b := d.buf[d.off : d.off+n : d.off+n]
	d.off += n
	return b
}

// Bool reads a bool. Every byte except 0 means true.
func (d *Decoder) Bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	b := d.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// Int reads a 32-bit integer.
func (d *Decoder) Int() int32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

// Long reads a 64-bit integer.
func (d *Decoder) Long() int64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

// Buffer reads a byte buffer. For a null buffer it returns nil, and for an empty buffer an empty slice,
// because a node's data may be either. The result points into the input.
func (d *Decoder) Buffer() []byte {
	n := d.Int()
	switch {
	case d.err != nil || n == -1:
		return nil
	case n < -1:
		d.fail(ErrLength)
		return nil
	case n == 0:
		return d.buf[d.off:d.off:d.off]
	}
	return d.take(int(n))
}

// String reads a string. `ok` is false for a null string, which differs from an empty string. The result
// shares the input's memory, so it must be cloned before it outlives the input.
func (d *Decoder) String() (s string, ok bool) {
	b := d.Buffer()
	if b == nil {
		return "", false
	}
	return unsafe.String(unsafe.SliceData(b), len(b)), true
}

// Count reads the length of a vector whose elements take at least `elem` bytes each. It returns -1 for a null
// vector. A count below -1 means an empty vector, as in ZooKeeper. A count for which too few bytes remain is
// an error.
func (d *Decoder) Count(elem int) int {
	n := d.Int()
	switch {
	case d.err != nil:
		return 0
	case n == -1:
		return -1
	case n < -1:
		return 0
	case int(n) > (len(d.buf)-d.off)/elem:
		d.fail(ErrShort)
		return 0
	}
	return int(n)
}

// Strings reads a vector of strings. A null element reads as "". The second
// result is false for a null vector.
func (d *Decoder) Strings() (list []string, ok bool) {
	n := d.Count(4)
	if n < 0 || d.err != nil {
		return nil, d.err != nil
	}
	list = make([]string, 0, min(n, 1024))
	for range n {
		s, _ := d.String()
		if d.err != nil {
			return nil, true
		}
		list = append(list, s)
	}
	return list, true
}
