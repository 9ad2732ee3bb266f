package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An error keeps its text and its code on the way to another program, however often it is wrapped.
func TestCodeSurvivesTheWay(t *testing.T) {
	stale := Errorf(Stale, "the members are others: %w", io.EOF)
	b := must.Get(json.Marshal(Failed(fmt.Errorf("server 2: %w", stale))))(t)
	var f Failure
	must.OK(t, json.Unmarshal(b, &f))
	got := fmt.Errorf("asked server 1: %w", f.Err())
	expect.That(t, errors.Is(got, stale) && Of(got) == Stale && !errors.Is(got, Errorf(Changing, "x")),
		"%v has the code %q", got, Of(got))
	want := "asked server 1: server 2: the members are others: EOF"
	expect.Equal(t, got.Error(), want, "text %q", got)
	expect.Is(t, stale, io.EOF, "a code hides the cause")
	expect.That(t, !errors.Is(stale, io.ErrUnexpectedEOF), "a code stands for every error")
}

func TestErrorsWithoutCode(t *testing.T) {
	expect.OK(t, Failed(nil).Err(), "no error became")
	err := Failed(io.EOF).Err()
	if expect.Fails(t, err, "%v with the code %q", err, Of(err)) {
		expect.Equal(t, err.Error(), "EOF", "%v with the code %q: err.Error()", err, Of(err))
		expect.Equal(t, Of(err), "", "%v with the code %q: Of(err)", err, Of(err))
		expect.That(t, !Of(err).Passes(),
			"%v with the code %q: want !Of(err).Passes()", err, Of(err))
		expect.That(t, With(Stale, nil) == nil,
			"%v with the code %q: want With(Stale, nil) == nil", err, Of(err))
	}
	for c, want := range map[Code]bool{NoLeader: true, Interrupted: true, Overtaken: true, NotJoined: true,
		Changing: false, NotReady: false} {
		expect.Equal(t, c.Passes(), want, "%s passes: %v", c, !want)
	}
}

func TestMemberIsWellThatIsALittleBehind(t *testing.T) {
	for name, c := range map[string]struct {
		far  Progress
		want bool
	}{
		"never heard":  {Progress{}, false},
		"there":        {Progress{Heard: Ago(1)}, true},
		"a bit behind": {Progress{Heard: Ago(1), Lag: EnoughToVote}, true},
		"far behind":   {Progress{Heard: Ago(1), Lag: EnoughToVote + 1}, false},
		"waits":        {Progress{Heard: Ago(1), Waits: "for the others"}, false},
		"silent":       {Progress{Heard: Ago(Silence.Milliseconds())}, false},
	} {
		expect.Equal(t, c.far.Well(), c.want, "%s", name)
	}
}

// Members are listed in the order of their ids.
func TestMembersAreListedInOrder(t *testing.T) {
	m := Members{Members: map[uint32]Member{}}
	expect.Equal(t, len(m.List()), 0)
	for id := uint32(20); id > 0; id-- {
		m.Members[id] = Member{ID: id}
	}
	for i, one := range m.List() {
		expect.Equal(t, one.ID, uint32(i+1))
	}
	expect.Equal(t, len(m.List()), 20)
}

// A member counts as a follower only if it has the log: a server that lost its directory answers, but does
// not follow.
func TestMemberFollowsThatHasTheLog(t *testing.T) {
	few, many := int64(EnoughOfBytes), int64(EnoughOfBytes+1)
	for name, c := range map[string]struct {
		far  Progress
		want bool
	}{
		"never heard":    {Progress{Applied: 9}, false},
		"empty":          {Progress{Heard: Ago(1), Lag: 9}, false},
		"there":          {Progress{Heard: Ago(1), Applied: 9}, true},
		"a bit behind":   {Progress{Heard: Ago(1), Applied: 9, Lag: EnoughToVote, LagBytes: &few}, true},
		"many behind":    {Progress{Heard: Ago(1), Applied: 9, Lag: EnoughToVote + 1}, false},
		"large entries":  {Progress{Heard: Ago(1), Applied: 9, Lag: 2, LagBytes: &many}, false},
		"waits for them": {Progress{Heard: Ago(1), Applied: 9, Waits: "catching up"}, true},
		"silent":         {Progress{Heard: Ago(Silence.Milliseconds()), Applied: 9}, false},
	} {
		t.Run(name, func(t *testing.T) { expect.Equal(t, c.far.Follows(), c.want) })
	}
}
