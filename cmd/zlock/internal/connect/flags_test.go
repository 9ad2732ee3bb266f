package connect

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// ZLOCK_CHROOT also applies if -S is given. A chroot on the command line takes precedence.
func TestChrootOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		flagServers, flagChroot, envServers, envChroot string
		servers, chroot                                string
		fails                                          bool
	}{
		{"", "", "", "", "127.0.0.1:2181", "", false},
		{"a:1", "", "", "/prod", "a:1", "/prod", false},
		{"a:1", "", "b:1", "/prod", "a:1", "/prod", false},
		{"a:1/x", "", "b:1", "/prod", "a:1", "/x", false},
		{"a:1/", "", "", "/prod", "a:1", "", false},
		{"a:1", "/y", "", "/prod", "a:1", "/y", false},
		{"a:1", "/", "", "/prod", "a:1", "", false},
		{"", "", "b:1", "/prod", "b:1", "/prod", false},
		{"", "/y", "b:1", "/prod", "b:1", "/y", false},
		{"", "", "b:1/z", "", "b:1", "/z", false},
		{"", "", "b:1/z", "/prod", "", "", true},
		{"a:1/x", "/y", "", "", "", "", true},
		{"a:1", "y", "", "", "", "", true},
	} {
		f := &Flags{Servers: c.flagServers, Chroot: c.flagChroot}
		servers, chroot, err := f.Address(func(name string) string {
			return map[string]string{"ZLOCK_SERVERS": c.envServers, "ZLOCK_CHROOT": c.envChroot}[name]
		})
		if c.fails != (err != nil) || err == nil && (servers != c.servers || chroot != c.chroot) {
			t.Errorf("%+v: %q, %q, %v", c, servers, chroot, err)
		}
	}
}

func TestNeededTimeoutFitsTheMargin(t *testing.T) {
	for _, k := range []time.Duration{0, 1, 5, 30} {
		killAfter := k * time.Second
		need := NeededTimeout(MarginFor(killAfter))
		expect.That(t, CheckMargin(true, need, killAfter) == nil,
			"kill-after %v: %v is refused", killAfter, need)
		expect.That(t, CheckMargin(true, need-1e9, killAfter) != nil,
			"kill-after %v: a second less than %v is allowed", killAfter, need)
		expect.That(t, killFor(need) >= killAfter,
			"%v would do for kill-after %v, but killFor says %v", need, killAfter, killFor(need))
	}
}
