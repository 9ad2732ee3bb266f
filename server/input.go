package server

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

// input is what a connection has received and not yet handled: buf[r:w].
// Frames point into buf and are valid until the next fill.
type input struct {
	buf  []byte
	r, w int
	full bool // the last read filled buf
}

func (in *input) len() int { return in.w - in.r }

// bytes returns what has been received and not yet taken.
func (in *input) bytes() []byte { return in.buf[in.r:in.w] }

// peek returns the next frame without its prefix, nil if it is not complete.
// limit bounds its length. A longer frame may still be a setWatches; wait tells
// that only its prefix has come, so that its kind cannot be known.
func (in *input) peek(limit int) (frame []byte, wait bool, err error) {
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
		default:
			return nil, false, errFrame
		}
	}
	if len(b) < 4+n {
		return nil, false, nil
	}
	return b[4 : 4+n : 4+n], false, nil
}

// take drops the frame that peek returned.
func (in *input) take(frame []byte) { in.r += 4 + len(frame) }

// room makes room for at least one more byte.
func (in *input) room() {
	size := len(in.buf)
	switch {
	case in.len() == 0:
		in.r, in.w = 0, 0
		switch {
		case size == 0 || size > inputKeep:
			in.buf = make([]byte, inputFirst)
		case in.full && size < inputBusy:
			in.buf = make([]byte, 2*size)
		}
	case in.r > 0 && in.len() <= size/2:
		in.w = copy(in.buf, in.bytes())
		in.r = 0
	case in.w == size:
		bigger := make([]byte, 2*size)
		in.w = copy(bigger, in.bytes())
		in.r = 0
		in.buf = bigger
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
