package cli

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

func TestNearest(t *testing.T) {
	known := []string{"run", "hold", "ls", "show", "holders", "peers", "peer-addr", "client-addr", "data-dir",
		"tick-time", "max-cnxns", "timeout", "session-timeout"}
	for word, want := range map[string]string{
		"perrs": "peers", "pears": "peers", "hodl": "hold", "shwo": "show", "rnu": "run", "l": "", "runn": "run",
		"tick":    "tick-time",
		"datadir": "data-dir", "data_dir": "data-dir", "DataDir": "data-dir", "time-out": "timeout", "sl": "ls",
		"tmieout": "timeout",
		"zzz":     "", "banana": "", "": "", "addr": "peer-addr",
	} {
		expect.Equal(t, Nearest(word, known), want, "%q", word)
	}
}

func TestDistance(t *testing.T) {
	for _, x := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abc", "abc", 0},
		{"peers", "perrs", 1}} {
		got := distance(x.a, x.b)
		expect.Equal(t, got, x.want, "%q, %q", x.a, x.b)
		expect.Equal(t, distance(x.b, x.a), x.want, "%q, %q: distance", x.a, x.b)
	}
}
