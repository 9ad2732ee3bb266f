package ticket

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

// The name of the user is text that a server accepts: at most 200 bytes, and only whole characters.
func TestNameOfTheUserIsWhole(t *testing.T) {
	for text, want := range map[string]string{
		"ann@host": "ann@host", "a\xffn\tn@h": "a?n?n@h",
		strings.Repeat("x", 199) + "é@host": strings.Repeat("x", 199),
		strings.Repeat("x", 198) + "é@host": strings.Repeat("x", 198) + "é",
	} {
		expect.Equal(t, shown(text), want)
	}
}
