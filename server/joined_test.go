package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients"
)

// TestTheViewSaysThatThereIsNoNode: until a server has joined its cluster an
// operator's action is refused, not taken for done.
func TestTheViewSaysThatThereIsNoNode(t *testing.T) {
	s := viewSource{new(Instance), new(clients.Server)}
	if err := s.HandOver(t.Context()); !errors.Is(err, errNotJoined) {
		t.Errorf("HandOver: %v", err)
	}
	if err := s.TakeSnapshot(); !errors.Is(err, errNotJoined) {
		t.Errorf("TakeSnapshot: %v", err)
	}
	if _, err := s.Do(context.Background(), state.Request{}); !errors.Is(err, errNotJoined) {
		t.Errorf("Do: %v", err)
	}
	if s.View(func(*state.State) {}) {
		t.Error("there is a state to see")
	}
	if s.backupSource() != nil {
		t.Error("there is a state to back up")
	}
	if err := s.ChangeMember(t.Context(), state.MemberChange{Op: "add"}); !errors.Is(err, errNotJoined) {
		t.Errorf("ChangeMember: %v", err)
	}
	if _, err := s.Probe(t.Context(), 1, "127.0.0.1:1"); !errors.Is(err, errNotJoined) {
		t.Errorf("Probe: %v", err)
	}
}

// TestStepsOfAReconfigAreNoChangesOfAnOperators: they leave majorities to who
// makes them, and are refused at the admin port.
func TestStepsOfAReconfigAreNoChangesOfAnOperators(t *testing.T) {
	i, _ := start(t, Options{})
	for _, op := range []string{"vote", "demote", "describe"} {
		if err := i.ChangeMember(t.Context(), state.MemberChange{Op: op, ID: 1}); err == nil || !strings.Contains(err.Error(), "unknown change") {
			t.Errorf("%s: %v", op, err)
		}
	}
}
