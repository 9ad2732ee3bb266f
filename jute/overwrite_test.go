package jute

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// A decoded string shares memory with its input, which tests overwrite once the request is handled. A clone
// keeps its text.
func TestStringsShareTheirInputUntilItIsHandled(t *testing.T) {
	for _, text := range []string{"", "a", "/lock", strings.Repeat("/long", 100)} {
		input := AppendString(nil, text)
		d := NewDecoder(input)
		shared, _ := d.String()
		expect.Equal(t, shared, text)
		kept := strings.Clone(shared)
		Overwrite(input)
		expect.Equal(t, shared == text, text == "", "%q shares its input", text)
		expect.Equal(t, kept, text, "its clone")
	}
}
