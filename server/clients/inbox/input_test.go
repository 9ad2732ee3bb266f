package inbox

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Peek recognizes a frame by its first bytes, and says how many bytes it needs. The cases are at each of its
// limits.
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
		size  int // size of the frame; -1: none is returned
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
		{"a negative length", frame(-1, jute.OpPing, 12), -1, false, ErrFrame, 0},
		{"the longest frame", frame(limit, jute.OpPing, 4+limit), limit, false, nil, 0},
		{"a longer one, its prefix", frame(limit+1, jute.OpSetWatches, 4), -1, true, nil, 0},
		{"a longer one, a part of its header", frame(limit+1, jute.OpSetWatches, 11), -1, true, nil, 0},
		{"a longer one", frame(limit+1, jute.OpPing, 12), -1, false, ErrFrame, 0},
		{"a longer setWatches", frame(limit+1, jute.OpSetWatches, 12), -1, false, ErrLong, 0},
		{"a longer setWatches2", frame(limit+1, jute.OpSetWatches2, 12), -1, false, ErrLong, 0},
		{"the longest setWatches", frame(MaxWatchFrame, jute.OpSetWatches, 12), -1, false, ErrLong, 0},
		{"one too long", frame(MaxWatchFrame+1, jute.OpSetWatches, 4), -1, false, ErrFrame, 0},
	} {
		in := Input{buf: append([]byte("xx"), x.bytes...), r: 2, w: 2 + len(x.bytes), want: 99}
		got, wait, err := in.Peek(limit)
		size := -1
		if got != nil {
			size = len(got)
			expect.Equal(t, cap(got), size, "%s: cap(got)", x.name)
			expect.That(t, bytes.Equal(got, x.bytes[4:4+size]),
				"%s: another frame: want bytes.Equal(got, x.bytes[4:4+size])", x.name)
		}
		expect.Equal(t, size, x.size, "%s: size", x.name)
		expect.Equal(t, wait, x.wait, "%s: wait", x.name)
		expect.Is(t, err, x.err, "%s", x.name)
		expect.Equal(t, in.want, x.want, "%s: want", x.name)
		if got != nil {
			in.Take(got)
			expect.Equal(t, in.Len(), len(x.bytes)-4-size, "%s: bytes behind the frame", x.name)
		}
	}
}

// The size of the buffer depends on how many bytes have arrived, and on how many the next frame needs.
func TestRoomForTheNextBytes(t *testing.T) {
	for _, x := range []struct {
		name             string
		size, r, w, want int
		full             bool
		next             int
	}{
		{"the first", 0, 0, 0, 0, false, First},
		{"all is taken", 512, 100, 100, 0, false, 512},
		{"all is taken, and reads fill it", 512, 512, 512, 0, true, 1024},
		{"all is taken of a busy one", busySize, 9, 9, 0, true, busySize},
		{"all is taken of one nearly as busy", busySize / 2, 9, 9, 0, true, busySize},
		{"all is taken, and it was large", Keep + 1, 9, 9, 0, false, First},
		{"all is taken, and it was just not too large", Keep, 9, 9, 0, false, Keep},
		{"room is left", 512, 0, 511, 0, false, 512},
		{"less than half is there", 512, 256, 512, 0, true, 512},
		{"a byte more than half is there", 512, 255, 512, 0, true, 1024},
		{"it is full", 512, 0, 512, 0, true, 1024},
		{"it is full, and all that is wanted fits", 512, 1, 512, 512, true, 512},
		{"it is full from its beginning", 512, 0, 512, 512, true, 1024},
		{"it is full, and a little more is wanted", 512, 1, 512, 513, true, 1024},
		{"it is full, and much is wanted", 512, 0, 512, 1 << 20, true, 1024},
		{"it is full, and not twice as much is wanted", Keep, 0, Keep, Keep + 10, true, Keep + 10},
		{"it is full, and what it keeps is wanted", Keep / 2, 0, Keep / 2, Keep, true, Keep},
	} {
		in := Input{buf: make([]byte, x.size), r: x.r, w: x.w, want: x.want, full: x.full}
		for i := range in.buf {
			in.buf[i] = byte(i)
		}
		there := bytes.Clone(in.Bytes())
		expect.Equal(t, in.Size(), x.next, "%s", x.name)
		in.room()
		if expect.Equal(t, len(in.buf), x.next, "%s: len(in.buf)", x.name) {
			if expect.That(t, in.w < len(in.buf),
				"%s: %d bytes of room, %d used: want in.w < len(in.buf)", x.name, len(in.buf), in.w) {
				expect.That(t, bytes.Equal(in.Bytes(), there),
					"%s: %d bytes of room, %d used: want bytes.Equal(in.Bytes(), there)",
					x.name, len(in.buf), in.w)
			}
		}
	}
}

