package raftfsm

import (
	"testing"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// A server that stands with a log shorter than another's loses its vote and
// costs the cluster a whole election timeout.
func TestTheLongestLogStandsFirst(t *testing.T) {
	status := func(id uint32, term, index uint64) peer.Status {
		return peer.Status{ID: id, LastTerm: term, LastIndex: index}
	}
	for _, c := range []struct {
		name          string
		first, second peer.Status
	}{
		{"equal logs: the lower id", status(1, 3, 10), status(2, 3, 10)},
		{"a longer log before a lower id", status(2, 3, 11), status(1, 3, 10)},
		{"a later term before a longer log", status(2, 4, 9), status(1, 3, 10)},
	} {
		if !standsBefore(&c.first, &c.second) || standsBefore(&c.second, &c.first) {
			t.Errorf("%s: the order is not %d, %d", c.name, c.first.ID, c.second.ID)
		}
	}
}

// A leader that a server cannot reach is not stood against while those who do
// not answer may reach it; nor need they be waited for when that cannot be.
func TestThoseWhoDoNotAnswerMayReachTheLeader(t *testing.T) {
	for _, c := range []struct {
		name                 string
		voters, linked, mute int
		may                  bool
	}{
		{"the third of three is busy", 3, 0, 1, true},
		{"the third of three cannot reach it either", 3, 0, 0, false},
		{"one of five is busy", 5, 0, 1, false},
		{"two of five are busy", 5, 0, 2, true},
		{"one of five reaches it, one is busy", 5, 1, 1, true},
		{"two voters", 2, 0, 0, false},
	} {
		v := survey{voters: c.voters, linked: c.linked, mute: c.mute}
		if v.mayLive() != c.may {
			t.Errorf("%s: %v", c.name, !c.may)
		}
		if others := c.voters - 1 - c.linked - c.mute; c.may && others > c.voters/2 {
			t.Errorf("%s: the others could elect one, and are kept from it", c.name)
		}
	}
}

// TestASurveyCountsWhatVotersSay: who stands first is waited for, once each, and
// nobody whose log is longer, or whose process is gone, is hoped for.
func TestASurveyCountsWhatVotersSay(t *testing.T) {
	v := survey{voters: 9, votes: 1, silent: 1, vacant: 1}
	for _, a := range []opinion{{before: true}, {before: true, longer: true, stands: true}, {silent: true, stands: true}, {linked: true}, {mute: true},
		{mute: true, gone: true}, {vacant: true}, {leads: true}} {
		v.hear(a)
	}
	if v.wait != 2*succeedStep || v.votes != 7 || v.silent != 2 || v.linked != 1 || v.mute != 2 || v.vacant != 2 || v.leads != 1 || v.standing != 1 {
		t.Errorf("%+v", v)
	}
}
