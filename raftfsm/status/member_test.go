package status

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

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
	} {
		expect.Equal(t, c.far.Well(), c.want, "%s", name)
	}
}