// If a read returns bytes and an error, Fill returns the bytes without the error. If it returns no bytes,
// Fill returns an error.
func TestReadsWithErrors(t *testing.T) {
	var in Input
	n, err := in.Fill(iotest.DataErrReader(bytes.NewReader([]byte("abc"))))
	must.Equal(t, n, 3, "%d bytes, %v: n", n, err)
	must.OK(t, err, "%d bytes, %v", n, err)
	must.Equal(t, string(in.Bytes()), "abc", "%d bytes, %v: string(in.Bytes())", n, err)
	n, err = in.Fill(bytes.NewReader(nil))
	must.Equal(t, n, 0, "%d bytes, %v: n", n, err)
	must.Is(t, err, io.EOF, "%d bytes, %v", n, err)
	must.Equal(t, in.Len(), 3, "%d bytes, %v: in.Len()", n, err)
	must.That(t, !in.full, "%d bytes, %v: want !in.full", n, err)
	n, err = in.Fill(readerOfNothing{})
	must.Equal(t, n, 0)
	must.Is(t, err, io.ErrNoProgress)
	n, err = in.Fill(bytes.NewReader(make([]byte, 5000)))
	must.Equal(t, n, First-3, "%d bytes, %v: n", n, err)
	must.OK(t, err, "%d bytes, %v", n, err)
	must.That(t, in.full, "%d bytes, %v: want in.full", n, err)
}

type readerOfNothing struct{}

func (readerOfNothing) Read([]byte) (int, error) { return 0, nil }

// frames cuts everything that r holds into frames.
func frames(t *testing.T, r io.Reader, each func(in *Input, frame []byte)) error {
	t.Helper()
	var in Input
	for {
		for {
			frame, _, err := in.Peek(1 << 20)
			if err != nil {
				return err
			}
			if frame == nil {
				break
			}
			in.Take(frame)
			each(&in, frame)
		}
		if _, err := in.Fill(r); err != nil {
			return err
		}
	}
}

func TestInputCutsFramesHoweverTheyArrive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var want [][]byte
	var all []byte
	for i := range 300 {
		n := rng.IntN(2000)
		if i%50 == 0 {
			n = 200_000
		}
		body := bytes.Repeat([]byte{byte(i)}, n)
		want = append(want, body)
		all = append(binary.BigEndian.AppendUint32(all, uint32(n)), body...)
	}
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(all), "byte by byte": iotest.OneByteReader(bytes.NewReader(all)),
		"in halves": iotest.HalfReader(bytes.NewReader(all)),
	} {
		n := 0
		err := frames(t, r, func(in *Input, frame []byte) {
			must.List(t, frame, want[n], "%s: frame %d is wrong", name, n)
			n++
		})
		expect.Equal(t, n, len(want), "%s", name)
		expect.Equal(t, err, io.EOF, "%s: the error", name)
	}
}

func TestInputGrowsWithWhatArrivesAndShrinksAgain(t *testing.T) {
	var in Input
	claim := wire.AppendRequest(nil, 1, jute.OpSetWatches, nil)
	binary.BigEndian.PutUint32(claim, MaxWatchFrame)
	received := bytes.NewBuffer(append(claim, make([]byte, 50_000)...))
	for received.Len() > 0 {
		must.Get(in.Fill(received))(t)
		must.That(t, len(in.buf) <= max(First, 2*in.Len()),
			"buffer of %d for %d bytes received", len(in.buf), in.Len())
	}
	in = Input{}
	big := wire.AppendRequest(nil, 1, jute.OpSetData, make([]byte, 1_000_000))
	for r := bytes.NewReader(big); r.Len() > 0; {
		must.Get(in.Fill(r))(t)
	}
	frame, _ := must.Get2(in.Peek(1 << 20))(t)
	in.Take(frame)
	must.Get(in.Fill(bytes.NewReader([]byte{1})))(t)
	expect.That(t, len(in.buf) <= Keep, "%d bytes kept after a large frame", len(in.buf))
}

func TestInputOfABusyConnectionGrowsToABound(t *testing.T) {
	one := wire.AppendRequest(nil, 1, jute.OpGetData, wire.PathWatch("/a/path/of/some/length", false))
	err := frames(t, bytes.NewReader(bytes.Repeat(one, 100_000)), func(in *Input, _ []byte) {
		must.That(t, len(in.buf) <= 2*busySize, "buffer of %d", len(in.buf))
	})
	expect.Equal(t, err, io.EOF)
}
