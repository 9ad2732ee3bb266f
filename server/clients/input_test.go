package clients

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// What the beginning of a frame says, up to each bound.
func TestBeginningsOfFrames(t *testing.T) {
	const limit = 1000
	frame := func(length int, op jute.OpCode, have int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(length))
		b = binary.BigEndian.AppendUint32(b, 7)
		b = binary.BigEndian.AppendUint32(b, uint32(op))
		return append(b, make([]byte, 5000)...)[:have]
	}
	for _, x := range []struct {
		name  string
		bytes []byte
		size  int // of the frame, -1: none
		wait  bool
		err   error
		want  int
	}{
		{"nothing", nil, -1, false, nil, 0},
		{"a part of the prefix", frame(10, jute.OpPing, 3), -1, false, nil, 0},
		{"the prefix", frame(10, jute.OpPing, 4), -1, false, nil, 14},
		{"all but a byte", frame(10, jute.OpPing, 13), -1, false, nil, 14},
		{"a frame", frame(10, jute.OpPing, 14), 10, false, nil, 0},
		{"more than a frame", frame(10, jute.OpPing, 20), 10, false, nil, 0},
		{"an empty frame", frame(0, jute.OpPing, 4), 0, false, nil, 0},
		{"a negative length", frame(-1, jute.OpPing, 12), -1, false, errFrame, 0},
		{"the longest frame", frame(limit, jute.OpPing, 4+limit), limit, false, nil, 0},
		{"a longer one, its prefix", frame(limit+1, jute.OpSetWatches, 4), -1, true, nil, 0},
		{"a longer one, a part of its header", frame(limit+1, jute.OpSetWatches, 11), -1, true, nil, 0},
		{"a longer one", frame(limit+1, jute.OpPing, 12), -1, false, errFrame, 0},
		{"a longer setWatches", frame(limit+1, jute.OpSetWatches, 12), -1, false, errLong, 0},
		{"a longer setWatches2", frame(limit+1, jute.OpSetWatches2, 12), -1, false, errLong, 0},
		{"the longest setWatches", frame(maxWatchFrame, jute.OpSetWatches, 12), -1, false, errLong, 0},
		{"one too long", frame(maxWatchFrame+1, jute.OpSetWatches, 4), -1, false, errFrame, 0},
	} {
		in := input{buf: append([]byte("xx"), x.bytes...), r: 2, w: 2 + len(x.bytes), want: 99}
		got, wait, err := in.peek(limit)
		size := -1
		if got != nil {
			size = len(got)
			expect.That(t, cap(got) == size && bytes.Equal(got, x.bytes[4:4+size]), "%s: another frame", x.name)
		}
		expect.That(t, size == x.size && wait == x.wait && errors.Is(err, x.err) && in.want == x.want,
			"%s: a frame of %d bytes, wait %v, %v, %d wanted", x.name, size, wait, err, in.want)
		if got != nil {
			in.take(got)
			expect.Equal(t, in.len(), len(x.bytes)-4-size, "%s: bytes behind the frame", x.name)
		}
	}
}

// How long the buffer becomes for the next bytes.
func TestRoomForTheNextBytes(t *testing.T) {
	for _, x := range []struct {
		name             string
		size, r, w, want int
		full             bool
		next             int
	}{
		{"the first", 0, 0, 0, 0, false, inputFirst},
		{"all is taken", 512, 100, 100, 0, false, 512},
		{"all is taken, and reads fill it", 512, 512, 512, 0, true, 1024},
		{"all is taken of a busy one", inputBusy, 9, 9, 0, true, inputBusy},
		{"all is taken of one nearly as busy", inputBusy / 2, 9, 9, 0, true, inputBusy},
		{"all is taken, and it was large", inputKeep + 1, 9, 9, 0, false, inputFirst},
		{"all is taken, and it was just not too large", inputKeep, 9, 9, 0, false, inputKeep},
		{"room is left", 512, 0, 511, 0, false, 512},
		{"less than half is there", 512, 256, 512, 0, true, 512},
		{"a byte more than half is there", 512, 255, 512, 0, true, 1024},
		{"it is full", 512, 0, 512, 0, true, 1024},
		{"it is full, and all that is wanted fits", 512, 1, 512, 512, true, 512},
		{"it is full from its beginning", 512, 0, 512, 512, true, 1024},
		{"it is full, and a little more is wanted", 512, 1, 512, 513, true, 1024},
		{"it is full, and much is wanted", 512, 0, 512, 1 << 20, true, 1024},
		{"it is full, and not twice as much is wanted", inputKeep, 0, inputKeep, inputKeep + 10, true, inputKeep + 10},
		{"it is full, and what it keeps is wanted", inputKeep / 2, 0, inputKeep / 2, inputKeep, true, inputKeep},
	} {
		in := input{buf: make([]byte, x.size), r: x.r, w: x.w, want: x.want, full: x.full}
		for i := range in.buf {
			in.buf[i] = byte(i)
		}
		there := bytes.Clone(in.bytes())
		expect.Equal(t, in.size(), x.next, "%s", x.name)
		in.room()
		expect.That(t, len(in.buf) == x.next && in.w < len(in.buf) && bytes.Equal(in.bytes(), there),
			"%s: %d bytes of room, %d used", x.name, len(in.buf), in.w)
	}
}

// A read that brings bytes and an error brings the bytes, and one that brings nothing is an error.
func TestReadsWithErrors(t *testing.T) {
	var in input
	n, err := in.fill(iotest.DataErrReader(bytes.NewReader([]byte("abc"))))
	must.That(t, n == 3 && err == nil && string(in.bytes()) == "abc", "%d bytes, %v", n, err)
	n, err = in.fill(bytes.NewReader(nil))
	must.That(t, n == 0 && errors.Is(err, io.EOF) && in.len() == 3 && !in.full, "%d bytes, %v", n, err)
	n, err = in.fill(readerOfNothing{})
	must.That(t, n == 0 && errors.Is(err, io.ErrNoProgress), "%d bytes, %v", n, err)
	n, err = in.fill(bytes.NewReader(make([]byte, 5000)))
	must.That(t, n == inputFirst-3 && err == nil && in.full, "%d bytes, %v", n, err)
}

type readerOfNothing struct{}

func (readerOfNothing) Read([]byte) (int, error) { return 0, nil }
