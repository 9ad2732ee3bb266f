package options

import (
	"log/slog"
	"testing"
	"time"

	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/machine"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An option that the operator does not set has its default. An option that the operator sets stays.
func TestDefaultsOfOptions(t *testing.T) {
	quarter := int(machine.UsableMemory() / 4)
	if quarter == 0 {
		quarter = 1 << 30
	}
	o := must.Get(Options{}.WithDefaults())(t)
	for name, x := range map[string]struct{ got, want int }{
		"ID":                {int(o.ID), 1},
		"shortest session":  {int(o.MinSessionTimeout), int(4 * time.Second)},
		"longest session":   {int(o.MaxSessionTimeout), int(40 * time.Second)},
		"handshake":         {int(o.HandshakeTimeout), int(10 * time.Second)},
		"frame":             {o.MaxFrame, DefaultMaxFrame},
		"pending":           {o.MaxPending, 1000},
		"bytes that wait":   {o.MaxOutboxBytes, 16 << 20},
		"frames that wait":  {o.MaxOutboxFrames, 50_000},
		"watches":           {o.MaxWatchesPerConn, 500_000},
		"all watches":       {o.MaxWatches, 10_000_000},
		"bytes of watches":  {o.MaxWatchBytesPerConn, 48 << 20},
		"bytes of all":      {o.MaxWatchBytes, max(128<<20, quarter)},
		"buffers":           {o.MaxBuffers, max(2*DefaultMaxFrame, 16<<20, min(72<<20, quarter))},
		"from an address":   {o.MaxConnsPerAddr, DefaultMaxConnsPerAddr},
		"connections":       {o.MaxConns, roomForConns(machine.MaxOpenFiles(), machine.UsableMemory())},
		"a clock":           {int(time.Since(o.Now()) / time.Hour), 0},
		"buffers of frames": {must.Get(Options{MaxFrame: 60 << 20}.WithDefaults())(t).MaxBuffers, 120 << 20},
		"no bound":          {must.Get(Options{MaxConns: -1}.WithDefaults())(t).MaxConns, -1},
		"a small bound":     {must.Get(Options{MaxConns: 3}.WithDefaults())(t).MaxConns, 3},
		"a trusted address": {must.Get(Options{MaxConnsPerAddr: -1}.WithDefaults())(t).MaxConnsPerAddr, -1},
	} {
		expect.Equal(t, x.got, x.want, "%s", name)
	}
	then := time.Unix(7, 0)
	set := Options{ID: 2, MinSessionTimeout: 3 * time.Second, MaxSessionTimeout: 5 * time.Second, MaxFrame: 4096,
		MaxConnsPerAddr: 6, MaxConns: 7, MaxPending: 8, MaxOutboxBytes: 9, MaxOutboxFrames: 10, MaxWatchesPerConn: 11,
		MaxWatches: 12, MaxWatchBytesPerConn: 13, MaxWatchBytes: 14, MaxBuffers: 15, HandshakeTimeout: 16,
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return then }}
	o = must.Get(set.WithDefaults())(t)
	expect.Equal(t, o.Now(), then, "clock, random numbers or log: o.Now()")
	if expect.That(t, o.Rand != nil, "clock, random numbers or log: want o.Rand != nil") {
		expect.Equal(t, o.Logger, set.Logger, "clock, random numbers or log: o.Logger")
	}
	got := []int{int(o.ID), int(o.MinSessionTimeout / time.Second), int(o.MaxSessionTimeout / time.Second), o.MaxFrame,
		o.MaxConnsPerAddr, o.MaxConns, o.MaxPending, o.MaxOutboxBytes, o.MaxOutboxFrames, o.MaxWatchesPerConn,
		o.MaxWatches, o.MaxWatchBytesPerConn, o.MaxWatchBytes, o.MaxBuffers, int(o.HandshakeTimeout)}
	expect.List(t, got, []int{2, 3, 5, 4096, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
}

func TestSessionTimeoutsAreClamped(t *testing.T) {
	o := Options{MinSessionTimeout: 4 * time.Second, MaxSessionTimeout: 40 * time.Second}
	for asked, want := range map[int32]int32{0: 4000, -1: 4000, -1 << 31: 4000, 3999: 4000, 4000: 4000, 4001: 4001,
		39_999: 39_999, 40_000: 40_000, 40_001: 40_000, 1<<31 - 1: 40_000} {
		expect.Equal(t, o.Negotiate(asked), want, "%d ms", asked)
	}
	for frame, ok := range map[int]bool{127: false, 128: true, inbox.MaxWatchFrame: true,
		inbox.MaxWatchFrame + 1: false} {
		_, err := Options{MaxFrame: frame}.WithDefaults()
		expect.Equal(t, err == nil, ok, "frames of %d bytes: %v", frame, err)
	}
	for least, ok := range map[time.Duration]bool{time.Millisecond: true, time.Millisecond - 1: false} {
		_, err := Options{MinSessionTimeout: least}.WithDefaults()
		expect.Equal(t, err == nil, ok, "sessions of %v: %v", least, err)
	}
}

func TestBoundsOfSessionsByDefault(t *testing.T) {
	for name, x := range map[string]struct{ all, of, want int }{
		"of many":  {10_000_000, 0, 50_000},
		"of some":  {80_000, 0, 40_000},
		"of few":   {3, 0, 1},
		"of any":   {-1, 0, 50_000},
		"as given": {80_000, 7, 7},
		"none":     {80_000, -1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			o := must.Get(Options{MaxSessions: x.all, MaxAddrSessions: x.of}.WithDefaults())(t)
			expect.Equal(t, o.MaxAddrSessions, x.want, "sessions of an address")
		})
	}
}

func TestConnectionsAreAsManyAsThereIsRoomFor(t *testing.T) {
	for _, c := range []struct {
		descriptors int64
		memory      uint64
		want        int
	}{{0, 0, 1 << 30}, {1024, 0, 816}, {1 << 20, 1 << 30, 8192}, {100, 1 << 40, 80}} {
		expect.Equal(t, roomForConns(c.descriptors, c.memory), c.want,
			"%d descriptors, %d bytes", c.descriptors, c.memory)
	}
	o := must.Get(Options{}.WithDefaults())(t)
	most := roomForConns(machine.MaxOpenFiles(), machine.UsableMemory())
	expect.Equal(t, o.MaxConns, most, "by default, there is room for")
}
