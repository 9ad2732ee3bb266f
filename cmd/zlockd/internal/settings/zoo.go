package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// zoo maps one zoo.cfg to settings.
type zoo struct {
	s       *Settings
	flags   *pflag.FlagSet
	given   map[string]bool   // flags of the command line
	seen    map[string]string // every key of the file, without a prefix
	raw     map[string]bool   // every key with its prefix, as in the file
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

// put() is like set(), for a setting that needs several keys. It records the error itself.
func (z *zoo) put(flag, value string) {
	if err := z.set(flag, value); err != nil {
		z.wrong("%w", err)
	}
}

// wrong() records a mistake that does not belong to a single line.
func (z *zoo) wrong(format string, args ...any) {
	z.s.Fault("%s: %w", z.s.Config, fmt.Errorf(format, args...))
}

// is() reports whether the file sets a key to a value, in upper or lower case as in ZooKeeper.
func (z *zoo) is(key, value string) bool { return strings.EqualFold(z.seen[key], value) }

// A rule maps one key of a zoo.cfg. apply() returns an error if the server must not start, because it would
// otherwise silently ignore the key.
type rule struct {
	means string // explanation for the manual
	apply func(z *zoo, key, value string) error
}
