package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestVersionOfTheMembership(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "server.1=a:1:1:participant\nversion=1a": 0x1a,
		"\nversion=": 0, "\nversion=zz": 0} {
		if _, got := Cut(text); got != want {
			t.Errorf("%q has version %d", text, got)
		}
	}
}

// The published members are read back as they were, with any addresses. A server's three ports must differ,
// because Java clients insist on that.
func TestMembersAreReadBackAsTheyWerePublished(t *testing.T) {
	list := []Server{
		{ID: 1, Peer: "h1:2888", Client: "h1:2181", Voter: true},
		{ID: 2, Peer: "[::1]:2888", Client: "[::1]:2889", Voter: true},
		{ID: 3, Peer: "h3:65535", Client: "h3:65534", Voter: true},
		{ID: 9, Peer: "h9:65535", Client: "h9:65533", Voter: true},
		{ID: 10, Peer: "h10:65534", Client: "h10:65535", Voter: true},
		{ID: 4, Peer: "h4:2888", Election: "3888", Client: "0.0.0.0:2181"},
		{ID: 254, Peer: "10.0.0.1:1"},
		{ID: ZeroID, Peer: "h0:1", Election: "2", Voter: true},
	}
	text := Text(list)
	data := string(WithVersion([]byte(text), 0x10000002a))
	got, version := Parse(data)
	for i := range got {
		if list[i].Election == "" { // no port was given, so Text has chosen one
			got[i].Election = ""
		}
	}
	expect.List(t, got, list, "read back from %q", data)
	expect.Equal(t, version, 0x10000002a, "version in %q", data)
	cut, _ := Cut(data)
	expect.Equal(t, cut, text, "%q without its version", data)
	for _, s := range list {
		p, c := portOf(s.Peer), portOf(s.Client)
		o := otherPort(p, c)
		expect.That(t, o != p, "%s: the third port is the peer port %d", s.Line(), o)
		expect.That(t, o != c, "%s: the third port is the client port %d", s.Line(), o)
		expect.That(t, o >= 1 && o <= 65535, "%s: the third port is %d, want 1 to 65535", s.Line(), o)
	}
}

// A line that does not describe a server is refused, as ZooKeeper 3.8 refuses it.
func TestLinesThatAreNoServerAreRefused(t *testing.T) {
	for _, line := range []string{"", "server.1", "some thing", "server.1=h:1", "server.1=h:1:1",
		"server.1=:1:2", "server.1=h:1:2=3", "server.1=h:1:2:leader",
		"server.1=h:1:2:observer:3", "server.1=h:1:2;h:x", "server.1=h:a:2", "server.1=h:1:2|h:3:4",
		"server.1=h\nserver.2:1:2", "server.1=" + strings.Repeat("h", 256) + ":1:2"} {
		s, err := ParseServer(line)
		if expect.Fails(t, err, "%q is read as %+v", line, s) {
			expect.That(t, !errors.Is(err, ErrNumber), "%q counts as a wrong number: %v", line, err)
		}
	}
	for _, line := range []string{"server.x=h:1:2", "server.=h:1:2", "server.1=h:1:65536",
		"server.1=h:1:2;65536", "server.1=h:-1:2"} {
		s, err := ParseServer(line)
		expect.Is(t, err, ErrNumber, "%q is read as %+v", line, s)
	}
	for line, want := range map[string]Server{
		" server.4 = h4:2888:3888:OBSERVER;2181": {ID: 4, Peer: "h4:2888", Election: "3888",
			Client: "0.0.0.0:2181"},
		"server.0=h:1:2;h:3":  {ID: ZeroID, Peer: "h:1", Election: "2", Client: "h:3", Voter: true},
		"9=[::1]:0:2;[::1]:3": {ID: 9, Peer: "[::1]:0", Election: "2", Client: "[::1]:3", Voter: true},
		"server.999=h:1:2":    {ID: 1<<31 | 999, Peer: "h:1", Election: "2", Voter: true},
		"server.255=h:1:2;":   {ID: 1<<31 | 255, Peer: "h:1", Election: "2", Voter: true},
	} {
		expect.Equal(t, must.Get(ParseServer(line))(t), want, "%q is read as", line)
	}
}

