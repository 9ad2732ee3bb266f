package clients

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/zlockd/zlockd/jute"
)

// Sizes of the read buffer. It grows with the bytes received, never with the
// length a client claims, and is given back after a large frame.
const (
	inputFirst = 512
	inputBusy  = 16 << 10 // of a connection whose reads fill its buffer
	inputKeep  = 64 << 10
)

// maxWatchFrame bounds setWatches, which some clients send in one piece
// however long it is.
const maxWatchFrame = 64 << 20

// headerSize is the length of a request header: xid and operation.
const headerSize = 8

// errFrame means that no frame can begin with what was received.
var errFrame = errors.New("impossible frame length")

// errLong means that a setWatches begins that is longer than other frames may
// be. It is read piece by piece.
var errLong = errors.New("long setWatches")

// input is what a connection has received and not yet handled: buf[r:w].
// Frames point into buf and are valid until handled or the next fill.
type input struct {
	buf  []byte
	r, w int
	full bool // the last read filled buf
	want int  // bytes that are wanted in one piece; 0: any
}

func (in *input) len() int { return in.w - in.r }

// bytes returns the bytes received and not yet taken.
func (in *input) bytes() []byte { return in.buf[in.r:in.w] }

// peek returns the next frame without its prefix, nil if it is not complete.
// limit bounds its length. A longer frame may still be a setWatches; wait tells
// that only its prefix has come, so that its operation is not known.
func (in *input) peek(limit int) (frame []byte, wait bool, err error) {
	in.want = 0
	b := in.bytes()
	if len(b) < 4 {
		return nil, false, nil
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	if n < 0 || n > maxWatchFrame {
		return nil, false, errFrame
	}
	if n > limit {
		if len(b) < 4+headerSize {
			return nil, true, nil
		}
		switch jute.OpCode(binary.BigEndian.Uint32(b[8:])) {
		case jute.OpSetWatches, jute.OpSetWatches2:
			return nil, false, errLong
		default:
			return nil, false, errFrame
		}
	}
	if len(b) < 4+n {
		in.want = 4 + n
		return nil, false, nil
	}
	return b[4 : 4+n : 4+n], false, nil
}

// take drops the frame that peek returned.
func (in *input) take(frame []byte) { in.r += 4 + len(frame) }

// handled says that the frames taken so far are handled: no string or slice may point into them any more.
func (in *input) handled() { jute.Overwrite(in.buf[:in.r]) }

// size returns how long the buffer must be for the next fill. It doubles as
// bytes arrive, up to what is wanted in one piece.
func (in *input) size() int {
	size := len(in.buf)
	switch {
	case in.len() == 0:
		switch {
		case size == 0 || size > inputKeep:
			return inputFirst
		case in.full && size < inputBusy:
			return 2 * size
		}
	case in.w < size || in.len() <= size/2 || in.r > 0 && in.want > 0 && in.want <= size:
	case in.want > inputKeep:
		return min(2*size, in.want)
	default:
		return 2 * size
	}
	return size
}

// room makes room for at least one more byte.
func (in *input) room() {
	if size := in.size(); size != len(in.buf) {
		buf := make([]byte, size)
		in.w = copy(buf, in.bytes())
		jute.Overwrite(in.buf)
		in.r, in.buf = 0, buf
	} else if in.len() <= size/2 || in.w == size {
		was := in.w
		in.w = copy(in.buf, in.bytes())
		jute.Overwrite(in.buf[in.w:was])
		in.r = 0
	}
}

// fill reads once.
func (in *input) fill(r io.Reader) (n int, err error) {
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
