package peer

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// A server that runs on an old copy of its directory has lost votes and entries. Other servers notice,
// because its starts, its term or its log are behind what it showed them before.
func TestOldCopyOfADirectoryIsBehind(t *testing.T) {
	before := Shown{Start: 3, Life: "third", Term: 7, Index: 40}
	for name, c := range map[string]struct {
		now  Shown
		end  uint64
		part string // part of the answer; empty: the server is not behind
	}{
		"the same process":               {Shown{3, "third", 7, 40}, 40, ""},
		"its words overtake each other":  {Shown{3, "third", 6, 30}, 30, ""},
		"a restart":                      {Shown{4, "fourth", 7, 40}, 40, ""},
		"a restart that has yet to read": {Shown{4, "fourth", 7, 0}, 40, ""},
		"a restart with more":            {Shown{4, "fourth", 8, 41}, 50, ""},
		"fewer starts": {Shown{2, "second", 9, 90}, 90,
			"it was started 1 times before, but other servers know of 3 starts"},
		"the same start twice": {Shown{3, "another third", 9, 90}, 90,
			"its start number 3 was used before"},
		"an older term": {Shown{4, "fourth", 6, 40}, 40, "its newest term is 6, but it has been in term 7"},
		"a shorter log": {Shown{4, "fourth", 7, 40}, 39,
			"its log ends at entry 39, but it has applied entry 40"},
	} {
		expect.Equal(t, c.now.Behind(before, c.end), c.part, "%s", name)
	}
}

func TestShownOnlyRises(t *testing.T) {
	s := Shown{Start: 3, Life: "third", Term: 7, Index: 40}
	s.Raise(Shown{Start: 2, Life: "second", Term: 6, Index: 39})
	expect.Equal(t, s, Shown{3, "third", 7, 40}, "after less")
	s.Raise(Shown{Start: 3, Life: "another third", Term: 7, Index: 40})
	expect.Equal(t, s, Shown{3, "third", 7, 40}, "after another life of the same start")
	s.Raise(Shown{Start: 4, Life: "fourth", Term: 8, Index: 41})
	expect.Equal(t, s, Shown{4, "fourth", 8, 41}, "after more")
}

func TestVersionsInCommon(t *testing.T) {
	for _, c := range []struct {
		oldest, version int
		want            bool
	}{{Oldest, Version, true}, {Version, Version + 1, true}, {Oldest - 1, Oldest, true},
		{Version + 1, Version + 1, false}, {Oldest - 1, Oldest - 1, false}} {
		g := Greeting{Oldest: c.oldest, Version: c.version}
		expect.Equal(t, g.Understands(), c.want, "a server that understands %d to %d", c.oldest, c.version)
	}
}
