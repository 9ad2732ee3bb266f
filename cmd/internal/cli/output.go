package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// AddOutput adds -o with the formats that a command has; the first is the default.
func AddOutput(fs *pflag.FlagSet, usage string, formats ...string) *string {
	format := formats[0]
	fs.VarP(NewChoice(&format, formats...), "output", "o", usage)
	return &format
}

// WriteJSON writes an object on one line. It adds a first field "v", the version of the documented answers,
// unless the object comes from a server and has one already. New fields do not change the version; a changed
// or removed field does.
func WriteJSON(w io.Writer, object any) error {
	b, err := json.Marshal(object)
	if err != nil {
		return err
	}
	const version = `{"v":1`
	switch {
	case bytes.HasPrefix(b, []byte(`{"v":`)):
	case string(b) == "{}":
		b = []byte(version + "}")
	default:
		b = append([]byte(version+","), b[1:]...)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Choice is a flag with a fixed set of values.
type Choice struct {
	value  *string
	Values []string
}

// NewChoice returns a flag that sets *value to one of `values`.
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
