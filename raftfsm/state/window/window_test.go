package window

import (
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The data of a node are a window, or are refused. A window is written as it was read.
func TestWindowsAreReadWhole(t *testing.T) {
	w := Window{keep: 60_000}
	r := rand.New(rand.NewPCG(1, 2))
	ask := func(limit, per int64) *Ask {
		return &Ask{Limit: limit, Per: per, Hash: [8]byte(jute.AppendLong(nil, r.Int64()))}
	}
	for at := int64(1_700_000_000_000); len(w.recent) < 100*recentSize; at += r.Int64N(300) {
		w.Draw(ask(1000, 60_000), at)
		must.That(t, w.read(string(w.Append(nil))), "a window is not read")
	}
	data := string(w.Append(nil))
	var again Window
	must.That(t, again.read(data), "a window is not read")
	expect.Equal(t, string(again.Append(nil)), data, "written again")
	for n := range len(data) {
		cut, bad := Window{}, []byte(data)
		lacks := len(data) - n
		whole := lacks <= len(w.recent+w.newest) && lacks%recentSize == 0 // of what the window remembers
		expect.Equal(t, cut.read(data[:n]), whole, "cut to %d bytes: read", n)
		bad[n] ^= byte(1 + r.IntN(255))
		if again = (Window{}); again.read(string(bad)) {
			expect.That(t, len(again.Append(nil)) <= len(bad)+1, "byte %d changed: it grows", n)
			again.Draw(ask(10, 1000), 1<<45)
		}
	}
	again = Window{}
	expect.That(t, !again.read(data+"x"), "bytes after it: read")
}
