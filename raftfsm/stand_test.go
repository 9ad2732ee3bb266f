package raftfsm

import "testing"

// A server that stands with a log shorter than another's loses its vote and
// costs the cluster a whole election timeout.
func TestTheLongestLogStandsFirst(t *testing.T) {
	status := func(id uint32, term, index uint64) peerStatus {
		return peerStatus{ID: id, LastTerm: term, LastIndex: index}
	}
	for _, c := range []struct {
		name          string
		first, second peerStatus
	}{
		{"equal logs: the lower id", status(1, 3, 10), status(2, 3, 10)},
		{"a longer log before a lower id", status(2, 3, 11), status(1, 3, 10)},
		{"a later term before a longer log", status(2, 4, 9), status(1, 3, 10)},
	} {
		if !c.first.standsBefore(&c.second) || c.second.standsBefore(&c.first) {
			t.Errorf("%s: the order is not %d, %d", c.name, c.first.ID, c.second.ID)
		}
	}
}
