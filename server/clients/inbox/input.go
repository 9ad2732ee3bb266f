// Package inbox holds the bytes that a client has sent and the server has not handled yet, and finds the
// frames in them.
package inbox

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/zlockd/zlockd/jute"
)

// Sizes of the buffer. It grows with the received bytes, never with the length that a client claims, and is
// freed after a large frame.
const (
	First    = 512      // first size of a buffer
	busySize = 16 << 10 // up to this size, a read that fills the buffer doubles it
	Keep     = 64 << 10 // size of the largest buffer that stays
)

// MaxWatchFrame bounds setWatches. Some clients send all their watches in one frame, however long it is.
const MaxWatchFrame = 64 << 20

// HeaderSize is the length of a request header: xid and operation.
const HeaderSize = 8

// Header splits a frame, which is at least HeaderSize long.
func Header(frame []byte) (xid int32, op jute.OpCode, body []byte) {
	return int32(binary.BigEndian.Uint32(frame)), jute.OpCode(binary.BigEndian.Uint32(frame[4:])),
		frame[HeaderSize:]
}

// ErrFrame means that no frame can begin with the received bytes.
var ErrFrame = errors.New("impossible frame length")

// ErrLong means that the next frame is a setWatches that is longer than other frames may be. The caller reads
// it piece by piece.
var ErrLong = errors.New("long setWatches")

// Input holds the bytes that a connection has received and not yet handled: buf[r:w]. Frames point into buf
// and are valid until they are handled or until the next fill.
type Input struct {
	buf  []byte
	r, w int
	full bool // the last read filled `buf`
	want int  // how many contiguous bytes the caller needs; 0: any number
}

// Len returns how many bytes Take and Skip have not taken yet.
func (in *Input) Len() int { return in.w - in.r }

// Bytes returns the bytes that Take and Skip have not taken yet.
func (in *Input) Bytes() []byte { return in.buf[in.r:in.w] }

// Peek returns the next frame without its length prefix. It returns nil if the frame is not complete. A frame
// longer than `limit` is an error: ErrLong if it is a setWatches, ErrFrame otherwise. Until the operation of
// such a frame has arrived, there is no error, and `wait` is true.
func (in *Input) Peek(limit int) (frame []byte, wait bool, err error) {
	in.want = 0
	b := in.Bytes()
	if len(b) < 4 {
		return nil, false, nil
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	if n < 0 || n > MaxWatchFrame {
		return nil, false, ErrFrame
	}
	if n > limit {
		if len(b) < 4+HeaderSize {
			return nil, true, nil
		}
		switch jute.OpCode(binary.BigEndian.Uint32(b[8:])) {
		case jute.OpSetWatches, jute.OpSetWatches2:
			return nil, false, ErrLong
		default:
			return nil, false, ErrFrame
		}
	}
	if len(b) < 4+n {
		in.want = 4 + n
		return nil, false, nil
	}
	return b[4 : 4+n : 4+n], false, nil
}

// Take drops the frame that Peek returned.
func (in *Input) Take(frame []byte) { in.r += 4 + len(frame) }

// Skip takes n bytes that are not a whole frame.
func (in *Input) Skip(n int) { in.r += n }

// Return undoes the taking of the last n bytes.
func (in *Input) Return(n int) { in.r -= n }

// Drop drops all received bytes.
func (in *Input) Drop() { in.r, in.w = 0, 0 }

// Want asks for n contiguous bytes.
func (in *Input) Want(n int) { in.want = n }

// Wanted returns how many contiguous bytes the caller needs. It returns 0 if any number is enough.
func (in *Input) Wanted() int { return in.want }

// Busy reports whether the last read filled a large buffer, so that more bytes probably wait in the socket.
func (in *Input) Busy() bool { return in.full && len(in.buf) >= busySize }

// Handled marks all taken frames as handled: no string or slice may point into them from now on.
func (in *Input) Handled() { jute.Overwrite(in.buf[:in.r]) }

// Size returns the length of the buffer for the next fill. The length doubles as bytes arrive, up to the
// length that the caller wants.
func (in *Input) Size() int {
	size := len(in.buf)
	switch {
	case in.Len() == 0:
		switch {
		case size == 0 || size > Keep:
			return First
		case in.full && size < busySize:
			return 2 * size
		}
	case in.w < size || in.Len() <= size/2 || in.r > 0 && in.want > 0 && in.want <= size:
	case in.want > Keep:
		return min(2*size, in.want)
	default:
		return 2 * size
	}
	return size
}

// Put appends bytes that were read elsewhere.
func (in *Input) Put(b []byte) {
	for len(b) > 0 {
		in.room()
		n := copy(in.buf[in.w:], b)
		in.w += n
		b = b[n:]
	}
}

// room makes room for at least one more byte.
func (in *Input) room() {
	if size := in.Size(); size != len(in.buf) {
		buf := make([]byte, size)
		in.w = copy(buf, in.Bytes())
		jute.Overwrite(in.buf)
		in.r, in.buf = 0, buf
	} else if in.Len() <= size/2 || in.w == size {
		was := in.w
		in.w = copy(in.buf, in.Bytes())
		jute.Overwrite(in.buf[in.w:was])
		in.r = 0
	}
}

// Fill reads once.
func (in *Input) Fill(r io.Reader) (n int, err error) {
	in.room()
	n, err = r.Read(in.buf[in.w:])
	in.w += n
	in.full = in.w == len(in.buf)
	if n > 0 {
		return n, nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return 0, err
}
