package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
)

func TestReconfigAsksTheHookAndSaysWhoAsks(t *testing.T) {
	var asked []ReconfigRequest
	r := newRig(t, Options{
		SuperDigest: tree.DigestID("root:secret").ID,
		Reconfigure: func(q ReconfigRequest) (jute.ErrCode, bool) {
			asked = append(asked, q)
			switch q.Version {
			case 5:
				return jute.BadVersion, true
			case 6:
				return 0, false
			}
			return jute.OK, true
		},
	})
	c := r.client()
	body := func(version int64) wire.Body { return wire.Body{}.Str("server.2=x").Null().Null().Long(version) }
	call(t, c, jute.BadVersion, jute.OpReconfig, body(5))
	call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", "root:secret"))
	f := call(t, c, jute.OK, jute.OpReconfig, body(-1))
	d := jute.NewDecoder(f.Body)
	d.Buffer()
	d.Stat()
	if d.Err() != nil || len(d.Rest()) != 0 {
		t.Errorf("reply %x", f.Body)
	}
	call(t, c, jute.MarshallingError, jute.OpReconfig, wire.Body{}.Str("x"))
	if len(asked) != 2 || asked[0].May || !asked[1].May || asked[1].Joining != "server.2=x" || asked[1].Patience <= 0 {
		t.Errorf("asked %+v", asked)
	}
	// An outcome that is not known is not invented.
	_, err := c.Send(jute.OpReconfig, body(6))
	must(t, err)
	must(t, c.Closed())
}

const threeServers = `server.1=h1:2888:2889:participant;h1:2181
server.2=h2:2888:2889:participant;h2:2181
server.3=h3:2888:2889:participant;h3:2181
version=10000002a`

func TestReconfigPlans(t *testing.T) {
	const four = "server.4=h4:2888:3888;2181"
	for _, tc := range []struct {
		name string
		r    ReconfigRequest
		code jute.ErrCode
		to   string // id, ! after those without a vote
	}{
		{"nothing", ReconfigRequest{Version: -1}, jute.OK, "1 2 3"},
		{"the version", ReconfigRequest{Version: 0x10000002a}, jute.OK, "1 2 3"},
		{"another version", ReconfigRequest{Version: 7, Joining: "garbage"}, jute.BadVersion, ""},
		{"join", ReconfigRequest{Version: -1, Joining: four}, jute.OK, "1 2 3 4"},
		{"join without a vote", ReconfigRequest{Version: -1, Joining: "server.4=h4:2888:3888:observer;2181"}, jute.OK, "1 2 3 4!"},
		{"join and leave", ReconfigRequest{Version: -1, Joining: four + ",server.5=[::1]:1:2:PARTICIPANT;0.0.0.0:3", Leaving: "2,3"}, jute.OK, "1 4 5"},
		{"join again", ReconfigRequest{Version: -1, Joining: "server.2=h2:2888:3888:participant;h2:2181"}, jute.OK, "1 2 3"},
		{"leave", ReconfigRequest{Version: -1, Leaving: "3"}, jute.OK, "1 2"},
		{"leave who is not there", ReconfigRequest{Version: -1, Leaving: "99"}, jute.OK, "1 2 3"},
		{"all leave", ReconfigRequest{Version: -1, Leaving: "1,2,3"}, jute.BadArguments, ""},
		{"leave by name", ReconfigRequest{Version: -1, Leaving: "h3"}, jute.BadArguments, ""},
		{"move", ReconfigRequest{Version: -1, Joining: "server.3=h9:2888:2889;2181"}, jute.BadArguments, ""},
		{"lose the vote", ReconfigRequest{Version: -1, Joining: "server.3=h3:2888:2889:observer;2181"}, jute.BadArguments, ""},
		{"address taken", ReconfigRequest{Version: -1, Joining: "server.4=h3:2888:3888;h4:2181"}, jute.BadArguments, ""},
		{"client address taken", ReconfigRequest{Version: -1, Joining: "server.4=h4:2888:3888;h3:2181"}, jute.BadArguments, ""},
		{"no client port", ReconfigRequest{Version: -1, Joining: "server.4=h4:2888:3888"}, jute.BadArguments, ""},
		{"two ports", ReconfigRequest{Version: -1, Joining: "server.4=h4:2888;2181"}, jute.BadArguments, ""},
		{"no such role", ReconfigRequest{Version: -1, Joining: "server.4=h4:2888:3888:king;2181"}, jute.BadArguments, ""},
		{"no such id", ReconfigRequest{Version: -1, Joining: "server.0=h4:2888:3888;2181"}, jute.BadArguments, ""},
		{"garbage", ReconfigRequest{Version: -1, Joining: "garbage"}, jute.BadArguments, ""},
		{"the whole list", ReconfigRequest{Version: -1, Members: strings.ReplaceAll(threeServers, "server.2=h2", "server.4=h4")}, jute.OK, "1 3 4"},
		{"the whole list, by commas", ReconfigRequest{Version: -1, Members: "server.1=h1:2888:2889," + four}, jute.OK, "1 4"},
	} {
		r := tc.r
		r.May = true
		_, to, code, why := plan(threeServers, &r)
		var got []string
		for _, id := range to.ids(0) {
			s := string(rune('0' + id))
			if !to[id].voter {
				s += "!"
			}
			got = append(got, s)
		}
		if code != tc.code || !slices.Equal(got, strings.Fields(tc.to)) || (why == nil) != (code == jute.OK) {
			t.Errorf("%s: %v, %v (%v)", tc.name, got, code, why)
		}
		if code != jute.OK {
			continue
		}
		r.May = false
		if _, _, code, _ := plan(threeServers, &r); code != jute.NoAuth {
			t.Errorf("%s, of somebody else: %v", tc.name, code)
		}
	}
}

func TestWhoCarriesOutAChangeLeavesLast(t *testing.T) {
	m, version := parseConfig(threeServers)
	if got := m.ids(2); !slices.Equal(got, []uint32{1, 3, 2}) || version != 0x10000002a {
		t.Errorf("%v, version %x", got, version)
	}
}
