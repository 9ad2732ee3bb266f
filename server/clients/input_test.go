package clients

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

// frames cuts everything that r holds into frames.
func frames(t *testing.T, r io.Reader, each func(in *input, frame []byte)) error {
	t.Helper()
	var in input
	for {
		for {
			frame, _, err := in.peek(1 << 20)
			if err != nil {
				return err
			}
			if frame == nil {
				break
			}
			in.take(frame)
			each(&in, frame)
		}
		if _, err := in.fill(r); err != nil {
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
		err := frames(t, r, func(in *input, frame []byte) {
			must.List(t, frame, want[n], "%s: frame %d is wrong", name, n)
			n++
		})
		expect.That(t, n == len(want) && err == io.EOF, "%s: %d frames, %v", name, n, err)
	}
}

func TestInputGrowsWithWhatArrivesAndShrinksAgain(t *testing.T) {
	var in input
	claim := wire.AppendRequest(nil, 1, jute.OpSetWatches, nil)
	binary.BigEndian.PutUint32(claim, maxWatchFrame)
	received := bytes.NewBuffer(append(claim, make([]byte, 50_000)...))
	for received.Len() > 0 {
		_, err := in.fill(received)
		must.OK(t, err)
		if len(in.buf) > max(inputFirst, 2*in.len()) {
			t.Fatalf("buffer of %d for %d bytes received", len(in.buf), in.len())
		}
	}
	in = input{}
	big := wire.AppendRequest(nil, 1, jute.OpSetData, make([]byte, 1_000_000))
	for r := bytes.NewReader(big); r.Len() > 0; {
		_, err := in.fill(r)
		must.OK(t, err)
	}
	frame, _, err := in.peek(1 << 20)
	must.OK(t, err)
	in.take(frame)
	_, err = in.fill(bytes.NewReader([]byte{1}))
	must.OK(t, err)
	expect.That(t, len(in.buf) <= inputKeep, "%d bytes kept after a large frame", len(in.buf))
}

func TestInputOfABusyConnectionGrowsToABound(t *testing.T) {
	one := wire.AppendRequest(nil, 1, jute.OpGetData, wire.PathWatch("/a/path/of/some/length", false))
	err := frames(t, bytes.NewReader(bytes.Repeat(one, 100_000)), func(in *input, _ []byte) {
		must.That(t, len(in.buf) <= 2*inputBusy, "buffer of %d", len(in.buf))
	})
	expect.Equal(t, err, io.EOF)
}

func TestPendingRequestsAreAQueue(t *testing.T) {
	var o outbox
	rng := rand.New(rand.NewPCG(3, 4))
	var in, out int32
	for range 20_000 {
		if rng.IntN(100) < 52 {
			o.push(pending{xid: in})
			in++
		} else if o.pendingLen() > 0 {
			if p := o.front(); p.xid != out {
				t.Fatalf("request %d, want %d", p.xid, out)
			}
			o.pop()
			out++
		}
		if o.pendingLen() != int(in-out) {
			t.Fatalf("%d pending, want %d", o.pendingLen(), in-out)
		}
	}
	if cap(o.pend) > 8*int(in-out)+256 {
		t.Errorf("room for %d, %d pending", cap(o.pend), in-out)
	}
}
