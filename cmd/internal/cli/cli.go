// Package cli holds what the command lines of zlockd and zlock share.
package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Auth is an identity to present to the servers.
type Auth struct{ Scheme, Secret string }

// ReadAuth reads a file with one SCHEME:SECRET per line and skips empty lines and lines that
// begin with #. It also reports whether other users can read the file. No error repeats a
// line, because the line may be the secret.
func ReadAuth(path string) (list []Auth, exposed bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, false, err
	}
	if info, err := os.Stat(path); err == nil {
		exposed = info.Mode().Perm()&0o044 != 0
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		scheme, secret, ok := strings.Cut(line, ":")
		if !ok || scheme == "" {
			return nil, exposed, fmt.Errorf("a line is not SCHEME:SECRET")
		}
		list = append(list, Auth{scheme, secret})
	}
	if list == nil {
		return nil, exposed, fmt.Errorf("%s is empty", path)
	}
	return list, exposed, nil
}

// Choice is a flag with a fixed set of values.
type Choice struct {
	value  *string
	Values []string
}

// NewChoice returns a flag that sets value to one of the values.
func NewChoice(value *string, values ...string) *Choice { return &Choice{value, values} }

// String implements pflag.Value.
func (c *Choice) String() string { return *c.value }

// Type returns the name by which pflag shows the type of the value.
func (c *Choice) Type() string { return strings.Join(c.Values, "|") }

// Set implements pflag.Value.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.Values, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.Values, ", "))
	}
	*c.value = s
	return nil
}
