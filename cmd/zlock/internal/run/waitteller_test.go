package run

import (
	"testing"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/expect"
)

// A waiter prints its line again when the holder or the waiter's place in the queue changes. If the place is
// far back, it prints the line only once.
func TestNewsOfAWait(t *testing.T) {
	first := client.Event{Path: "/l", Holder: "/l/a", Place: 3, Of: 3}
	far := client.Event{Path: "/l", Holder: "/l/a", Place: 300, Of: 400}
	for _, tc := range []struct {
		name     string
		told, ev client.Event
		want     bool
	}{
		{"nothing is known", client.Event{}, client.Event{}, false},
		{"the first", client.Event{}, first, true},
		{"the same", first, first, false},
		{"another holder", first, client.Event{Path: "/l", Holder: "/l/b", Place: 3, Of: 3}, true},
		{"another place", first, client.Event{Path: "/l", Holder: "/l/a", Place: 2, Of: 3}, true},
		{"another lock", first, client.Event{Path: "/m", Holder: "/m/a", Place: 3, Of: 3}, true},
		{"far away", client.Event{}, far, true},
		{"still far away", far, client.Event{Path: "/l", Holder: "/l/b", Place: 299, Of: 400}, false},
		{"near", far, client.Event{Path: "/l", Holder: "/l/b", Place: 20, Of: 400}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			expect.Equal(t, (&waitTeller{told: tc.told}).news(tc.ev), tc.want, "whether it is said")
		})
	}
}
