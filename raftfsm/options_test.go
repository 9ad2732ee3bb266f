package raftfsm

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server refuses options with which its cluster could not work, or with which a stranger could rewrite its
// log.
func TestOptionsThatAServerRefuses(t *testing.T) {
	t.Parallel()
	of := func(addr string) Options { return Options{ID: 1, Peers: map[uint32]string{1: addr, 2: "10.0.0.2:1"}} }
	with := func(o Options, change func(*Options)) Options { change(&o); return o }
	for _, c := range []struct {
		name string
		o    Options
		want string // a part of the error; empty: the server accepts the options
	}{
		{"alone", Options{}, ""},
		{"alone with an id", Options{ID: config.MaxID}, ""},
		{"id too high", Options{ID: config.ZeroID + 1}, "is not a number from 1 to"},
		{"id that is no peer's", with(of("127.0.0.1:1"), func(o *Options) { o.ID = 3 }), "--peers"},
		{"loopback", of("127.0.0.1:1"), ""},
		{"loopback of IPv6", of("[::1]:1"), ""},
		{"localhost", of("localhost:1"), ""},
		{"every address", of("0.0.0.0:1"), "has no TLS"},
		{"an address of a network", of("10.0.0.1:1"), "has no TLS"},
		{"a name", of("zk1.example.org:1"), "has no TLS"},
		{"no port", of("127.0.0.1"), "peer address"},
		{"listens elsewhere", with(of("127.0.0.1:1"), func(o *Options) { o.PeerListen = "10.0.0.1:1" }),
			"has no TLS"},
		{"listens on loopback", with(of("10.0.0.1:1"), func(o *Options) { o.PeerListen = "127.0.0.1:1" }), ""},
		{"insecure", with(of("10.0.0.1:1"), func(o *Options) { o.PeerInsecure = true }), ""},
		{"TLS", with(of("10.0.0.1:1"), func(o *Options) { o.PeerTLS = &peer.TLS{} }), ""},
		{"one observes", with(of("127.0.0.1:1"), func(o *Options) { o.Observers = []uint32{1} }), ""},
		{"all observe", with(of("127.0.0.1:1"), func(o *Options) { o.Observers = []uint32{2, 1, 2} }), "must vote"},
		{"wal", Options{LogStore: "wal"}, ""},
		{"bolt", Options{LogStore: "bolt"}, ""},
		{"another log store", Options{LogStore: "Bolt"}, "unknown"},
	} {
		_, err := c.o.withDefaults()
		expect.Equal(t, (c.o.Check() == nil), err == nil, "%s, without a start", c.name)
		if c.want == "" {
			expect.OK(t, err, "%s", c.name)
		} else if expect.Fails(t, err, "%s", c.name) {
			expect.Has(t, err.Error(), c.want, "%s", c.name)
		}
	}
}

// A setting that the operator leaves out gets its default. Each other setting keeps the operator's value.
func TestDefaultsOfAServer(t *testing.T) {
	t.Parallel()
	d := must.Get(Options{DataDir: "data"}.withDefaults())(t)
	type plain struct {
		id             uint32
		release, store string
		session, beat  time.Duration
		entries, bytes int64
		interval       time.Duration
		retain         int
		logs           uint64
		trailing, disk int64
		sweep          time.Duration
		listen         string
	}
	of := func(o Options) plain {
		return plain{o.ID, o.Release, o.LogStore, o.MinSessionTimeout, o.HeartbeatTimeout, o.SnapshotEntries,
			o.SnapshotBytes, o.SnapshotInterval, o.SnapshotRetain, o.TrailingLogs, o.TrailingBytes, o.DiskReserve,
			o.SweepInterval, o.PeerListen}
	}
	want := plain{1, "dev", "wal", 4 * time.Second, 30 * time.Millisecond, 100_000, 32 << 20, 0, 2, 10_240,
		64 << 20,
		512 << 20, time.Minute, ""}
	expect.Equal(t, of(d), want, "alone")
	inMemory := want
	inMemory.bytes = 4 << 20
	expect.Equal(t, of(must.Get(Options{}.withDefaults())(t)), inMemory, "alone, in memory")
	expect.That(t, d.Logger != nil, "the default has no Logger")
	expect.That(t, d.Rand != nil, "the default has no Rand")
	expect.That(t, d.Fatal != nil, "the default has no Fatal")
	expect.That(t, d.Now != nil, "the default has no Now")
	expect.That(t, d.FreeBytes != nil, "the default has no FreeBytes")
	expect.That(t, d.Listen != nil, "the default has no Listen")
	expect.That(t, d.Dial != nil, "the default has no Dial")
	expect.That(t, time.Since(d.Now()).Abs() < time.Hour, "the time is %v", d.Now())
	free, err := d.FreeBytes(t.TempDir())
	expect.OK(t, err)
	expect.That(t, free > 0, "%d bytes are free", free)

	peers := map[uint32]string{3: "127.0.0.1:3", 4: "127.0.0.1:4", 5: "127.0.0.1:5"}
	d = must.Get(Options{ID: 3, Peers: peers, Observers: []uint32{5, 3, 5}}.withDefaults())(t)
	want.id, want.beat, want.listen = 3, time.Second, "127.0.0.1:3"
	expect.Equal(t, of(d), want, "among others")
	expect.List(t, d.Observers, []uint32{3, 5})
	expect.Equal(t, d.list().FirstVoter(), 4)
	expect.Equal(t, d.list().Self(), "127.0.0.1:3")

	said := Options{ID: 4, Peers: peers, Release: "9.9", LogStore: "bolt", MinSessionTimeout: 9 * time.Second,
		HeartbeatTimeout: 7 * time.Second, SnapshotEntries: 5, SnapshotBytes: 6, SnapshotInterval: 7,
		SnapshotRetain: 8,
		TrailingLogs:   9, TrailingBytes: 10, DiskReserve: -1, SweepInterval: 11, PeerListen: "[::1]:7"}
	expect.Equal(t, of(must.Get(said.withDefaults())(t)), of(said), "said by the operator")
	alone := Options{HeartbeatTimeout: 2 * time.Second}
	expect.Equal(t, must.Get(alone.withDefaults())(t).HeartbeatTimeout, 2*time.Second,
		"said by the operator, alone")
	_, err = Options{Peers: peers, LogStore: "paper", Observers: []uint32{3, 4, 5}}.withDefaults()
	must.Fails(t, err)
	for _, part := range []string{"server id 1 is not among the peers", "must vote", "is unknown"} {
		expect.Has(t, err.Error(), part) // one error names all three faults
	}
}
