package raftfsm

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
)

// A server refuses options with which its cluster could not work, or a stranger could rewrite its log.
func TestOptionsThatAServerRefuses(t *testing.T) {
	of := func(addr string) Options { return Options{ID: 1, Peers: map[uint32]string{1: addr, 2: "10.0.0.2:1"}} }
	with := func(o Options, change func(*Options)) Options { change(&o); return o }
	for _, c := range []struct {
		name string
		o    Options
		want string // in the error; empty: the server takes them
	}{
		{"alone", Options{}, ""},
		{"alone with an id", Options{ID: state.MaxServerID}, ""},
		{"id too high", Options{ID: state.ZeroID + 1}, "is not in 1.."},
		{"id that is no peer's", with(of("127.0.0.1:1"), func(o *Options) { o.ID = 3 }), "--peers"},
		{"loopback", of("127.0.0.1:1"), ""},
		{"loopback of IPv6", of("[::1]:1"), ""},
		{"localhost", of("localhost:1"), ""},
		{"every address", of("0.0.0.0:1"), "has no TLS"},
		{"an address of a network", of("10.0.0.1:1"), "has no TLS"},
		{"a name", of("zk1.example.org:1"), "has no TLS"},
		{"no port", of("127.0.0.1"), "peer address"},
		{"listens elsewhere", with(of("127.0.0.1:1"), func(o *Options) { o.PeerListen = "10.0.0.1:1" }), "has no TLS"},
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
		if c.want == "" {
			expect.OK(t, err, "%s", c.name)
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
}
