package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// zoo turns one zoo.cfg into settings.
type zoo struct {
	s       *Settings
	flags   *pflag.FlagSet
	given   map[string]bool   // flags of the command line
	seen    map[string]string // the value of each key of the file, by the key without its prefix
	raw     map[string]bool   // the keys as they stand in the file, with their prefix
	servers []config.Server
}

// bare() returns a key without the prefix that makes it a Java system property.
func (z *zoo) bare(key string) string { return strings.TrimPrefix(key, "zookeeper.") }

// set sets a flag unless the command line has set it.
func (z *zoo) set(flag, value string) error {
	if z.given[flag] {
		return nil
	}
	return z.flags.Set(flag, value)
}

// put() is like set(), for values that come from several keys. It records an error instead of returning it.
func (z *zoo) put(flag, value string) {
	if err := z.set(flag, value); err != nil {
		z.wrong("%w", err)
	}
}

// wrong() records a mistake in the file that is not in one line alone.
func (z *zoo) wrong(format string, args ...any) {
	z.s.Fault("%s: %w", z.s.Config, fmt.Errorf(format, args...))
}

// is() reports whether the file sets a key to a value, in upper or lower case as in ZooKeeper.
func (z *zoo) is(key, value string) bool { return strings.EqualFold(z.seen[key], value) }

// A rule says what one key of a zoo.cfg means. If the server cannot do what the key asks, and must not
// silently ignore it, apply() returns an error, and the server does not start.
type rule struct {
	means string // explanation for the manual
	apply func(z *zoo, key, value string) error
}
