package raftfsm

import (
	"strings"
	"testing"
)

// Servers of releases that have no version in common are told so; they would
// else fail later, at the first message or log entry one of them cannot read.
func TestF4ServerOfAnotherReleaseIsRefused(t *testing.T) {
	n, _ := start(t, Options{})
	for _, c := range []struct {
		oldest, version int
		ok              bool
	}{
		{peerOldest, peerVersion, true},
		{peerVersion, peerVersion + 3, true},
		{peerVersion + 1, peerVersion + 3, false},
		{0, peerOldest - 1, false},
		{0, 0, false}, // says nothing of versions
	} {
		g := n.greeting(n.id)
		g.Oldest, g.Version = c.oldest, c.version
		if err := n.admit(peerAsk, &g); (err == nil) != c.ok || !c.ok && !strings.Contains(err.Error(), "release") {
			t.Errorf("versions %d to %d: %v", c.oldest, c.version, err)
		}
	}
}