// A line of zoo.cfg may name one port, or the same port twice. The line of a joining server must name two
// different ports.
func TestAddressesOfAFileAreReadWithLess(t *testing.T) {
	for value, want := range map[string]Server{
		"h:1":                       {Peer: "h:1", Voter: true},
		"h:1:1":                     {Peer: "h:1", Voter: true},
		"h:1:2":                     {Peer: "h:1", Election: "2", Voter: true},
		"[::1]:1:2:Observer;3":      {Peer: "[::1]:1", Election: "2", Client: "0.0.0.0:3"},
		"h:1:1:participant;c:3":     {Peer: "h:1", Client: "c:3", Voter: true},
		" h:0:2:participant;[::]:3": {Peer: "h:0", Election: "2", Client: "[::]:3", Voter: true},
	} {
		want.ID = 7
		expect.Equal(t, must.Get(ParseAddresses(7, value))(t), want, "%q is read as", value)
		line := "server.7=" + value
		s, err := ParseServer(line)
		if want.Election == "" {
			expect.Fails(t, err, "%q is read as %+v", line, s)
		} else if expect.OK(t, err, "%q", line) {
			expect.Equal(t, s, want, "%q is read as", line)
		}
	}
	for _, value := range []string{"", "h", "h:", ":1:2", "h:x", "h:1:y", "h:1:70000", "h:1:2:watcher",
		"h:1:2:observer:3", "h:1:2;x", "h:1:2|i:1:2", "[::1:1:2"} {
		s, err := ParseAddresses(7, value)
		expect.Fails(t, err, "%q is read as %+v", value, s)
	}
}

func TestWordsDescribeTheServerTheyMean(t *testing.T) {
	words := map[uint32]Server{1: {ID: 1, Peer: "h:1", Election: "7", Client: "c:2"},
		2: {ID: 2, Peer: "h:2", Election: "8"}}
	for is, want := range map[Server]Server{
		{ID: 1, Peer: "h:1", Client: "x:1", Voter: true}: {ID: 1, Peer: "h:1", Election: "7", Client: "c:2",
			Voter: true},
		{ID: 1, Peer: "g:1", Client: "x:1"}: {ID: 1, Peer: "g:1", Client: "x:1"},
		{ID: 2, Peer: "h:2", Client: "x:1"}: {ID: 2, Peer: "h:2", Election: "8", Client: "x:1"},
		{ID: 3, Peer: "h:1"}:                {ID: 3, Peer: "h:1"},
	} {
		if is.Describe(words); is != want {
			t.Errorf("%+v, want %+v", is, want)
		}
	}
}

func TestNumbersOfPorts(t *testing.T) {
	for text, want := range map[string]bool{"1": true, "65535": true, "0": false, "65536": false, "-1": false,
		"": false, "x": false, "2181": true, " 1": false} {
		expect.Equal(t, IsPort(text), want, "%q", text)
	}
	for id, want := range map[uint32]bool{0: false, 1: true, MaxID: true, ZeroID: true, ZeroID + 1: false} {
		expect.Equal(t, IsID(id), want, "%d", id)
	}
	for n, want := range map[int64]uint32{0: ZeroID, 1: 1, MaxID: MaxID, 255: 1<<31 | 255, 7: 7} {
		expect.Equal(t, ServerID(n), want, "%d", n)
	}
}

// TellsClients reports whether the published text has the client address of every server.
func TestTextsThatTellClients(t *testing.T) {
	for text, want := range map[string]bool{"": true, "server.1=a:1:2;3": true, "server.1=a:1:2": false,
		"server.1=a:1:2;3\nserver.2=b:1:2": false, "server.1=a:1:2\nserver.2=b:1:2;3": false,
		"server.1=a:1:2;3\nserver.2=b:1:2;3": true} {
		expect.Equal(t, TellsClients([]byte(text)), want, "%q", text)
	}
}
