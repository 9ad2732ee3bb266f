package window

import (
	"cmp"
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The data of a node are read as a whole window, or are refused. A window that was read is written with the
// same bytes.
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
		whole := lacks <= len(w.recent+w.newest) && lacks%recentSize == 0 // only remembered draws are cut off
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

// granted is one grant of a draw. The tests compare a window with a list of all its grants.
type granted struct {
	at   int64
	hash [8]byte
}

// A window answers draws as a list of all grants would, whatever the clock does. No grants are merged here,
// because the limits are small.
func TestDrawsAgainstAListOfGrants(t *testing.T) {
	repeated := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		limit, keep, last := 1+r.Int64N(100), 100+r.Int64N([]int64{1000, 100_000}[seed%2]), int64(0)
		lasts := max(keep, 60_000)
		var grants []granted
		data := ""
		used := func(now, per int64) (n int64) {
			for _, g := range grants {
				if g.at > now-per {
					n++
				}
			}
			return n
		}
		for now := int64(1_700_000_000_000); len(grants) < 700; {
			hash := [8]byte(jute.AppendLong(nil, r.Int64()))
			switch step := 2 * keep / limit; r.IntN(100) {
			case 0:
				now += r.Int64N(lasts)
			case 1:
				now -= r.Int64N(2 * step)
			case 2:
				if len(grants) > 0 {
					g := grants[len(grants)-1-r.IntN(min(len(grants), 3))]
					now, hash = g.at+[]int64{keep, lasts, keep - 1, lasts - 1}[r.IntN(4)], g.hash
				}
			default:
				now += r.Int64N(step + 1)
			}
			clock := max(now, last)
			ask := &Ask{Limit: limit, Per: keep, Hash: hash}
			if r.IntN(4) == 0 {
				ask.Limit = 1 + r.Int64N(limit)
			}
			if r.IntN(8) == 0 && len(grants) > 0 {
				ask.Hash = grants[len(grants)-1-r.IntN(min(len(grants), 510))].hash
			}
			n := used(clock, ask.Per)
			want := Drawn{Left: max(ask.Limit-n, 0)}
			for _, g := range grants[max(len(grants)-maxRecent, 0):] {
				if g.hash == ask.Hash && g.at > clock-lasts {
					want.OK, want.Told, want.At = true, true, g.at
					repeated++
					break
				}
			}
			free := int64(0)
			if n >= ask.Limit {
				free = grants[len(grants)-int(ask.Limit)].at + ask.Per - now
			}
			switch {
			case want.Told:
			case n < ask.Limit:
				want.OK, want.At, want.Left = true, clock, want.Left-1
			default:
				want.Wait = free
			}

			for per, limit := range map[int64]int64{0: ask.Limit, keep: 0, 1 + r.Int64N(keep): 0} {
				use := Use{Per: cmp.Or(per, keep)}
				use.Used = used(clock, use.Per)
				if limit > 0 {
					use.Wait = free
				}
				if got, code := UseOf(data, limit, per, now); data != "" && (got != use || code != jute.OK) {
					t.Fatalf("seed %d: use by %d in %d: %+v, %v, want %+v", seed, limit, per, got, code, use)
				}
			}
			w, code := Read(data, keep)
			must.Equal(t, code, jute.OK, "seed %d: a window is refused", seed)
			if last != 0 {
				counts := []bool{w.Counts(now), w.Counts(last + lasts - 1), w.Counts(last + lasts)}
				must.List(t, counts, []bool{now < last+lasts, true, false}, "seed %d: it still counts", seed)
			}
			must.Equal(t, w.Draw(ask, now), want, "seed %d: draw %d", seed, len(grants))
			if want.OK && !want.Told {
				grants, last = append(grants, granted{clock, ask.Hash}), clock
				data = string(w.Append(nil))
			}
			reply := want.Append(nil)
			must.Equal(t, must.Get(ReadDrawn(reply))(t), want)
			must.Fails(t, expect.Err(ReadDrawn(reply[:r.IntN(len(reply))])))
		}
		_, code := Read(data, keep+1)
		expect.Equal(t, code, jute.BadVersion, "a draw over a longer time")
	}
	expect.That(t, repeated > 100, "%d draws came again: the test says nothing of them", repeated)
}

// A window stays small, and can be read, however many draws it has granted within its time.
func TestWindowsStaySmall(t *testing.T) {
	w := New(1000)
	for i := range int64(3 * maxRecent) {
		ask := &Ask{Limit: 1 << 20, Per: 1000, Hash: [8]byte(jute.AppendLong(nil, i))}
		d := w.Draw(ask, 1_700_000_000_000+i/2)
		must.That(t, d.OK && !d.Told, "draw %d is not granted", i)
		var code jute.ErrCode
		w, code = Read(string(w.Append(nil)), 1000)
		must.Equal(t, code, jute.OK, "the window after %d draws", i)
	}
	expect.Equal(t, len(w.recent), maxRecent*recentSize, "bytes of draws that are remembered")
}
