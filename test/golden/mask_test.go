package golden

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Each byte of a recorded frame counts in a replay, unless it is marked as volatile.
func TestEveryFixedByteCounts(t *testing.T) {
	frames := 0
	for _, profile := range []string{"default", "extended", "ensemble", "readonly"} {
		vectors := must.Get(Load(profile))(t)
		for _, v := range vectors {
			for i := range v.Steps {
				s := &v.Steps[i]
				if s.Do != "recv" || len(s.HexCompact) > 0 {
					continue
				}
				frames++
				want := s.bytes()
				var seen int64
				must.OK(t, (symbols{}).match(s, asked{}, slices.Clone(want), false, &seen),
					"%s step %d does not match itself", v.ID(), i)
				for off := range want {
					if isVolatile(s, off) || isEventZxid(want, off) {
						continue
					}
					got := slices.Clone(want)
					got[off] ^= 0x10
					seen = 0
					expect.That(t, (symbols{}).match(s, asked{}, got, false, &seen) != nil,
						"%s step %d: byte %d does not count", v.ID(), i, off)
				}
			}
		}
	}
	expect.That(t, frames >= 1400, "only %d frames", frames)
}

func isVolatile(s *Step, off int) bool {
	return slices.ContainsFunc(s.Volatile, func(r Range) bool { return off >= r.Off && off < r.Off+r.Len })
}

func isEventZxid(frame []byte, off int) bool {
	return off >= 8 && off < 16 && int32(binary.BigEndian.Uint32(frame[4:])) == jute.XidEvent
}

func TestSymbolsKeepTheirValueAndOrder(t *testing.T) {
	long := func(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }
	tests := []struct {
		name string
		sym  string
		val  []byte
		ok   bool
	}{
		{"same value", "zxid#2", long(20), true},
		{"another value", "zxid#2", long(21), false},
		{"later and larger", "zxid#3", long(21), true},
		{"later and equal", "zxid#3", long(20), false},
		{"earlier and smaller", "zxid#1", long(19), true},
		{"earlier and larger", "zxid#1", long(22), false},
		{"time may stand still", "time#2", long(5), true},
		{"time goes back", "time#2", long(4), false},
		{"a session's id twice", "sessionId#2", long(7), false},
		{"another session", "sessionId#2", long(8), true},
	}
	for _, tt := range tests {
		y := symbols{"zxid#2": long(20), "time#1": long(5), "sessionId#1": long(7)}
		expect.Equal(t, y.define(Range{Sym: tt.sym}, tt.val) == nil, tt.ok, "%s", tt.name)
	}
}

func TestHeaderZxidMustNotGoBack(t *testing.T) {
	frame := jute.AppendReplyHeader([]byte{0, 0, 0, 16}, 1, 9, jute.OK)
	hex := "0000001000000001000000000000000300000000"
	s := &Step{Do: "recv", Hex: &hex, Volatile: []Range{
		{Off: 8, Len: 8, Kind: "zxid", Rule: "ge", Sym: "zxid#1"}}}
	seen := int64(9)
	expect.OK(t, (symbols{}).match(s, asked{}, slices.Clone(frame), false, &seen))
	seen = 10
	expect.That(t, (symbols{}).match(s, asked{}, frame, false, &seen) != nil,
		"a header zxid below one seen before was accepted")
}

func TestOrderOfNamesDoesNotCount(t *testing.T) {
	reply := func(names ...string) []byte {
		b, at := jute.BeginFrame(nil)
		b = jute.AppendReplyHeader(b, 1, 0, jute.OK)
		b = jute.AppendStrings(b, names)
		b = jute.AppendStat(b, &jute.Stat{NumChildren: 3})
		jute.EndFrame(b, at)
		return b
	}
	a, b, c := reply("x", "yy", "zzz"), reply("zzz", "x", "yy"), reply("zzz", "x", "xy")
	q := asked{op: jute.OpGetChildren2, paths: []string{"/p"}}
	for _, f := range [][]byte{a, b, c} {
		normalize(f, q, true)
	}
	expect.That(t, slices.Equal(a, b) && !slices.Equal(a, c), "children are not compared as a set")
}

func TestDeviationsNameRecordedSteps(t *testing.T) {
	steps := map[string]int{}
	for _, profile := range []string{"default", "extended", "ensemble", "readonly"} {
		vectors := must.Get(Load(profile))(t)
		for _, v := range vectors {
			steps[v.ID()] = len(v.Steps)
		}
	}
	expect.Equal(t, len(steps), 201, "vectors")
	for _, d := range Deviations {
		expect.That(t, d.Step+max(d.Steps, 1) <= steps[d.Vector], "%s has no step %d", d.Vector, d.Step)
		expect.That(t, d.Reason != "" && len(d.Want) != 0,
			"%s step %d: the deviation has no reason or no steps", d.Vector, d.Step)
	}
}
