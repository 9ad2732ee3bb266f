package clients

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Appended replies are written in order and once, a long reply in its gap.
func TestOutboxKeepsItsOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var o outbox
		var want, behind, got []byte
		frames, wrote := 0, 0
		frame := func() []byte { return bytes.Repeat([]byte{byte(r.IntN(256))}, 1+r.IntN(1<<r.IntN(18))) }
		take := func() {
			b, n := o.take()
			got, wrote = append(got, b...), wrote+n
			o.give(b)
		}
		for range 300 {
			switch k := r.IntN(10); {
			case k == 0 && !o.gap:
				o.openGap()
			case k == 0:
				reply := frame()
				o.fill(reply)
				want, behind, frames = append(append(want, reply...), behind...), nil, frames+1
			case k < 4 && !o.empty():
				take()
			default:
				f := frame()
				o.append(f)
				if frames++; o.gap {
					behind = append(behind, f...)
				} else {
					want = append(want, f...)
				}
			}
			if n := len(want) + len(behind) - len(got); o.size() != n || o.empty() != (len(want) == len(got)) {
				t.Fatalf("seed %d: %d bytes wait, not %d; empty: %v", seed, n, o.size(), o.empty())
			}
		}
		if r.IntN(2) == 0 && o.gap { // the connection ends before the reply is there
			o.end(endGone)
			o.fill(frame())
			behind = nil
		}
		for !o.empty() {
			take()
		}
		if !bytes.Equal(got, want) || o.state == outboxOpen && behind == nil && wrote != frames {
			t.Fatalf("seed %d: %d bytes in %d frames were written, want %d in %d", seed, len(got), wrote, len(want), frames)
		}
	}
}

// An outbox that many events fill takes little more memory than they do: no buffer grows by copying.
func TestLongOutboxIsNotCopied(t *testing.T) {
	var o outbox
	frame := make([]byte, 900)
	for o.size() < 8<<20 {
		o.append(frame)
	}
	room := cap(o.buf)
	for _, b := range o.full {
		room += cap(b)
	}
	expect.That(t, room <= o.size()+o.size()/4, "%d bytes of buffers for %d", room, o.size())
	first := &o.full[0][0]
	o.append(make([]byte, 1<<20))
	expect.Equal(t, first, &o.full[0][0], "the first buffer has moved")
}

// However many outboxes an event has filled, a reply waits for one of them, and they for one reply each.
func TestRepliesDoNotWaitForAHerd(t *testing.T) {
	var f flushers
	f.cond.L = &f.mu
	watchers, others := make([]conn, 10*herd), make([]conn, 5*herd)
	for i := range watchers {
		f.touch(&watchers[i])
	}
	f.kick()
	for i := range others {
		f.touch(&others[i])
		f.kick()
		one, two := f.next(), f.next()
		if one == &watchers[i] {
			one, two = two, one
		}
		must.That(t, one == &others[i] && two == &watchers[i], "reply %d", i)
	}
	for i := len(others); i < len(watchers); i++ {
		must.That(t, f.next() == &watchers[i], "watcher %d", i)
	}
	must.Equal(t, f.waiting(), 0, "left")
}
