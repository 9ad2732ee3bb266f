package raftfsm

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Servers of releases that have no version in common are told so; they would
// else fail later, at the first message or log entry one of them cannot read.
func TestF4ServerOfAnotherReleaseIsRefused(t *testing.T) {
	n, _ := start(t, Options{})
	for _, c := range []struct {
		oldest, version int
		ok              bool
	}{
		{peer.Oldest, peer.Version, true},
		{peer.Version, peer.Version + 3, true},
		{peer.Version + 1, peer.Version + 3, false},
		{0, peer.Oldest - 1, false},
		{0, 0, false}, // says nothing of versions
	} {
		g := host{n}.Greeting(n.id)
		g.From, g.To, g.Oldest, g.Version = n.id, n.id, c.oldest, c.version
		if err := n.admit(peer.Ask, &g); (err == nil) != c.ok || !c.ok &&
			!strings.Contains(err.Error(), "release") {
			t.Errorf("versions %d to %d: %v", c.oldest, c.version, err)
		}
	}
}
